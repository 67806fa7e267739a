"""The brokers of a cluster: keeps track of them, and sends each request to the right one.

Refreshes Metadata, and sends requests that any broker can answer. Knows nothing of the purpose of requests, or of the
wording of failures. Sockets are in connections.py; Metadata is read in metadata.py.

How it works: one task sends Metadata every few seconds, and immediately when a request has failed or a connection was
lost. A request that any broker can answer is hedged (first_answer.py); connections to a silent broker are closed, and
it is asked last from then on, so that a broker that hangs delays one request. If all of them are silent or fail, the
link asks brokers that it or another link of the process has seen earlier (addresses.py). Each user of a cluster has a
subclass with its topics, its requests and its errors.

If a Muster, sidecar or standalone, responds where a Kafka cluster is expected, it is recognized: it describes a config
of its own for every group, and a Kafka broker has none of that name.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, Final

from muster.events.kafka.addresses import BrokerAddress, KnownBrokers
from muster.events.kafka.connections import Connections, ignore
from muster.events.kafka.errors import LinkError, LinkRefused, OwnShortage, TryAgain
from muster.events.kafka.exchange import Preparable
from muster.events.kafka.first_answer import first_answer
from muster.events.kafka.metadata import ClusterView, MetadataQuestion
from muster.events.kafka.requests import api_versions, describe_configs
from muster.events.kafka.security import KafkaSecurity

QUESTIONS: Final = "questions"
"""The lane of requests that any broker can answer."""
METADATA_RETRY_MS: Final = 1_000
"""The pause before Metadata is sent again while no broker responds."""
METADATA_BACKOFF_S: Final = 0.1

Versions = dict[int, tuple[int, int]]
"""The first and the last version that a broker offers, by API key."""


class ClusterLink:
    """Sends requests to a cluster. They raise TryAgain if it cannot be reached, and the errors of `_explained`."""

    def __init__(
        self,
        bootstrap: Sequence[BrokerAddress],
        security: KafkaSecurity,
        view: ClusterView,
        *,
        connect_timeout_ms: int,
        request_timeout_ms: int,
        metadata_max_age_ms: int,
        known: KnownBrokers | None = None,
    ) -> None:
        """`known`: addresses shared with other links of the process."""
        self._known = KnownBrokers() if known is None else known
        self._bootstrap = bootstrap
        self._security = security
        self._view = view
        self._connect_timeout_ms = connect_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self._metadata_wanted = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        self._silent: set[BrokerAddress] = set()
        """The brokers that did not respond while another one did."""
        self.last_failure: str | None = None
        """The reason why a request last failed; None while none has."""
        self._connections = self._new_connections()

    def _new_connections(self) -> Connections:
        return Connections(
            self._security,
            connect_timeout_ms=self._connect_timeout_ms,
            explain=self._explained,
            lost=self.refresh_soon,
        )

    async def close(self) -> None:
        """Close all connections."""
        refreshing, self._refreshing = self._refreshing, None
        if refreshing is not None:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)
        await self._connections.close()

    @property
    def asked_at(self) -> str:
        """The bootstrap addresses."""
        return ",".join(map(str, self._bootstrap))

    # ---- for subclasses --------------------------------------------------------------------------------

    def _explained(self, address: BrokerAddress, error: Exception) -> LinkError:
        """Build the error for a failure, like `connections.Explain`."""
        raise NotImplementedError

    def _topics(self) -> Collection[str]:
        """Return the topics of Metadata requests."""
        return ()

    def _apply_metadata(self, answer: Any) -> None:  # noqa: ANN401 -- MetadataResponse, in a version
        """Apply a response to Metadata."""
        self._view.learn_brokers(answer)

    async def _periodic_refresh(self) -> None:
        """Refresh the brokers periodically. Raises like `ask_any`."""
        await self._ask_metadata()

    def _refused_by_some(self, refusals: Sequence[LinkError]) -> None:
        """Note the brokers that refused us before another one responded; may be empty."""

    # ---- the brokers -----------------------------------------------------------------------------------

    def refresh_soon(self) -> None:
        """Refresh soon, because a broker was not reached or has disconnected."""
        self._metadata_wanted.set()

    async def _ask_metadata(self) -> None:
        """Refresh the brokers now. Raises like `ask_any`."""
        self._apply_metadata(await self.ask_any(MetadataQuestion(self._topics())))
        self._connections.cluster_id = cluster_id = self._view.cluster_id
        if cluster_id is not None:
            self._known.note(cluster_id, self._security.security_protocol, self._view.brokers.values())
        known = {*self._view.brokers.values(), *self._bootstrap}
        self._connections.forget_others(known)
        self._silent &= known

    def _start_refreshing(self) -> asyncio.Task[None]:
        """Start refreshing the brokers; the task ends only by a bug of ours."""
        self._refreshing = asyncio.create_task(self._refresh_forever(), name="kafka-metadata")
        return self._refreshing

    async def _refresh_forever(self) -> None:
        again_after_ms = self._metadata_max_age_ms
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_after_ms / 1000):
                    await self._metadata_wanted.wait()
            self._metadata_wanted.clear()
            try:
                await self._periodic_refresh()
                again_after_ms = self._metadata_max_age_ms
            except LinkError:  # callers that need the brokers get the error from their own attempt
                again_after_ms = METADATA_RETRY_MS
            await asyncio.sleep(METADATA_BACKOFF_S)  # requests made in the meantime are served by the next round

    # ---- asking ----------------------------------------------------------------------------------------

    async def ask_node(
        self,
        node_id: int,
        request: Preparable,
        *,
        lane: Hashable = 0,
        timeout_ms: int | None = None,
        sent: Callable[[], None] = ignore,
    ) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """Send a request to one broker; `sent` is called once it is sent. `timeout_ms` overrides the link's timeout."""
        address = self._view.brokers.get(node_id)
        if address is None:
            self.refresh_soon()
            raise TryAgain(f"broker {node_id} is not there")
        try:
            return await self._connections.ask(
                address, request, lane=lane, timeout_ms=timeout_ms or self._request_timeout_ms, sent=sent
            )
        except TryAgain as error:
            self.refresh_soon()  # the broker may have another address by now
            self.last_failure = f"broker {node_id}: {error}"
            raise

    async def ask_any(self, request: Preparable) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """Send a request that may be sent twice; return the response of the fastest broker.

        Raises errors other than TryAgain only if all brokers can be reached and fail that way.
        """
        known = list(self._view.brokers.values())
        random.shuffle(known)  # one may lag behind
        among = sorted(dict.fromkeys([*known, *self._bootstrap]), key=self._silent.__contains__)
        former = self._known.of(self._view.cluster_id, self._security.security_protocol, self._bootstrap)
        failed: list[LinkError] = []  # former brokers that are unreachable are not reported

        async def ask(address: BrokerAddress) -> Any:  # noqa: ANN401 -- the response that belongs to it
            try:
                timeout_ms = self._request_timeout_ms
                return await self._connections.ask(address, request, lane=QUESTIONS, timeout_ms=timeout_ms)
            except LinkError as error:
                if address in among:
                    failed.append(error)
                raise

        asked = (await first_answer(dict.fromkeys([*among, *former]), ask, (LinkError,)))._replace(failed=failed)
        if asked.answer is None:
            self.last_failure = asked.reasons
            may_recover = any(isinstance(error, TryAgain) for error in asked.failed)
            is_ours = asked.all_failed_as(OwnShortage)
            raise (TryAgain if may_recover and not is_ours else type(asked.failed[0]))(asked.reasons)
        address, answer = asked.answer
        for silent in asked.silent:
            self._connections.hang_up(silent, lambda lane: lane == QUESTIONS)
        self._silent = {*self._silent, *asked.silent} - {address}
        self._refused_by_some([error for error in asked.failed if isinstance(error, LinkRefused)])
        return answer

    async def versions(self, node_id: int | None = None) -> Versions:
        """Return the versions that this broker offers; None: any broker."""
        request = api_versions()
        response = await (self.ask_any(request) if node_id is None else self.ask_node(node_id, request))
        return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


CONFIG_OF_A_MUSTER: Final = "members.coordinator"
_GROUP: Final = 32
_ANY_GROUP: Final = "muster"


async def is_muster(link: ClusterLink) -> bool:
    """Ask any broker whether it is a Muster. Raises like `link.ask_any`.

    Brokers before Kafka 4.0, and those where our principal may not describe configs of groups, return an error and so
    count as Kafka brokers; so would a sidecar in front of them.
    """
    response = await link.ask_any(describe_configs(_GROUP, _ANY_GROUP, [CONFIG_OF_A_MUSTER]))
    return any(config.name == CONFIG_OF_A_MUSTER for result in response.results for config in result.configs)
