"""Muster's link to the upstream cluster: its brokers, its group coordinators, requests and their errors.

Notifies listeners of brokers and topic ids, looks up coordinators, and retries. Knows nothing of a request except how
to read the error in its response. Connections to a cluster are in `events/kafka/`.

    LinkError, TryAgain, AnswerLost    as in events/kafka/errors.py
    UpstreamRefused                    as in errors.py: a retry cannot succeed
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.static.primitive import i8
from tenacity import AsyncRetrying, retry_if_exception, wait_random_exponential

from muster.coordinator.clock import SystemClock
from muster.coordinator.group.extensions import Unheard
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.observability.metrics import UPSTREAM_ERRORS, UpstreamErrorKind
from muster.coordinator.tasks import on_failure
from muster.coordinator.upstream.cluster_outage import NOBODY_ANSWERS, UPSTREAM, ClusterOutage
from muster.coordinator.upstream.coordinators import GroupCoordinators
from muster.coordinator.upstream.errors import UpstreamRefused, connection_error
from muster.coordinator.upstream.security import UpstreamSecurity
from muster.events.kafka.addresses import BrokerAddress, KnownBrokers, read_servers
from muster.events.kafka.connections import OtherCluster, ignore
from muster.events.kafka.errors import COORDINATOR_MOVED, AnswerLost, LinkError, OwnShortage, TryAgain
from muster.events.kafka.exchange import Exchange, NotOffered
from muster.events.kafka.link import ClusterLink, Versions
from muster.events.kafka.metadata import ClusterView, topic_id_of

R = TypeVar("R")
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Brokers = Mapping[int, tuple[str, int]]
"""The live brokers: (host, port) by node id."""
TopicIds = Mapping[str, UUID | ErrorCode]
"""Topic ids by name, or an error in place of one (`none` from brokers without topic ids)."""
TopicSizes = Mapping[str, int | None]
"""Partition counts of topics, by name; None after an error."""
ErrorOf = Callable[[R], ErrorCode]
"""Returns the top-level error of a response."""

REQUEST_TIMEOUT_MS: Final = 10_000
METADATA_MAX_AGE_MS: Final = 30_000
REQUIRED_VERSIONS: Final[Mapping[str, tuple[int, int]]] = {
    "Metadata": (3, 12),
    "FindCoordinator": (10, 4),
    "JoinGroup": (11, 9),
    "Heartbeat": (12, 4),
    "LeaveGroup": (13, 5),
    "SyncGroup": (14, 5),
    "DescribeGroups": (15, 5),
    "ListGroups": (16, 4),
}
"""API keys and versions that every broker must offer, as Kafka 3.2 and newer do."""
_CLOCK: Final = SystemClock()
_GROUP: Final = i8(0)  # the key_type of FindCoordinator


class UpstreamLink(ClusterLink):
    """Sends requests to the upstream cluster. `give_up` is called on an internal error that ends a background task."""

    def __init__(
        self,
        bootstrap: str,
        security: UpstreamSecurity | None = None,
        *,
        give_up: Callable[[Exception], None],
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        metadata_max_age_ms: int = METADATA_MAX_AGE_MS,
        monotonic_ms: Callable[[], int] = _CLOCK.monotonic_ms,
        cluster: str = UPSTREAM,
        known_brokers: KnownBrokers | None = None,
    ) -> None:
        """`bootstrap`: HOST:PORT, comma-separated. Raises UpstreamRefused if it cannot be parsed.

        `cluster`: its name in log lines, if it is not the sidecar's upstream. `known_brokers`: shared with other links
        of the process.
        """
        try:
            servers = read_servers(bootstrap)
        except ValueError as error:
            raise UpstreamRefused(str(error)) from error
        super().__init__(
            servers,
            (security or UpstreamSecurity()).kafka_security(),
            ClusterView(),
            connect_timeout_ms=request_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            known=known_brokers,
        )
        self._give_up = give_up
        self.outage = ClusterOutage(self.asked_at, monotonic_ms, cluster)
        self._foreign = LogThrottle(monotonic_ms)
        self._watchers: list[Callable[[Brokers], None]] = []
        self._watched_topics: tuple[str, ...] = ()
        self._tell_ids: Callable[[TopicIds], None] = ignore_topic_ids
        self._counted_topics: Callable[[], Sequence[str]] = tuple
        self._tell_counts: Callable[[TopicSizes], None] = ignore_counts
        self._monotonic_ms = monotonic_ms
        self._coordinators = GroupCoordinators(monotonic_ms)
        self.heard, self.learn_coordinator = self._coordinators.heard, self._coordinators.learn
        self._refusals: list[str] = []
        self._refreshed = asyncio.Event()
        self.api_versions: Versions = {}
        """The ApiVersions of one broker, from the opening of the link."""

    async def open(self) -> None:
        """Find the cluster. Raises TryAgain, or UpstreamRefused if a retry cannot help."""
        await self._ask_metadata()
        self.api_versions = self.api_versions or await self.versions()
        for name, (key, version) in REQUIRED_VERSIONS.items():
            if not self.offers(key, version):
                between = self.api_versions.get(key)
                offered = f"lacks {name}" if between is None else f"offers {name} v{between[0]} to v{between[1]}"
                raise UpstreamRefused(f"the upstream broker {offered}, v{version} is needed: Kafka 3.2 or newer")
        self._start_refreshing().add_done_callback(on_failure(self._give_up))

    def offers(self, api_key: int, version: int) -> bool:
        """Return whether the cluster offers this version of the API."""
        between = self.api_versions.get(api_key)
        return between is not None and between[0] <= version <= between[1]

    # ---- the brokers ---------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty until the cluster has been found."""
        return self._view.cluster_id or ""

    def brokers(self) -> Brokers:
        """Return the live brokers, from the last Metadata response."""
        return {node_id: (address.host, address.port) for node_id, address in self._view.brokers.items()}

    def on_brokers(self, tell: Callable[[Brokers], None]) -> None:
        """Call `tell` whenever the brokers have changed."""
        self._watchers.append(tell)

    def on_topic_ids(self, topics: Sequence[str], tell: Callable[[TopicIds], None]) -> None:
        """Call `tell` with the ids of these topics after each Metadata response."""
        self._watched_topics = tuple(topics)
        self._tell_ids = tell

    def on_partitions(self, topics: Callable[[], Sequence[str]], tell: Callable[[TopicSizes], None]) -> None:
        """Also name these topics in each Metadata request, and call `tell` with their partition counts."""
        self._counted_topics, self._tell_counts = topics, tell

    async def refresh(self) -> None:
        """Request Metadata now, and return after the response. Raises TryAgain."""
        self._refreshed.clear()
        self.refresh_soon()
        try:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                await self._refreshed.wait()
        except TimeoutError as error:
            raise TryAgain(f"no broker answers Metadata: {self.asked_at}") from error

    def _topics(self) -> Collection[str]:
        return {*self._watched_topics, *self._counted_topics()}

    async def _periodic_refresh(self) -> None:
        self.outage.asks()
        try:
            await self._ask_metadata()
        except LinkError as error:
            _count(error)
            self.outage.failed(error)
            raise

    def _apply_metadata(self, answer: Any) -> None:  # noqa: ANN401 -- MetadataResponse, in a version
        self.outage.answered()
        before = self._view.brokers
        self._view.learn_brokers(answer)
        topics = {str(topic.name): topic for topic in answer.topics}
        watched = [topics[name] for name in self._watched_topics if name in topics]
        self._tell_ids({str(topic.name): topic_id_of(topic) or topic.error_code for topic in watched})
        self._tell_counts({name: None if each.error_code else len(each.partitions) for name, each in topics.items()})
        self._refreshed.set()
        if self._view.brokers != before:
            for tell in self._watchers:
                tell(self.brokers())

    def _refused_by_some(self, refusals: Sequence[LinkError]) -> None:
        """Log which brokers refuse Muster, when that has changed."""
        told = list(map(str, refusals))
        if told != self._refusals and told:
            log.warning("brokers refuse Muster, trying others", reasons="; ".join(told))
        self._refusals = told

    def _explained(self, address: BrokerAddress, error: Exception) -> LinkError:
        match error:
            case NotOffered():
                return UpstreamRefused(f"the broker at {address} does not offer {error}")
            case OtherCluster():
                if self._foreign.due(address) is not None:
                    log.error(
                        "ignoring a broker that belongs to another cluster", address=str(address), reason=str(error)
                    )
                return TryAgain(str(error))
            case AnswerLost():
                return AnswerLost(f"{error}: does it require credentials?")
        return connection_error(address, error, self._security)

    # ---- asking --------------------------------------------------------------------------------------

    async def ask(
        self,
        node_id: int,
        request: Any,  # noqa: ANN401 -- any of kio's requests
        response: type[R],
        *,
        lane: Hashable = 0,
        timeout_ms: int | None = None,
        sent: Callable[[], None] = ignore,
    ) -> R:
        """Send a request to one broker and return its response, whatever its error. `sent` is called once it was sent.

        Raises TryAgain, AnswerLost and UpstreamRefused.
        """
        if node_id not in self._view.brokers:
            await self.refresh()
        asked_ms, exchange = self._monotonic_ms(), Exchange(request, response)
        try:
            answer: R = await self.ask_node(node_id, exchange, lane=lane, timeout_ms=timeout_ms, sent=sent)
        except LinkError as error:
            _count(error)
            raise
        self.heard[node_id].answered(asked_ms)
        return answer

    async def ask_coordinator(
        self,
        group_id: str,
        request: Any,  # noqa: ANN401 -- any of kio's requests
        response: type[R],
        *,
        error_of: ErrorOf[R],
        lane: Hashable = 0,
        timeout_ms: int | None = None,
        retry_ms: int = REQUEST_TIMEOUT_MS,
        sent: Callable[[], None] = ignore,
    ) -> R:
        """Send a request to the group's coordinator; retry it if that has moved or is loading.

        A request that failed without effect is retried too, within `retry_ms`; with 0 there is one attempt. A request
        that may have taken effect is never sent twice. Raises as `ask` does, and UpstreamRefused when the lookup of the
        coordinator is refused.
        """

        async def attempt() -> R:
            try:
                node_id = await self.coordinator(group_id)
                answer = await self.ask(node_id, request, response, lane=lane, timeout_ms=timeout_ms, sent=sent)
            except TryAgain as failed:
                self._coordinators.failed(group_id, failed)
                raise
            if (error := error_of(answer)) in COORDINATOR_MOVED:
                self._coordinators.moved(group_id, error)
                raise TryAgain(f"broker {node_id} returned {error.name.upper()} for group {group_id}")
            return answer

        began_ms = self._monotonic_ms()
        return await AsyncRetrying(
            retry=retry_if_exception(_had_no_effect),
            wait=wait_random_exponential(multiplier=0.02, max=1.0),
            stop=lambda _: self._monotonic_ms() - began_ms >= retry_ms,
            reraise=True,
        )(attempt)

    def forget_coordinator(self, group_id: str) -> None:
        """Look up the group's coordinator again when it is next needed."""
        self._coordinators.forget(group_id)

    def known_coordinator(self, group_id: str) -> int | None:
        """Return the coordinator's node id if it is cached."""
        return self._coordinators.known(group_id)

    async def coordinator(self, group_id: str) -> int:
        """Return the coordinator's node id, cached or looked up. Raises as `ask_coordinator` does."""
        found = (await self.coordinators([group_id]))[group_id]
        if isinstance(found, LinkError):
            raise found
        return found

    async def coordinators(self, group_ids: Collection[str]) -> Mapping[str, int | LinkError]:
        """Return each group's coordinator, or why it is unknown. Raises TryAgain, UpstreamRefused."""
        found: dict[str, int | LinkError] = {
            group_id: node_id for group_id in group_ids if (node_id := self._coordinators.known(group_id)) is not None
        }
        unknown = tuple(group_id for group_id in group_ids if group_id not in found)
        if not unknown:
            return found
        request = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=unknown)
        try:
            answer: FindCoordinatorResponse = await self.ask_any(Exchange(request, FindCoordinatorResponse))
        except LinkError:
            self.refresh_soon()
            raise
        for each in answer.coordinators:
            if each.error_code is ErrorCode.none:
                found[str(each.key)] = int(each.node_id)
                self._coordinators.learn(str(each.key), int(each.node_id))
            else:
                what = f"who coordinates group {each.key}: {each.error_code.name.upper()}"
                retriable = each.error_code.retriable
                found[str(each.key)] = TryAgain(what) if retriable else UpstreamRefused(what, each.error_code)
        return found

    def broker_not_reached(self, node_id: int | None) -> None:
        """Note that the broker connection for a client could not be opened; None: it was for any bootstrap broker."""
        if node_id is not None:
            self._coordinators.note_broker_outage(node_id)
        self.refresh_soon()

    def last_coordinator_outage(self, group_id: str) -> Unheard | None:
        """Return when the group's coordinator was last unreachable or loading; None: never."""
        return self._coordinators.last_outage(group_id)

    async def ask_any(self, request: Any) -> Any:  # noqa: ANN401 -- a request and its response
        """Send a read-only request to any broker. Raises TryAgain, or UpstreamRefused if every broker refuses."""
        try:
            return await super().ask_any(request)
        except OwnShortage:
            raise
        except TryAgain as error:
            raise TryAgain(f"{NOBODY_ANSWERS}{error}") from error


def ignore_topic_ids(_ids: TopicIds) -> None:
    """The listener until `on_topic_ids` is called."""


def ignore_counts(_counts: TopicSizes) -> None:
    """The listener until `on_partitions` is called."""


def _count(error: LinkError) -> None:
    kind = UpstreamErrorKind.REFUSED
    if isinstance(error, TryAgain):
        kind = UpstreamErrorKind.ANSWER_LOST if isinstance(error, AnswerLost) else UpstreamErrorKind.UNREACHABLE
    UPSTREAM_ERRORS.labels(kind.value).inc()


def _had_no_effect(error: BaseException) -> bool:
    return isinstance(error, TryAgain) and not isinstance(error, AnswerLost)
