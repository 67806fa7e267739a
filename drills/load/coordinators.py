"""Which address coordinates a group: looked up for all groups that ask at the same time, and remembered.

A client looks up one group at a time; a drill speaks for hundreds, whose lookups alone would keep the service busy.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import LinkError
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.first_answer import first_answer

LOOK_UP_EVERY_S: Final = 0.1
"""As clients do by default (retry.backoff.ms)."""

LOOK_UP_TIMEOUT_MS: Final = 5_000
GROUPS_AT_ONCE: Final = 100


class Coordinators:
    """See the module."""

    def __init__(self, connections: Connections, bootstrap: Sequence[BrokerAddress]) -> None:
        self._connections = connections
        self._bootstrap = bootstrap
        self._found: dict[str, BrokerAddress] = {}
        self._wanted: set[str] = set()
        self._round: asyncio.Task[None] | None = None

    async def of(self, group_id: str) -> BrokerAddress:
        """The group's coordinator; waits until there is one."""
        while (found := self._found.get(group_id)) is None:
            self._wanted.add(group_id)
            if self._round is None or self._round.done():
                self._round = asyncio.create_task(self._look_up(), name="look-up-coordinators")
            await asyncio.wait({self._round})
        return found

    def forget(self, group_id: str, address: BrokerAddress) -> None:
        """Look the coordinator up anew: this one did not answer, or is not it."""
        if self._found.get(group_id) == address:
            del self._found[group_id]

    async def close(self) -> None:
        """End a lookup that is under way."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    async def _look_up(self) -> None:
        """Ask for all that are wanted, once; then wait, so that the next round is not at once."""
        wanted, self._wanted = sorted(self._wanted), set()
        order = random.sample(self._bootstrap, len(self._bootstrap))
        for at, address in enumerate(order):  # each address is asked first for its share, as clients choose any
            share = wanted[at :: len(order)]
            others = [each for each in order if each != address]
            for first in range(0, len(share), GROUPS_AT_ONCE):
                await self._ask(share[first : first + GROUPS_AT_ONCE], [address, *others])
        if any(key not in self._found for key in wanted):
            await asyncio.sleep(LOOK_UP_EVERY_S)

    async def _ask(self, group_ids: Sequence[str], among: Sequence[BrokerAddress]) -> None:
        exchange = Exchange(FindCoordinatorRequest(coordinator_keys=tuple(group_ids)), FindCoordinatorResponse)

        async def ask(address: BrokerAddress) -> FindCoordinatorResponse:
            answer: FindCoordinatorResponse = await self._connections.ask(
                address, exchange, lane="look-up", timeout_ms=LOOK_UP_TIMEOUT_MS
            )
            return answer

        asked = await first_answer(among, ask, (LinkError,))
        if asked.answer is not None:
            self._found |= {
                each.key: BrokerAddress(each.host, each.port)
                for each in asked.answer[1].coordinators
                if each.error_code is ErrorCode.none
            }
