"""All clients of a run: our own members, and those of libraries; which are served, and which are not. Knows nothing of
the faults.
"""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Final

import msgspec

from muster.drills.load.asking import Clock
from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from tests.chaos.ledger import Ledger
from tests.chaos.libraries import Java, Librdkafka
from tests.chaos.members import SESSIONS_MS, Client, Member, Offsets
from tests.chaos.service import LOG_PARTITIONS

GROUP: Final = "chaos-{}-{}-{}"

Library = Librdkafka | Java


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How much load there is."""

    groups: int = 8
    members: int = 4


USUAL: Final = Size()


class Load:
    """All clients: members of our own, and of libraries."""

    def __init__(
        self, bootstraps: Sequence[str], topic: str, ledger: Ledger, clock: Clock, size: Size, *libraries: Library
    ) -> None:
        self.ledger = ledger
        offsets = Offsets()
        self._clients = [Client(bootstrap, ledger, clock) for bootstrap in bootstraps]
        self.sessions_ms: dict[str, int] = {}
        self.members: list[Member] = []
        for number in range(size.groups):
            static, session_ms = number % 2 == 0, SESSIONS_MS[number // 2 % 2]
            group_id = _group_id(number, static=static)
            self.sessions_ms[group_id] = session_ms
            self.members += [
                Member(
                    self._clients[(number + at) % len(self._clients)],
                    offsets,
                    group_id=group_id,
                    number=at,
                    of=size.members,
                    static=static,
                    session_ms=session_ms,
                    topic=topic,
                )
                for at in range(size.members)
            ]
        self._libraries = libraries
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        living = [member.live for member in self.members]
        living += [each.live for each in self._libraries if isinstance(each, Librdkafka)]
        self._tasks = [asyncio.create_task(live(self._stopping)) for live in living]

    async def close(self) -> None:
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()
        for library in self._libraries:
            await asyncio.to_thread(library.close)

    def failures(self) -> list[str]:
        """The errors after which a client cannot continue."""
        ended = [repr(task.exception()) for task in self._tasks if task.done() and not task.cancelled()]
        return ended + [failure for library in self._libraries for failure in library.failures()]

    def unserved_since(self, since_ms: int) -> list[str]:
        """Name the clients that no request sent after this time has served, as text."""
        found = [f"{each.group_id} {each.name}" for each in self.members if not _is_served(each, since_ms)]
        groups: dict[str, list[Member]] = {}
        for member in self.members:
            groups.setdefault(member.group_id, []).append(member)
        found += [f"{group_id} is not one generation" for group_id, its in groups.items() if not _is_whole(its)]
        return found + [str(type(each).__name__) for each in self._libraries if not each.is_served_since(since_ms)]

    @property
    def generations(self) -> int:
        """The last generations of all groups, added up."""
        last: dict[str, int] = {}
        for member in self.members:
            last[member.group_id] = max(member.generation_id, last.get(member.group_id, 0))
        return sum(last.values())


def _is_served(member: Member, since_ms: int) -> bool:
    kinds = ("join",) if member.restarts else ("heartbeat", "commit")
    return all(member.served_ms.get(kind, 0) >= since_ms for kind in kinds)


def _is_whole(group: Sequence[Member]) -> bool:
    generations = {member.generation_id for member in group if not member.restarts}
    return len(generations) == 1 and {member.partition for member in group} == set(range(len(group)))


def _group_id(number: int, *, static: bool) -> str:
    """Return a group id such that the groups are on all partitions of the log: each owner of partitions owns groups."""
    names = (GROUP.format("static" if static else "dynamic", number, at) for at in count())
    return next(each for each in names if partition_for(GroupId(each), LOG_PARTITIONS) == number % LOG_PARTITIONS)
