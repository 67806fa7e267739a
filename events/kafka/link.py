"""The way to a cluster: who is there, and each request to the right broker.

What belongs here: keeping the brokers known, and questions that any broker can answer. What it must not know: what the
requests are for, and in which words a failure is told. Sockets are in connections.py; what a cluster says of itself is
read in metadata.py.

How it works: one task asks for Metadata: every few seconds, and at once when a request has failed or a connection was
lost. A question that any broker can answer is put to another one too when the first is silent; who was silent is hung
up on, and asked last from then on, so that one that hangs delays one question. Each user of a cluster has a class
below this one: what it hears, what it asks for, and what its failures are told as.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, Final

from aiokafka.protocol.admin import ApiVersionRequest

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.connections import Connections, ignore
from muster.events.kafka.errors import LinkError, LinkRefused, TryAgain
from muster.events.kafka.first_answer import first_answer
from muster.events.kafka.metadata import ClusterView, MetadataQuestion
from muster.events.kafka.security import KafkaSecurity

QUESTIONS: Final = "questions"
"""The lane of what any broker may answer."""
METADATA_AGAIN_AFTER_MS: Final = 1_000
"""While nobody answers."""
METADATA_BACKOFF_S: Final = 0.1

Versions = dict[int, tuple[int, int]]
"""By API key: the first and the last version that a broker offers."""


class ClusterLink:
    """See the module. What is asked raises TryAgain when the cluster is not there, and what `_explained` returns."""

    def __init__(
        self,
        bootstrap: Sequence[BrokerAddress],
        security: KafkaSecurity,
        view: ClusterView,
        *,
        connect_timeout_ms: int,
        request_timeout_ms: int,
        metadata_max_age_ms: int,
    ) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._view = view
        self._connect_timeout_ms = connect_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self._metadata_wanted = asyncio.Event()
        self._keeping_fresh: asyncio.Task[None] | None = None
        self._silent: set[BrokerAddress] = set()
        """Who did not answer while another one did."""
        self._connections = self._new_connections()

    def _new_connections(self) -> Connections:
        return Connections(
            self._security,
            connect_timeout_ms=self._connect_timeout_ms,
            explain=self._explained,
            lost=self.look_soon,
        )

    async def close(self) -> None:
        """Hang up."""
        keeping_fresh, self._keeping_fresh = self._keeping_fresh, None
        if keeping_fresh is not None:
            keeping_fresh.cancel()
            await asyncio.gather(keeping_fresh, return_exceptions=True)
        await self._connections.close()

    @property
    def asked_at(self) -> str:
        """The addresses that we begin with."""
        return ",".join(map(str, self._bootstrap))

    # ---- what a user of the cluster says ---------------------------------------------------------------

    def _explained(self, address: BrokerAddress, error: Exception) -> LinkError:
        """As `connections.Explain` has it."""
        raise NotImplementedError

    def _topics(self) -> Collection[str]:
        """Which topics are asked for with the brokers."""
        return ()

    def _heard(self, answer: Any) -> None:  # noqa: ANN401 -- MetadataResponse, in a version
        """Take over what the cluster has told."""
        self._view.learn_brokers(answer)

    async def _look_again(self) -> None:
        """It is time to ask for the brokers again. Raises as `ask_any` does."""
        await self._look_around()

    def _refused_by_some(self, refusals: Sequence[LinkError]) -> None:
        """Another broker has answered, and these did not let us in before; perhaps none."""

    # ---- the brokers -----------------------------------------------------------------------------------

    def look_soon(self) -> None:
        """A broker was not reached, or has hung up: there may be an outage, or other brokers."""
        self._metadata_wanted.set()

    async def _look_around(self) -> None:
        """Ask for the brokers now. Raises as `ask_any` does."""
        self._heard(await self.ask_any(MetadataQuestion(self._topics())))
        self._connections.cluster_id = self._view.cluster_id
        known = {*self._view.brokers.values(), *self._bootstrap}
        self._connections.forget_others(known)
        self._silent &= known

    def _keep_fresh(self) -> asyncio.Task[None]:
        """From now on; the task ends by a bug of ours alone."""
        self._keeping_fresh = asyncio.create_task(self._look_around_for_ever(), name="kafka-metadata")
        return self._keeping_fresh

    async def _look_around_for_ever(self) -> None:
        again_after_ms = self._metadata_max_age_ms
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_after_ms / 1000):
                    await self._metadata_wanted.wait()
            self._metadata_wanted.clear()
            try:
                await self._look_again()
                again_after_ms = self._metadata_max_age_ms
            except LinkError:  # whoever needs the brokers hears of it by an attempt of its own
                again_after_ms = METADATA_AGAIN_AFTER_MS
            await asyncio.sleep(METADATA_BACKOFF_S)  # whoever asks meanwhile is answered by the next round

    # ---- asking ----------------------------------------------------------------------------------------

    async def ask_node(
        self,
        node_id: int,
        request: Any,  # noqa: ANN401 -- one of aiokafka's requests, or an Exchange
        *,
        lane: Hashable = 0,
        timeout_ms: int | None = None,
        sent: Callable[[], None] = ignore,
    ) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """One request to one broker; `sent` is told when it has left. `timeout_ms`: other than the link's."""
        address = self._view.brokers.get(node_id)
        if address is None:
            self.look_soon()
            raise TryAgain(f"broker {node_id} is not there")
        try:
            return await self._connections.ask(
                address, request, lane=lane, timeout_ms=timeout_ms or self._request_timeout_ms, sent=sent
            )
        except TryAgain:
            self.look_soon()  # it may be elsewhere by now
            raise

    async def ask_any(self, request: Any) -> Any:  # noqa: ANN401 -- a request and its response
        """One request that may be made twice, to whichever broker answers first.

        Raises what is worse than TryAgain only when all brokers are there and do.
        """
        known = list(self._view.brokers.values())
        random.shuffle(known)  # one may lag behind
        among = sorted(dict.fromkeys([*known, *self._bootstrap]), key=self._silent.__contains__)

        async def ask(address: BrokerAddress) -> Any:  # noqa: ANN401 -- the response that belongs to it
            return await self._connections.ask(address, request, lane=QUESTIONS, timeout_ms=self._request_timeout_ms)

        asked = await first_answer(among, ask, (LinkError,))
        if asked.answer is None:
            reasons = "; ".join(dict.fromkeys(map(str, asked.failed)))
            may_recover = any(isinstance(error, TryAgain) for error in asked.failed)
            raise (TryAgain if may_recover else type(asked.failed[0]))(reasons)
        address, answer = asked.answer
        for silent in asked.silent:
            self._connections.hang_up(silent, lambda lane: lane == QUESTIONS)
        self._silent = {*self._silent, *asked.silent} - {address}
        self._refused_by_some([error for error in asked.failed if isinstance(error, LinkRefused)])
        return answer

    async def versions(self, node_id: int | None = None) -> Versions:
        """What this broker offers; None: any."""
        request = ApiVersionRequest()
        response = await (self.ask_any(request) if node_id is None else self.ask_node(node_id, request))
        return {key: (first, last) for key, first, last in response.api_versions}
