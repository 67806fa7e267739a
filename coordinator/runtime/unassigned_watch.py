"""Partitions of subscribed topics that are assigned to nobody: looked for, told, and rebalanced for if a group says so.

Clients have TELL_AFTER_MS to notice by themselves that a topic has grown: somewhat more than their metadata.max.age.ms.
Then a line of the log, `muster status` and a metric tell it, once for an assignment. With
`members.unassigned.rebalance.delay.ms` the group is asked to rebalance (`group/unassigned.py`).

What belongs here: looking again and again, and since when. What it must not know: where partitions are counted. The
times begin anew at a takeover, so that nothing is asked for before the clients had theirs.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

import msgspec
import structlog

from muster.coordinator.group.commands import RebalanceUnassigned
from muster.coordinator.group.configs import UNASSIGNED_DELAY
from muster.coordinator.group.unassigned import Shares, is_news, may_rebalance, shares_of
from muster.coordinator.load.slices import Slices
from muster.coordinator.log_throttle import NamesThrottle
from muster.coordinator.observability.metrics import UNASSIGNED_PARTITIONS
from muster.coordinator.observability.status import UnassignedStatus
from muster.events.ids import GroupId
from muster.events.state import Group, TopicSize
from muster.ranges import ranges_of, ranges_text

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 10.0
TELL_AFTER_MS: Final = 360_000
"""Clients ask for their topics again after 5 minutes by default (metadata.max.age.ms)."""
TOPICS_MAX: Final = 10_000
"""The topics of all groups together whose partitions are counted; those of groups with the config come first."""
NUMBERS_MAX: Final = 10


class PartitionCounts(Protocol):
    """The numbers of partitions that topics have."""

    def want(self, topics: Sequence[str]) -> None:
        """Count the partitions of these topics from now on, and of no others."""

    def of(self, topic: str) -> int | None:
        """Return how many partitions the topic has; None: not known."""


class WatchedGroups(Protocol):
    """The groups of this process, as of `Runtime`."""

    def groups(self) -> Iterable[Group]: ...

    def rebalance_unassigned(self, command: RebalanceUnassigned) -> None: ...


class _Lack(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of a topic, which has `partitions`, that nobody is assigned since `since_ms` (monotonic)."""

    generation_id: int
    partitions: int
    since_ms: int


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of a group as of one of its events."""

    incarnation: int
    seq: int
    shares: Shares | None


class UnassignedWatch:
    """See the module. `unassigned`: what is told now; any thread may read it."""

    def __init__(
        self, groups: WatchedGroups, counts: PartitionCounts, slices: Slices, monotonic_ms: Callable[[], int]
    ) -> None:
        self._groups = groups
        self._counts = counts
        self._slices = slices
        self._monotonic_ms = monotonic_ms
        self._throttle = NamesThrottle(monotonic_ms)
        self._known: dict[GroupId, _Known] = {}
        self._lacks: dict[GroupId, dict[str, _Lack]] = {}
        self._told: set[tuple[GroupId, str, _Lack]] = set()
        self.unassigned: tuple[UnassignedStatus, ...] = ()
        UNASSIGNED_PARTITIONS.set(0)

    async def keep_looking(self) -> None:
        """Look every few seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Look at all groups once."""
        known: dict[GroupId, _Known] = {}
        lacks: dict[GroupId, dict[str, _Lack]] = {}
        first: dict[str, None] = {}
        others: dict[str, None] = {}
        told: list[UnassignedStatus] = []
        said: set[tuple[GroupId, str, _Lack]] = set()
        pace = self._slices.pace()
        for group in self._groups.groups():
            if not may_rebalance(group):
                continue
            each = known[group.group_id] = self._shares_of(group)
            shares = each.shares
            await pace.worked(1 if each is self._known.get(group.group_id) else 1 + len(group.members))
            if shares is None:
                continue
            topics = {*shares.subscribed, *shares.kept, *(asked.topic for asked in group.config.rebalanced_for)}
            (first if group.config.unassigned_rebalance_delay_ms else others).update(dict.fromkeys(topics))
            of_group = dict(self._lacking(group, shares))
            if of_group:
                lacks[group.group_id] = of_group
                told += self._tell(group, shares, of_group, said)
            self._ask(group, shares, of_group)
            await pace.worked(len(topics))
        self._known, self._lacks, self._told = known, lacks, said
        self.unassigned = tuple(told)
        UNASSIGNED_PARTITIONS.set(sum(each.partitions for each in told))
        self._counts.want(tuple(islice({**first, **others}, TOPICS_MAX)))

    def _shares_of(self, group: Group) -> _Known:
        known = self._known.get(group.group_id)
        if known is not None and (known.incarnation, known.seq) == (group.incarnation, group.seq):
            return known
        return _Known(incarnation=group.incarnation, seq=group.seq, shares=shares_of(group))

    def _lacking(self, group: Group, shares: Shares) -> Iterator[tuple[str, _Lack]]:
        """Yield the topics that need a rebalance, and since when. A new assignment is a new chance for the leader."""
        before = self._lacks.get(group.group_id, {})
        for topic in sorted(shares.subscribed | shares.kept):
            partitions = self._counts.of(topic) or 0
            if shares.needs_rebalance(topic, partitions):
                found, generation_id = before.get(topic), group.image.assigned_generation_id
                if found is None or (found.generation_id, found.partitions) != (generation_id, partitions):
                    found = _Lack(generation_id=generation_id, partitions=partitions, since_ms=self._monotonic_ms())
                yield topic, found

    def _ask(self, group: Group, shares: Shares, lacks: Mapping[str, _Lack]) -> None:
        """Have the group rebalance for what it has lacked for long enough, and forget what is assigned again."""
        delay_ms = group.config.unassigned_rebalance_delay_ms
        if not delay_ms:
            return
        until_ms = self._monotonic_ms() - delay_ms
        due = [
            TopicSize(topic=topic, partitions=lack.partitions)
            for topic, lack in lacks.items()
            if lack.since_ms <= until_ms
        ]
        settled = (
            TopicSize(topic=each.topic, partitions=self._counts.of(each.topic) or 0)
            for each in group.config.rebalanced_for
            if each.topic not in lacks and (each.topic not in shares.subscribed or self._counts.of(each.topic))
        )
        topics = (*due, *settled)
        if topics and is_news(group, topics, shares):
            self._groups.rebalance_unassigned(RebalanceUnassigned(group_id=group.group_id, topics=topics))

    def _tell(
        self,
        group: Group,
        shares: Shares,
        lacks: Mapping[str, _Lack],
        said: set[tuple[GroupId, str, _Lack]],
    ) -> Iterator[UnassignedStatus]:
        """Yield what has been lacking for long, and log what was not logged yet; `said` is added to."""
        now_ms = self._monotonic_ms()
        for topic, lack in lacks.items():
            numbers = shares.unassigned(topic, lack.partitions)
            if now_ms - lack.since_ms < TELL_AFTER_MS or not numbers:
                continue
            status = UnassignedStatus(
                group_id=group.group_id,
                topic=topic,
                partitions=len(numbers),
                numbers=_numbers(numbers),
                unassigned_ms=now_ms - lack.since_ms,
                way_out=_way_out(group, topic, lack),
            )
            yield status
            said.add((group.group_id, topic, lack))
            if (group.group_id, topic, lack) not in self._told:
                self._log(group, status)

    def _log(self, group: Group, status: UnassignedStatus) -> None:
        suppressed = self._throttle.due("unassigned", group.group_id)
        if suppressed is None:
            return
        leader = group.members.get(group.leader_id) if group.leader_id is not None else None
        log.warning(
            "partitions of a subscribed topic are assigned to nobody",
            group_id=status.group_id,
            topic=status.topic,
            partitions=status.numbers,
            leader=None if leader is None else leader.name,
            seconds=status.unassigned_ms // 1_000,
            way_out=status.way_out,
            others_since=suppressed,
        )


def _way_out(group: Group, topic: str, lack: _Lack) -> str:
    asked = TopicSize(topic=topic, partitions=lack.partitions) in group.config.rebalanced_for
    if asked:
        return (
            "Muster has asked the group to rebalance, and the leader did not assign them: restart the leader; if it did"
            f" not know them yet (metadata.max.age.ms), muster members rebalance {group.group_id}"
        )
    if group.config.unassigned_rebalance_delay_ms:
        return f"Muster asks the group to rebalance when {UNASSIGNED_DELAY} is over"
    return f"muster members rebalance {group.group_id}, or set {UNASSIGNED_DELAY} to have Muster ask for it"


def _numbers(numbers: Iterable[int]) -> str:
    """'0 to 3, 6': the first ranges, and how many partitions there are more."""
    ranges = ranges_of(numbers)
    shown, more = ranges_text(ranges[:NUMBERS_MAX]), sum(map(len, ranges[NUMBERS_MAX:]))
    return f"{shown} and {more} more" if more else shown
