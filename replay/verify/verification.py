"""Checks a whole log: feed it every record, partition by partition, then ask for the result."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.window import WHOLE, Window, bounds
from muster.replay.history.wrong_times import Times
from muster.replay.verify.finding import ADVICE, Check, Compacted, LogFinding, Verified
from muster.replay.verify.group_check import GroupCheck
from muster.replay.verify.partition_check import PartitionCheck

LISTED_MAX: Final = 1_000
"""The maximum number of findings, and of compacted groups, in the lists; all are counted."""


class Verification:
    """The fold. It keeps only the current state of one partition's groups, most of them packed.

    `partitions`: of the log. `damage`: returns the unreadable parts so far, as text. `window` (times only) and `wanted`
    (a glob pattern for group ids): what to report; partitions without such a group are left out.
    """

    def __init__(
        self,
        partitions: int,
        damage: Callable[[], Sequence[str]] = tuple,
        *,
        window: Window = WHOLE,
        wanted: str | None = None,
        times: Mapping[GroupId, Times] = MappingProxyType({}),
    ) -> None:
        self.first_ms, self.last_ms = math.inf, -math.inf
        self._partitions = partitions
        self._damage = damage
        self._window = window
        self._wanted = wanted
        self._times = times
        self._of_partition: list[LogFinding] = []  # until a wanted group is found in the partition
        self._check: PartitionCheck | None = None
        self._findings: list[LogFinding] = []
        self._checks: set[Check] = set()
        self._compacted: list[Compacted] = []
        self._found = self._records = self._strangers = 0
        self._groups = self._events = self._decided_again = self._passed_over = 0
        self._compacted_groups = self._folded = 0
        self._damages = 0
        self._was_damaged = bool(damage())  # in any partition

    def feed(self, record: StoredRecord) -> None:
        """Process the next record of its partition. Raises LogTooNew."""
        check = self._check
        if check is None or check.partition != record.partition:
            self._end_partition()
            check = self._check = PartitionCheck(
                record.partition, self._partitions, self._window, self._wanted, self._times
            )
        self._records += 1
        if record.is_foreign:
            self._strangers += 1
            check.skip(record)
            return
        self._take(check.feed(record))

    def result(self, log: str) -> Verified:
        """Return the result, after every record was fed."""
        self._end_partition()
        return Verified(
            log=log,
            partitions=self._partitions,
            window=bounds(self._window),
            pattern=self._wanted,
            records=self._records,
            groups=self._groups,
            events=self._events,
            decided_again=self._decided_again,
            folded=self._folded,
            compacted_groups=self._compacted_groups,
            compacted=tuple(self._compacted),
            strangers=self._strangers,
            passed_over=self._passed_over,
            unread=tuple(self._damage()),
            found=self._found,
            findings=tuple(self._first_findings()),
            advice={check: ADVICE[check] for check in Check if check in self._checks},
        )

    def _end_partition(self) -> None:
        check, self._check = self._check, None
        if check is None:
            return
        damages, before = len(self._damage()), self._damages
        self._damages = damages
        self._take(check.unreadable())
        kept, self._of_partition = self._of_partition, []
        if self._wanted is None or check.has_groups:
            self._keep(kept)
            self._passed_over += check.passed_over
        self.first_ms, self.last_ms = min(self.first_ms, check.first_ms), max(self.last_ms, check.last_ms)
        for group, found in check.end(is_cut=damages > before or self._was_damaged):
            self._take(found)
            self._count(group)

    def _count(self, group: GroupCheck) -> None:
        self._groups += bool(group.events) or not group.folded
        self._events += group.events
        self._folded += group.folded
        self._decided_again += group.decided_again
        compacted = group.compacted
        if compacted is not None:
            self._compacted_groups += 1
            if len(self._compacted) < LISTED_MAX:
                self._compacted.append(compacted)

    def _take(self, found: Iterable[LogFinding]) -> None:
        """Keep findings; those about a whole partition only once a wanted group is found in it."""
        if self._wanted is None:
            self._keep(found)
            return
        for each in found:
            if each.group_id is not None:
                self._keep([each])
            elif len(self._of_partition) < LISTED_MAX:
                self._of_partition.append(each)

    def _keep(self, found: Iterable[LogFinding]) -> None:
        for each in found:
            self._found += 1
            self._checks.add(each.check)
            self._findings.append(each)
            if len(self._findings) >= 2 * LISTED_MAX:
                self._findings = self._first_findings()

    def _first_findings(self) -> list[LogFinding]:
        """Return the findings to list, in log order: a group's finding may only become known after one at a higher
        offset.
        """
        return sorted(self._findings, key=_place)[:LISTED_MAX]


def _place(finding: LogFinding) -> tuple[int, int]:
    return finding.partition, finding.offset
