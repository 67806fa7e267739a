"""A whole log, checked: feed it every record, partition by partition, then ask for the result."""

from collections.abc import Iterable

from muster.events.records import StoredRecord
from muster.replay.verify.finding import Finding, Verified
from muster.replay.verify.partition_check import PartitionCheck

FINDINGS_MAX = 1_000
"""The findings that are kept; all are counted."""


class Verification:
    """The fold. It keeps the groups as they stand, and no history."""

    def __init__(self) -> None:
        self._partitions: dict[int, PartitionCheck] = {}
        self._findings: list[Finding] = []
        self._found = 0
        self._records = 0
        self._strangers = 0

    def feed(self, record: StoredRecord) -> None:
        """Take in the next record of its partition. Raises LogTooNew."""
        check = self._partitions.get(record.partition)
        if check is None:
            check = self._partitions[record.partition] = PartitionCheck(record.partition)
        self._records += 1
        if record.stranger:
            self._strangers += 1
            check.skip(record)
            return
        self._take(check.feed(record))

    def result(self, log: str, partitions: int) -> Verified:
        """The result, once every record was fed. `partitions`: how many the log has."""
        for check in self._partitions.values():
            self._take(check.end())
        groups = [group for check in self._partitions.values() for group in check.groups.values()]
        return Verified(
            log=log,
            partitions=partitions,
            records=self._records,
            groups=len(groups),
            events=sum(group.events for group in groups),
            decided_again=sum(group.decided_again for group in groups),
            compacted=tuple(each for check in self._partitions.values() for each in check.compacted),
            strangers=self._strangers,
            passed_over=sum(check.passed_over for check in self._partitions.values()),
            found=self._found,
            findings=tuple(sorted(self._findings, key=_place)),
        )

    def _take(self, found: Iterable[Finding]) -> None:
        for each in found:
            self._found += 1
            if len(self._findings) < FINDINGS_MAX:
                self._findings.append(each)


def _place(finding: Finding) -> tuple[int, int]:
    return finding.partition, finding.offset
