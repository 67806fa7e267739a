"""Finds partitions of subscribed topics that no member is assigned, logs them, and can have the group rebalance.

Clients have REPORT_AFTER_MS to notice by themselves that a topic has grown: somewhat more than their
metadata.max.age.ms. After that, a log line (once per assignment), `muster status` and a metric report it. With
`members.unassigned.rebalance.delay.ms` the group is asked to rebalance (`group/unassigned.py`).

All groups are checked at an interval; the partition counts come from a PartitionCounts. The times restart at a
takeover, so that no rebalance is requested before the clients have had their time.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

import msgspec
import structlog

from muster.coordinator.group.commands import RebalanceUnassigned
from muster.coordinator.group.configs import UNASSIGNED_DELAY
from muster.coordinator.group.unassigned import ASKED_MAX, Shares, is_news, may_rebalance, read_shares
from muster.coordinator.load.slices import Pace, Slices
from muster.coordinator.log_throttle import NAMES_MAX, NamesThrottle
from muster.coordinator.observability.metrics import UNASSIGNED_PARTITIONS
from muster.coordinator.observability.status import UnassignedStatus
from muster.events.ids import GroupId
from muster.events.state import Group, TopicSize
from muster.ranges import ranges_of, ranges_text

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CHECK_INTERVAL_S: Final = 10.0
REPORT_AFTER_MS: Final = 360_000
"""Clients refresh their metadata every 5 minutes by default (metadata.max.age.ms)."""
TOPICS_MAX: Final = 10_000
"""Limit of topics whose partitions are counted, over all groups; those of groups with the config come first."""
NUMBERS_MAX: Final = 10


class PartitionCounts(Protocol):
    """The partition counts of topics."""

    def want(self, topics: Sequence[str]) -> None:
        """Count the partitions of these topics from now on, and of no others."""

    def of(self, topic: str) -> int | None:
        """Return the partition count of the topic; None if unknown."""


class WatchedGroups(Protocol):
    """The groups of this process; implemented by `Runtime`."""

    def groups(self) -> Iterable[Group]: ...

    def rebalance_unassigned(self, command: RebalanceUnassigned) -> None: ...


class _Lack(msgspec.Struct, frozen=True, kw_only=True):
    """Unassigned partitions of a topic that has `partitions`. `since_ms`: when the first was found."""

    generation_id: int
    partitions: int
    since_ms: int


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of a group as of one of its events (`seq`)."""

    incarnation: int
    seq: int
    shares: Shares | None


class _Check(msgspec.Struct, kw_only=True):
    """One check of all groups, with its results so far.

    `first`: the topics of groups with the config. `logged`: the topics that were logged.
    """

    known: dict[GroupId, _Known] = {}
    lacks: dict[GroupId, dict[str, _Lack]] = {}
    first: dict[str, None] = {}
    others: dict[str, None] = {}
    statuses: list[UnassignedStatus] = []
    logged: set[tuple[GroupId, str, int]] = set()
    partitions: int = 0

    def want(self, group: Group, shares: Shares) -> None:
        """Have the topics of a group counted, while below the limit."""
        wanted = self.first if group.config.unassigned_rebalance_delay_ms else self.others
        if len(wanted) < TOPICS_MAX:
            wanted.update(dict.fromkeys(shares.subscribed))

    def wanted(self) -> tuple[str, ...]:
        return tuple(islice({**self.first, **self.others}, TOPICS_MAX))


class UnassignedWatch:
    """Looks for unassigned partitions. `unassigned`: those to report now; readable from any thread."""

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
        self._logged: set[tuple[GroupId, str, int]] = set()
        self.unassigned: tuple[UnassignedStatus, ...] = ()
        UNASSIGNED_PARTITIONS.set(0)

    async def keep_checking(self) -> None:
        """Check every few seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.check()

    async def check(self) -> None:
        """Check all groups once."""
        check, pace = _Check(), self._slices.pace()
        for group in self._groups.groups():
            await pace.worked()  # those that are not Stable count too: there may be a million
            if may_rebalance(group):
                await self._check_group(group.copy(), check, pace)  # it may change while other work has its turn
        self._known, self._lacks, self._logged = check.known, check.lacks, check.logged
        self.unassigned = tuple(check.statuses)
        UNASSIGNED_PARTITIONS.set(check.partitions)
        self._counts.want(check.wanted())

    async def _check_group(self, group: Group, check: "_Check", pace: Pace) -> None:
        shares = await self._shares_of(group, check, pace)
        if shares is None:
            return
        check.want(group, shares)
        lacks: dict[str, _Lack] = {}
        for topic in sorted(shares.subscribed | shares.kept):
            await pace.worked()
            lack = self._lack(group, shares, topic)
            if lack is not None:
                lacks[topic] = lack
            if len(lacks) == ASKED_MAX:
                break
        if lacks:
            check.lacks[group.group_id] = lacks
            await self._report(group, shares, check, pace)
        self._ask(group, shares, lacks)

    async def _shares_of(self, group: Group, check: "_Check", pace: Pace) -> Shares | None:
        known = self._known.get(group.group_id)
        if known is None or (known.incarnation, known.seq) != (group.incarnation, group.seq):
            shares = await pace.result(read_shares(group))
            known = _Known(incarnation=group.incarnation, seq=group.seq, shares=shares)
        check.known[group.group_id] = known
        return known.shares

    def _lack(self, group: Group, shares: Shares, topic: str) -> _Lack | None:
        """Return which partitions of the topic are unassigned, and since when. A new assignment restarts the time.

        Growth of the topic does not restart it: otherwise a topic that keeps growing would never be reported.
        """
        before = self._lacks.get(group.group_id, {}).get(topic)
        partitions = self._partitions(group, shares, topic)
        if not shares.needs_rebalance(topic, partitions):
            return None
        since_ms = self._monotonic_ms()
        if before is not None and before.generation_id == group.image.assigned_generation_id:
            if before.partitions == partitions:
                return before
            since_ms = before.since_ms if before.partitions < partitions else since_ms
        return _Lack(generation_id=group.image.assigned_generation_id, partitions=partitions, since_ms=since_ms)

    def _partitions(self, group: Group, shares: Shares, topic: str) -> int:
        """Return the partition count of the topic; for topics that are only kept the count does not matter."""
        counted = self._counts.of(topic) if topic in shares.subscribed else 0
        if counted is None and topic in shares.kept:  # otherwise the group would be asked again once the count is known
            counted = next((each.partitions for each in group.config.rebalanced_for if each.topic == topic), None)
        return counted or 0

    def _ask(self, group: Group, shares: Shares, lacks: Mapping[str, _Lack]) -> None:
        """Have the group rebalance for what has been unassigned long enough; forget what is assigned again."""
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

    async def _report(self, group: Group, shares: Shares, check: "_Check", pace: Pace) -> None:
        """Report what has been unassigned for long, and log in one line what was not logged yet."""
        now_ms = self._monotonic_ms()
        unlogged: dict[tuple[GroupId, str, int], UnassignedStatus] = {}
        for topic, lack in check.lacks[group.group_id].items():
            await pace.worked()
            if now_ms - lack.since_ms < REPORT_AFTER_MS or not (numbers := shares.unassigned(topic, lack.partitions)):
                continue
            status = UnassignedStatus(
                group_id=group.group_id,
                topic=topic,
                partitions=len(numbers),
                numbers=_numbers(sorted(numbers)),
                unassigned_ms=now_ms - lack.since_ms,
                way_out=_way_out(group, topic, lack),
            )
            check.statuses.append(status)
            check.partitions += status.partitions
            logged = (group.group_id, topic, lack.generation_id)
            if logged in self._logged:
                check.logged.add(logged)
            else:
                unlogged[logged] = status
        if unlogged and self._throttle.due("unassigned", group.group_id) is not None:
            check.logged.update(unlogged)  # topics that get no line now get one later
            _log(group, list(unlogged.values()))


def _log(group: Group, unassigned: Sequence[UnassignedStatus]) -> None:
    leader = group.members.get(group.leader_id) if group.leader_id is not None else None
    more = len(unassigned) - NAMES_MAX
    log.warning(
        "partitions of subscribed topics are unassigned",
        group_id=group.group_id,
        topics={each.topic: each.numbers for each in unassigned[:NAMES_MAX]},
        **({"more_topics": more} if more > 0 else {}),
        leader=None if leader is None else leader.name,
        seconds=max(each.unassigned_ms for each in unassigned) // 1_000,
        way_out=unassigned[0].way_out,
    )


def _way_out(group: Group, topic: str, lack: _Lack) -> str:
    asked = TopicSize(topic=topic, partitions=lack.partitions) in group.config.rebalanced_for
    if asked:
        return (
            "Muster asked the group to rebalance, and the leader did not assign them: restart the leader; if it "
            f"did not know them yet (metadata.max.age.ms), muster members rebalance {group.group_id}"
        )
    if group.config.unassigned_rebalance_delay_ms and len(group.config.rebalanced_for) < ASKED_MAX:
        return f"Muster asks the group to rebalance after {UNASSIGNED_DELAY}"
    return f"muster members rebalance {group.group_id}, or set {UNASSIGNED_DELAY} to have Muster ask for it"


def _numbers(numbers: Iterable[int]) -> str:
    """'0 to 3, 6': the first ranges, and how many more partitions there are."""
    ranges = ranges_of(numbers)
    shown, more = ranges_text(ranges[:NUMBERS_MAX]), sum(map(len, ranges[NUMBERS_MAX:]))
    return f"{shown} and {more} more" if more else shown
