"""The load: all groups of a drill. They form, and their members send requests until the drill stops them.

Knows nothing of the fault, nor of how the responses are evaluated.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from muster.drills.load.asking import Asking, Clock, Coordinators
from muster.drills.load.member import Member
from muster.drills.measuring.answers import Acknowledged, Asked, Kind
from muster.drills.names import Names
from muster.drills.plan import Load as Planned
from muster.drills.plan import ServiceFailed
from muster.events.kafka.addresses import BrokerAddress, read_servers
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import LinkError, LinkRefused, TryAgain
from muster.events.kafka.exchange import NotOffered
from muster.events.kafka.failures import describe_failure, is_refusal
from muster.events.kafka.security import KafkaSecurity

CLIENT_ID: Final = "muster-drill"
CONNECT_TIMEOUT_MS: Final = 5_000
POLL_S: Final = 0.05
STOP_TIMEOUT_S: Final = 15.0

Progress = Callable[[int, int], None]
"""Called with the number of groups that have formed, and the number of all groups."""


class Load:
    """See the module. `topic`: the topic that the members subscribe to, with a partition for each member of a group."""

    def __init__(
        self, bootstrap: str, planned: Planned, names: Names, clock: Clock, *, topic: str, security: KafkaSecurity
    ) -> None:
        self._bootstrap = bootstrap
        self._connections = Connections(
            security, connect_timeout_ms=CONNECT_TIMEOUT_MS, explain=explained, client_id=CLIENT_ID
        )
        self._coordinators = Coordinators(self._connections, read_servers(bootstrap))
        self._asking = Asking(self._connections, self._coordinators, clock)
        self.acknowledged = Acknowledged()
        self.groups: Mapping[str, Sequence[Member]] = {
            group_id: [
                Member(
                    self._asking,
                    self.acknowledged,
                    planned,
                    group_id=group_id,
                    number=number,
                    static=static,
                    restarts=static and number == planned.members - 1,
                    topic=topic,
                )
                for number in range(planned.members)
            ]
            for group_id, static in group_ids(planned, names)
        }
        self._stopping = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []

    @property
    def members(self) -> list[Member]:
        return [member for group in self.groups.values() for member in group]

    @property
    def asked(self) -> Sequence[Asked]:
        """The requests that have ended so far; after `stop`, all requests."""
        return self._asking.asked

    async def form(self, progress: Progress, *, within_s: float) -> None:
        """Let all members join, and wait until no group rebalances any more. Raises ServiceFailed."""
        for member in self.members:
            self._running.append(asyncio.create_task(self._be_member(member), name=f"{member.group_id}-{member.name}"))
        try:
            async with asyncio.timeout(within_s):
                while (formed := self._formed()) < len(self.groups):
                    progress(formed, len(self.groups))
                    self._raise_if_failed()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ServiceFailed(
                f"of {len(self.groups)} groups {self._formed()} formed within {within_s:g} s at {self._bootstrap}: see"
                " its /readyz and its log; or give a drill fewer --groups, or more time with --within"
            ) from None
        progress(len(self.groups), len(self.groups))
        for member in self.members:
            member.measure()

    async def answered_since(self, at_ms: int, *, within_s: float, what: str) -> None:
        """Wait until every request that began before this time has been answered. Raises ServiceFailed."""
        try:
            async with asyncio.timeout(within_s):
                while self._asking.waits_since_before(at_ms):
                    self._raise_if_failed()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ServiceFailed(f"members still wait for answers {within_s:g} s after {what}") from None

    async def measured_since(self, at_ms: int, *, within_s: float) -> None:
        """Wait until a heartbeat and a commit that began after this time were answered. Raises ServiceFailed."""
        try:
            async with asyncio.timeout(within_s):
                while not self._kinds_since(at_ms) >= {Kind.HEARTBEAT, Kind.COMMIT}:
                    self._raise_if_failed()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            missing = sorted({Kind.HEARTBEAT, Kind.COMMIT} - self._kinds_since(at_ms))
            raise ServiceFailed(f"no {' and no '.join(missing)} were answered within {within_s:g} s") from None

    def _kinds_since(self, at_ms: int) -> set[Kind]:
        return {each.kind for each in self.asked if each.began_ms >= at_ms and each.ended_ms is not None}

    async def stop(self) -> None:
        """Send no new requests, and wait for those in progress, up to a timeout. Raises ServiceFailed."""
        self._stopping.set()
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_TIMEOUT_S)
        self._raise_if_failed()
        await self._give_up()

    async def close(self) -> None:
        """Stop all members, and close all connections."""
        await self._give_up()
        await self._coordinators.close()
        await self._connections.close()

    # ---- the members --------------------------------------------------------------------------------

    async def _be_member(self, member: Member) -> None:
        await member.take_part()
        await member.run(self._stopping)

    async def _give_up(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _raise_if_failed(self) -> None:
        for task in self._running:
            if task.done() and (error := task.exception()) is not None:
                raise error

    def _formed(self) -> int:
        """Return the number of groups whose members are all in one generation, each with its own partition."""
        return sum(_has_formed(group) for group in self.groups.values())


def group_ids(planned: Planned, names: Names) -> list[tuple[str, bool]]:
    """Return the ids of the groups, and whether each has static members. The ids spread over all partitions."""
    numbers = range(planned.groups)
    return [(names.group(number // 2, static=number % 2 == 0), number % 2 == 0) for number in numbers]


def _has_formed(group: Sequence[Member]) -> bool:
    generations = {member.generation_id for member in group if not member.restarts} or {0}
    partitions = {member.partition for member in group}
    return len(generations) == 1 and -1 not in generations and partitions == set(range(len(group)))


def explained(address: BrokerAddress, error: Exception) -> LinkError:
    """Return the error for a failed connection: LinkRefused if a retry cannot succeed, TryAgain otherwise."""
    is_final = isinstance(error, NotOffered) or is_refusal(error)
    return (LinkRefused if is_final else TryAgain)(f"{address}: {describe_failure(error)}")
