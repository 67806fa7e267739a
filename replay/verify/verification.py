"""A whole log, checked: feed it every record, partition by partition, then ask for the result."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from muster.events.records import StoredRecord
from muster.replay.verify.finding import ADVICE, Check, Compacted, Finding, Verified
from muster.replay.verify.partition_check import PartitionCheck

LISTED_MAX: Final = 1_000
"""The findings, and the compacted groups, that are listed; all are counted."""


class Verification:
    """The fold. It keeps the groups of one partition as they stand, and no history.

    `partitions` of the log. `damage`: what is said by now of parts that could not be read.
    """

    def __init__(self, partitions: int, damage: Callable[[], Sequence[str]] = tuple) -> None:
        self._partitions = partitions
        self._damage = damage
        self._check: PartitionCheck | None = None
        self._findings: list[Finding] = []
        self._checks: set[Check] = set()
        self._compacted: list[Compacted] = []
        self._found = self._records = self._strangers = 0
        self._groups = self._events = self._decided_again = self._passed_over = 0
        self._compacted_groups = 0
        self._damages = 0

    def feed(self, record: StoredRecord) -> None:
        """Take in the next record of its partition. Raises LogTooNew."""
        check = self._check
        if check is None or check.partition != record.partition:
            self._end_partition()
            check = self._check = PartitionCheck(record.partition, self._partitions)
        self._records += 1
        if record.stranger:
            self._strangers += 1
            check.skip(record)
            return
        self._take(check.feed(record))

    def result(self, log: str) -> Verified:
        """The result, once every record was fed."""
        self._end_partition()
        return Verified(
            log=log,
            partitions=self._partitions,
            records=self._records,
            groups=self._groups,
            events=self._events,
            decided_again=self._decided_again,
            compacted_groups=self._compacted_groups,
            compacted=tuple(self._compacted),
            strangers=self._strangers,
            passed_over=self._passed_over,
            unread=tuple(self._damage()),
            found=self._found,
            findings=tuple(sorted(self._findings, key=_place)),
            advice={check: ADVICE[check] for check in Check if check in self._checks},
        )

    def _end_partition(self) -> None:
        check, self._check = self._check, None
        if check is None:
            return
        damages, before = len(self._damage()), self._damages
        self._damages = damages
        self._take(check.end(is_cut=damages > before))
        self._passed_over += check.passed_over
        for group in check.groups.values():
            self._groups += 1
            self._events += group.events
            self._decided_again += group.decided_again
            compacted = group.compacted
            if compacted is not None:
                self._compacted_groups += 1
                if len(self._compacted) < LISTED_MAX:
                    self._compacted.append(compacted)

    def _take(self, found: Iterable[Finding]) -> None:
        for each in found:
            self._found += 1
            self._checks.add(each.check)
            if len(self._findings) < LISTED_MAX:
                self._findings.append(each)


def _place(finding: Finding) -> tuple[int, int]:
    return finding.partition, finding.offset
