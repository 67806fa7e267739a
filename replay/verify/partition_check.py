"""Checks one partition of a log record by record: its owners, their epochs, and its groups."""

import math
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from muster.events.events import CoordinatorElected, CoordinatorReady
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, decode_key
from muster.events.partitioner import partition_for
from muster.events.records import StoredRecord, UndecodableKey
from muster.replay.history.items import Broken, Coordinated, Happened, PassedOver, Prelude, Read, Told, still_broken
from muster.replay.history.window import WHOLE, Cut, Window
from muster.replay.history.wrong_times import AS_RECORDED, Times, times_of_partition
from muster.replay.logs.sources import read_record
from muster.replay.verify.finding import Check, LogFinding
from muster.replay.verify.group_check import GroupCheck
from muster.replay.verify.group_checks import GroupChecks


class PartitionCheck:
    """The checks of one partition. `wanted`: a glob pattern for group ids; None: all.

    `times`: the corrected times of groups. `first_ms`, `last_ms`: the earliest and the latest event of the groups, wall
    clock ms.
    """

    def __init__(
        self,
        partition: int,
        partitions: int,
        window: Window = WHOLE,
        wanted: str | None = None,
        times: Mapping[GroupId, Times] = MappingProxyType({}),
    ) -> None:
        self.partition = partition
        self.first_ms, self.last_ms = math.inf, -math.inf
        self._window = window
        self._times = times
        self._cut = Cut(window, times=times_of_partition(times, partition, partitions))
        self._wanted = wanted
        self._partitions = partitions
        self._groups = GroupChecks()
        self._seen: dict[GroupId, int] = {}  # how many offsets were missing as of each group's last event
        self._next_offset = 0
        self._missing_offsets = 0
        self._epoch = -1
        self._renewed_from = -1  # the epoch in which the current owner was elected, before it renewed its claim
        self._elected: CoordinatorElected | None = None
        self._prelude = Prelude()
        self._unreadable: list[Broken] = []  # records of unknown group, which a later tombstone may repair
        self.passed_over = 0

    def skip(self, record: StoredRecord) -> None:
        """Skip a foreign record, which also takes up an offset."""
        self._missing_offsets += max(0, record.offset - self._next_offset)
        self._next_offset = record.offset + 1

    def feed(self, record: StoredRecord) -> Iterator[LogFinding]:
        """Process the next record of an owner. Raises LogTooNew."""
        self.skip(record)
        read = read_record(record) if self._is_wanted(record) else None
        if read is None:
            return
        group_id, told = read
        if group_id is None:
            yield from self._of_partition(told)
        elif isinstance(told, Happened | Broken):
            self._note_time(told)
            yield from self._of_group(group_id, told)

    @property
    def has_groups(self) -> bool:
        """True if the partition has a group that is to be checked."""
        return len(self._groups) > 0

    def unreadable(self) -> Iterator[LogFinding]:
        """At the end of the partition, yield findings for unreadable records that belong to no group and were not
        repaired.
        """
        for broken in self._unreadable:
            if self._is_within(broken):
                yield _finding_of(broken, None)

    def end(self, *, is_cut: bool = False) -> Iterator[tuple[GroupCheck, list[LogFinding]]]:
        """End the partition: yield its groups, each with its last findings, and drop them.

        `is_cut`: what follows could not be read.
        """
        for check, untold in self._groups.end():
            yield check, [*_told(check, untold), *check.end(is_cut=is_cut)]

    def _is_wanted(self, record: StoredRecord) -> bool:
        """Return whether the record belongs to a wanted group, or to the whole partition."""
        if self._wanted is None:
            return True
        try:
            key = decode_key(record.key)
        except UndecodableKey:
            return True
        return key.kind is EntityKind.PARTITION or fnmatchcase(key.group_id, self._wanted)

    def _is_within(self, told: Happened | Coordinated | Broken) -> bool:
        """Return whether findings in this item are reported."""
        return self._cut.is_within(told.position.timestamp_ms) if isinstance(told, Broken) else self._cut.has(told)

    def _note_time(self, told: Happened | Broken) -> None:
        if isinstance(told, Happened):
            self.first_ms, self.last_ms = min(self.first_ms, told.at_ms), max(self.last_ms, told.at_ms)

    def _of_group(self, group_id: GroupId, told: Happened | Broken) -> Iterator[LogFinding]:
        found: list[LogFinding] = []
        known = self._groups.get(group_id)
        if known is None:
            check = GroupCheck(group_id, self.partition, self._window, self._times.get(group_id, AS_RECORDED))
            self._groups.add(group_id, check)
            found.extend(self._first_of(group_id, told))
            yield from _told(check, self._prelude.reads)
        else:
            check, untold = known
            yield from _told(check, untold)
        if isinstance(told, Broken):
            found.append(_finding_of(told, group_id))
        else:
            found.extend(self._epoch_of(told, told.event.owner_epoch, group_id))
        if self._is_within(told):
            yield from found
        is_compacted = self._seen.get(group_id, 0) < self._missing_offsets
        self._seen[group_id] = self._missing_offsets
        yield from check.feed(told, is_compacted=is_compacted)

    def _first_of(self, group_id: GroupId, told: Happened | Broken) -> Iterator[LogFinding]:
        at_home = partition_for(group_id, self._partitions)
        if at_home != self.partition:
            expected, found = f"its events in partition {at_home}", f"the first one here, in partition {self.partition}"
            yield _finding(Check.PARTITION, told, group_id, expected=expected, found=found)

    def _of_partition(self, told: Read) -> Iterator[LogFinding]:
        self._prelude.note(told)
        if isinstance(told, PassedOver):
            before = len(self._unreadable)
            self._unreadable = still_broken(self._unreadable, told)
            self.passed_over += before - len(self._unreadable)
        elif isinstance(told, Broken):
            self._unreadable.append(told)
        elif isinstance(told, Coordinated):
            found = tuple(self._owner(told))
            if self._is_within(told):
                yield from found
        if isinstance(told, Broken | Coordinated):
            for check, untold in self._groups.tell(told):
                yield from _told(check, untold)

    def _owner(self, told: Coordinated) -> Iterator[LogFinding]:
        event, elected = told.event, self._elected
        if isinstance(event, CoordinatorElected):
            # Before an owner renews its claim, it writes its current claim once more, to check that it is still valid.
            is_again = elected is not None and (elected.owner, elected.owner_epoch) == (event.owner, event.owner_epoch)
            if event.owner_epoch <= self._epoch and not is_again:
                expected = f"an epoch above {self._epoch} for {event.owner}, who was elected"
                yield _finding(Check.EPOCH, told, expected=expected, found=f"epoch {event.owner_epoch}")
            if elected is not None and event.format_level < elected.format_level:
                expected = f"format level {elected.format_level} or a higher one"
                yield _finding(Check.LEVEL, told, expected=expected, found=f"format level {event.format_level}")
            if elected is None or elected.owner != event.owner:
                self._renewed_from = event.owner_epoch
            self._elected = event
        elif elected is not None and event.owner_epoch == elected.owner_epoch and event.owner != elected.owner:
            expected = f"{elected.owner}, who was elected with epoch {elected.owner_epoch}"
            yield _finding(Check.OWNER, told, expected=expected, found=event.owner)
        yield from self._epoch_of(told, event.owner_epoch, None)
        if isinstance(event, CoordinatorReady):  # it has re-read the log: none of its earlier decisions can follow
            self._renewed_from = event.owner_epoch

    def _epoch_of(self, told: Happened | Coordinated, epoch: int, group_id: GroupId | None) -> Iterator[LogFinding]:
        if self._renewed_from <= epoch < self._epoch:
            return  # decided just before the owner renewed its claim, and stored just after
        if epoch < self._epoch:
            expected = f"epoch {self._epoch} or a later one"
            yield _finding(Check.EPOCH, told, group_id, expected=expected, found=f"epoch {epoch}")
            return
        elected = self._elected.owner_epoch if self._elected is not None else None
        if epoch > self._epoch and elected is not None and epoch > elected and not self._missing_offsets:
            expected = f"an election with epoch {epoch}; the last one has {elected}"
            yield _finding(Check.OWNER, told, group_id, expected=expected, found=type(told.event).__name__)
        self._epoch = epoch


def _told(check: GroupCheck, items: Iterable[Told]) -> Iterator[LogFinding]:
    """Feed a group the items that concern its whole partition."""
    for item in items:
        yield from check.feed(item, is_compacted=False)


def _finding(
    check: Check,
    told: Happened | Coordinated | Broken,
    group_id: GroupId | None = None,
    *,
    expected: str,
    found: str,
) -> LogFinding:
    return LogFinding(
        check=check,
        partition=told.position.partition,
        offset=told.position.offset,
        group_id=group_id,
        seq=told.event.seq if isinstance(told, Happened) else None,
        expected=expected,
        found=found,
    )


def _finding_of(told: Broken, group_id: GroupId | None) -> LogFinding:
    expected, found = "a record that this version can read", f"{told.kind.value}: {told.reason}"
    return _finding(Check.READABLE, told, group_id, expected=expected, found=found)
