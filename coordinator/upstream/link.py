"""The upstream cluster as we see it: which brokers there are, who coordinates a group, and what they answer.

What belongs here: Metadata, FindCoordinator, and what may be tried again. What it must not know: what is asked, but for
the error in an answer. How a broker is spoken to, and the errors, are in `connections.py`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import structlog
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from muster.coordinator.clock import SystemClock
from muster.coordinator.tasks import on_failure
from muster.coordinator.upstream.cluster_outage import NOBODY_ANSWERS, ClusterOutage
from muster.coordinator.upstream.connections import (
    AnswerLost,
    Connections,
    Place,
    TopicIds,
    UpstreamError,
    UpstreamRefused,
    UpstreamUnavailable,
    ignore,
    places,
)
from muster.coordinator.upstream.security import UpstreamSecurity
from muster.events.kafka.first_answer import first_answer

R = TypeVar("R")
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Brokers = Mapping[int, tuple[str, int]]
"""The live brokers: (host, port) by node id."""
ErrorOf = Callable[[R], ErrorCode]
"""The error of an answer as a whole."""

REQUEST_LIMIT_MS: Final = 10_000
REFRESH_EVERY_MS: Final = 30_000
REFRESH_AGAIN_AFTER_S: Final = 0.2
LOOK_AGAIN_AFTER_MS: Final = 1_000
"""While nobody answers."""
QUESTIONS: Final = "questions"
"""The lane of what any broker may answer."""
COORDINATORS_KEPT: Final = 100_000
MOVED: Final = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)
NEEDED: Final[Mapping[str, tuple[int, int]]] = {
    "Metadata": (3, 12),
    "FindCoordinator": (10, 4),
    "JoinGroup": (11, 9),
    "Heartbeat": (12, 4),
    "LeaveGroup": (13, 5),
    "SyncGroup": (14, 5),
    "DescribeGroups": (15, 5),
    "ListGroups": (16, 4),
}
"""What a broker must know: API key and version. Kafka 3.2 and newer do."""
_CLOCK: Final = SystemClock()
_GROUP: Final = i8(0)
"""The kind of coordinator that FindCoordinator is asked for."""


class UpstreamLink:
    """See the module. `give_up` is told of a bug of ours in what goes on beside the requests."""

    def __init__(
        self,
        bootstrap: str,
        security: UpstreamSecurity | None = None,
        *,
        give_up: Callable[[Exception], None],
        request_limit_ms: int = REQUEST_LIMIT_MS,
        refresh_every_ms: int = REFRESH_EVERY_MS,
        monotonic_ms: Callable[[], int] = _CLOCK.monotonic_ms,
    ) -> None:
        """`bootstrap`: HOST:PORT, several with commas between them. Raises UpstreamRefused for what is none."""
        self._bootstrap = places(bootstrap)
        self._wants_refresh = asyncio.Event()
        self._connections = Connections(
            (security or UpstreamSecurity()).kafka_security(), opens_within_ms=request_limit_ms, lost=self.look_soon
        )
        self._give_up = give_up
        self._limit_ms = request_limit_ms
        self._refresh_every_ms = refresh_every_ms
        self.outage = ClusterOutage(self.asked_at, monotonic_ms)
        self._brokers: dict[int, Place] = {}
        self._watchers: list[Callable[[Brokers], None]] = []
        self._topics: tuple[str, ...] = ()
        self._tell_ids: Callable[[TopicIds], None] = nobody_asks_for_ids
        self._coordinators: dict[str, int] = {}
        self._refusals: list[str] = []
        self._silent: set[Place] = set()
        """Who did not answer while another one did."""
        self._refreshed = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        self.cluster_id = ""
        self.api_versions: dict[int, tuple[int, int]] = {}
        """By API key: the first and the last version that the broker we began with offers."""

    async def open(self) -> None:
        """Find the cluster. Raises UpstreamUnavailable, and UpstreamRefused if trying again makes no sense."""
        await self._look_around()
        for name, (key, version) in NEEDED.items():
            first, last = self.api_versions.get(key, (0, -1))
            if not first <= version <= last:
                offered = f"offers {name} v{first} to v{last}" if key in self.api_versions else f"lacks {name}"
                raise UpstreamRefused(f"the upstream broker {offered}, v{version} is needed: Kafka 3.2 or newer")
        self._refreshing = asyncio.create_task(self._keep_fresh(), name="upstream-brokers")
        self._refreshing.add_done_callback(on_failure(self._give_up))

    async def close(self) -> None:
        """Hang up, for good."""
        refreshing, self._refreshing = self._refreshing, None
        if refreshing is not None:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)
        await self._connections.close()

    def offers(self, api_key: int, version: int) -> bool:
        """Whether the cluster knows a request, in this version."""
        first, last = self.api_versions.get(api_key, (0, -1))
        return first <= version <= last

    # ---- the brokers ---------------------------------------------------------------------------------

    def brokers(self) -> Brokers:
        """The live brokers, as the cluster has told last."""
        return {node_id: (place.host, place.port) for node_id, place in self._brokers.items()}

    def on_brokers(self, tell: Callable[[Brokers], None]) -> None:
        """Have the brokers told whenever they have changed."""
        self._watchers.append(tell)

    def on_topic_ids(self, topics: Sequence[str], tell: Callable[[TopicIds], None]) -> None:
        """Have the ids of these topics told each time that the brokers are asked for."""
        self._topics = tuple(topics)
        self._tell_ids = tell

    def look_soon(self) -> None:
        """Somebody was not reached, or has hung up: there may be an outage, or other brokers."""
        self._wants_refresh.set()

    async def refresh(self) -> None:
        """Ask for the brokers now; returns when they were told. Raises UpstreamUnavailable."""
        self._refreshed.clear()
        self.look_soon()
        try:
            async with asyncio.timeout(self._limit_ms / 1000):
                await self._refreshed.wait()
        except TimeoutError as error:
            raise UpstreamUnavailable(f"no broker tells which there are: {self.asked_at}") from error

    async def _keep_fresh(self) -> None:
        while True:
            again_after_ms = LOOK_AGAIN_AFTER_MS if self.outage.is_on else self._refresh_every_ms
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_after_ms / 1000):
                    await self._wants_refresh.wait()
            self._wants_refresh.clear()
            self.outage.asks()
            try:
                await self._look_around()
            except UpstreamError as error:
                self.outage.failed(error)
            await asyncio.sleep(REFRESH_AGAIN_AFTER_S)  # whoever asks meanwhile is answered by the next round

    async def _look_around(self) -> None:
        """Ask the brokers that are known, then those that we begin with. Raises as `_first` does."""
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in self._topics),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )

        async def ask(place: Place) -> MetadataResponse:
            try:
                if not self.api_versions:
                    await self._learn_versions(place)
                return await self._ask_at(place, request, MetadataResponse)
            except AnswerLost as lost:
                if self.cluster_id:
                    raise
                # What a broker does when we ask before we have authenticated.
                raise UpstreamUnavailable(f"{lost}: does it want credentials?") from lost

        self._learn(await self._first(dict.fromkeys([*self._brokers.values(), *self._bootstrap]), ask))

    async def _learn_versions(self, place: Place) -> None:
        software = ApiVersionsRequest(client_software_name="muster", client_software_version="1")
        offered = await self._ask_at(place, software, ApiVersionsResponse)
        self.api_versions = {int(api.api_key): (api.min_version, api.max_version) for api in offered.api_keys}

    def _learn(self, metadata: MetadataResponse) -> None:
        self.outage.answered()
        if not self.cluster_id:  # for good: who is of another one is not spoken to
            self.cluster_id = self._connections.cluster_id = metadata.cluster_id or ""
        brokers = {int(broker.node_id): Place(broker.host, int(broker.port)) for broker in metadata.brokers}
        if has_changed := bool(brokers) and brokers != self._brokers:
            self._brokers = brokers
        self._connections.forget_others(self._brokers.values())
        self._silent &= {*self._brokers.values(), *self._bootstrap}
        self._tell_ids({str(topic.name): topic.topic_id or topic.error_code for topic in metadata.topics})
        self._refreshed.set()
        if has_changed:
            for tell in self._watchers:
                tell(self.brokers())

    # ---- asking --------------------------------------------------------------------------------------

    async def ask(
        self,
        node_id: int,
        request: Any,  # noqa: ANN401 -- any of kio's requests
        response: type[R],
        *,
        lane: Hashable = 0,
        limit_ms: int | None = None,
        sent: Callable[[], None] = ignore,
    ) -> R:
        """One request to one broker; its answer, whatever error that has. `sent` is told when the request has left.

        Raises UpstreamUnavailable, AnswerLost and UpstreamRefused.
        """
        if node_id not in self._brokers:
            await self.refresh()
        place = self._brokers.get(node_id)
        if place is None:
            raise UpstreamUnavailable(f"broker {node_id} is not there")
        try:
            return await self._connections.ask(
                place, request, response, lane=lane, limit_ms=limit_ms or self._limit_ms, sent=sent
            )
        except UpstreamUnavailable:
            self.look_soon()  # it may be elsewhere by now
            raise

    async def ask_coordinator(
        self,
        group_id: str,
        request: Any,  # noqa: ANN401 -- any of kio's requests
        response: type[R],
        *,
        error_of: ErrorOf[R],
        lane: Hashable = 0,
        limit_ms: int | None = None,
        retry_ms: int = REQUEST_LIMIT_MS,
        sent: Callable[[], None] = ignore,
    ) -> R:
        """The answer of the group's coordinator, with whatever error but those after which one asks again.

        These, and what had no effect, are tried again within `retry_ms`; with 0 the first attempt is the only one.
        What may have had an effect is never sent twice. Raises as `ask` does, UpstreamRefused too when the coordinator
        may not be looked up.
        """

        async def attempt() -> R:
            node_id = await self.coordinator(group_id)
            try:
                answer = await self.ask(node_id, request, response, lane=lane, limit_ms=limit_ms, sent=sent)
            except UpstreamUnavailable:
                self.forget_coordinator(group_id)
                raise
            if (error := error_of(answer)) in MOVED:
                self.forget_coordinator(group_id)
                raise UpstreamUnavailable(f"broker {node_id} says {error.name.upper()} for group {group_id}")
            return answer

        return await AsyncRetrying(
            retry=retry_if_exception(_had_no_effect),
            wait=wait_random_exponential(multiplier=0.02, max=1.0),
            stop=stop_after_delay(retry_ms / 1000),
            reraise=True,
        )(attempt)

    def forget_coordinator(self, group_id: str) -> None:
        """Ask the next time who coordinates the group."""
        self._coordinators.pop(group_id, None)

    async def coordinator(self, group_id: str) -> int:
        """The node id of the group's coordinator, as far as is known. Raises as `ask_coordinator`."""
        if (known := self._coordinators.get(group_id)) is not None:
            return known
        request = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=(group_id,))
        (found,) = (await self._ask_any(request, FindCoordinatorResponse)).coordinators
        if found.error_code is not ErrorCode.none:
            what = f"who coordinates group {group_id}: {found.error_code.name.upper()}"
            if found.error_code.retriable:
                raise UpstreamUnavailable(what)
            raise UpstreamRefused(what, found.error_code)
        if len(self._coordinators) >= COORDINATORS_KEPT:
            self._coordinators.clear()  # they are asked for again; clients may name any number of groups
        self._coordinators[group_id] = int(found.node_id)
        return int(found.node_id)

    async def _ask_any(self, request: Any, response: type[R]) -> R:  # noqa: ANN401 -- any of kio's requests
        """One question that changes nothing. Raises as `_first` does."""
        try:
            return await self._first(self._brokers.values(), lambda place: self._ask_at(place, request, response))
        except UpstreamError:
            self.look_soon()
            raise

    async def _first(self, among: Iterable[Place], ask: Callable[[Place], Coroutine[Any, Any, R]]) -> R:
        """The answer of the first broker that gives one; it is said once which ones before it do not let us in.

        Who was silent is hung up on, and asked last from then on: one that hangs delays one question.

        Raises UpstreamUnavailable, and UpstreamRefused when every one is there and refuses.
        """
        asked = await first_answer(sorted(among, key=self._silent.__contains__), ask, (UpstreamError,))
        refusals = [str(error) for error in asked.failed if isinstance(error, UpstreamRefused)]
        if asked.answer is not None:
            place, answer = asked.answer
            for silent in asked.silent:
                self._connections.hang_up(silent, QUESTIONS)
            self._silent = {*self._silent, *asked.silent} - {place}
            self._tell_refusals(refusals)
            return answer
        reasons = "; ".join(map(str, asked.failed))
        if refusals and len(refusals) == len(asked.failed):
            raise UpstreamRefused(reasons)
        raise UpstreamUnavailable(f"{NOBODY_ANSWERS}{reasons}")

    def _tell_refusals(self, refusals: list[str]) -> None:
        if refusals != self._refusals and refusals:
            log.warning("brokers refuse Muster, and others are asked instead", reasons="; ".join(refusals))
        self._refusals = refusals

    async def _ask_at(self, place: Place, request: Any, response: type[R]) -> R:  # noqa: ANN401 -- any of kio's requests
        return await self._connections.ask(place, request, response, lane=QUESTIONS, limit_ms=self._limit_ms)

    @property
    def asked_at(self) -> str:
        """The addresses that we begin with."""
        return ",".join(map(str, self._bootstrap))


def nobody_asks_for_ids(_ids: TopicIds) -> None:
    """While no topic is followed."""


def _had_no_effect(error: BaseException) -> bool:
    return isinstance(error, UpstreamUnavailable) and not isinstance(error, AnswerLost)
