"""Proves that partitions are still ours while nothing is appended: twice per lease, and when responses wait for a
proof.

A timer of the process repeats the last append of each partition, in one request per broker: the log acknowledges the
duplicate without appending it, or refuses it if another owner has appended. If that proves nothing, a record is
appended; like any append, it either succeeds or ends the ownership with its error.

A repeated append is not enough: a partition leader that does not yet know that it was deposed acknowledges it from
memory, without asking its replicas. So a record is appended every REAL_PROOF_MS, which such a leader cannot do. The
record is a tombstone with a key that no event has, so readers of the log can ignore it, and compaction removes it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final

from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.outbox import Outbox, WriteUnit, partition_record_refused
from muster.coordinator.tasks import on_failure
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.base import AppendRefused, Deposed, EventLog, LogWriter, Repeated
from muster.events.records import Record, Transition

REAL_PROOF_MS: Final = 30_000
"""In an idle partition this adds 2,880 records of about 100 bytes a day."""


class KeptLease:
    """The lease of one partition and its proofs. `lost` is called with the error that ends the ownership."""

    def __init__(
        self, lease: AnswerLease, outbox: Outbox, *, is_renewing: Callable[[], bool], lost: Callable[[Exception], None]
    ) -> None:
        self.lease = lease
        self._outbox = outbox
        self._is_renewing = is_renewing
        self._lost = lost
        self._is_under_way = False

    @property
    def is_due(self) -> bool:
        """Return whether it is time for a proof, and none is in progress."""
        return not self._is_under_way and self.lease.half_is_over

    def begin(self) -> LogWriter | None:
        """Start a proof. Returns the writer whose last append is to be repeated, or None if a record is appended."""
        self._is_under_way = True
        if self.lease.now_ms() - self._outbox.appended_ms < REAL_PROOF_MS:
            return self._outbox.writer
        self._append()
        return None

    def repeated(self, writer: LogWriter, outcome: Repeated, sent_ms: int) -> None:
        """Apply the outcome of the repeated append."""
        if self.lease.is_over:
            return
        self._is_under_way = False
        if outcome is True:
            self.lease.proven(sent_ms)
        elif isinstance(outcome, Deposed) and writer is self._outbox.writer and not self._is_renewing():
            self._lost(outcome)  # otherwise it may have been a newer claim of our own
        elif self.lease.half_is_over:  # otherwise an append has proven it in the meantime
            self._is_under_way = True
            self._append()

    def _append(self) -> None:
        writer = self._outbox.writer

        def settled(refused: AppendRefused | None) -> None:
            self._is_under_way = False
            if refused is not None:
                self._lost(partition_record_refused(writer, refused))

        self._outbox.submit(WriteUnit(transition=proof(writer.partition), offsets=(), settled=settled))


class LeaseKeeper:
    """Proves the ownership of all partitions of this process while `keep` runs."""

    def __init__(
        self, event_log: EventLog, lease_ms: int, boot_ms: Callable[[], int], *, failed: Callable[[Exception], None]
    ) -> None:
        """`failed` is called with any unexpected exception, i.e. a bug."""
        self._log = event_log
        self._failed = failed
        self._lease_ms = lease_ms
        self._boot_ms = boot_ms
        self._kept: dict[int, KeptLease] = {}
        self._wanted = asyncio.Event()
        self._asking: set[asyncio.Task[None]] = set()

    def add(self, number: int, kept: KeptLease) -> None:
        """Keep the lease of a partition that was taken over."""
        self._kept[number] = kept
        kept.lease.want_proof = self._wanted.set

    def remove(self, number: int) -> None:
        self._kept.pop(number, None)

    async def keep(self) -> None:
        """Prove ownership every half lease, and when responses wait for it; runs forever."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._lease_ms / 4 / 1000):
                        await self._wanted.wait()
                self._wanted.clear()
                self._prove()
        finally:
            for each in self._asking:
                each.cancel()

    def _prove(self) -> None:
        due = [(kept, kept.begin()) for kept in self._kept.values() if kept.is_due]
        if repeated := [(kept, writer) for kept, writer in due if writer is not None]:
            asking = asyncio.create_task(self._repeat(repeated), name="answer-leases")
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
            asking.add_done_callback(on_failure(self._failed))

    async def _repeat(self, repeated: Sequence[tuple[KeptLease, LogWriter]]) -> None:
        sent_ms, by_number = self._boot_ms(), {writer.partition: (kept, writer) for kept, writer in repeated}
        async with aclosing(self._log.repeat([writer for _, writer in repeated], timeout_ms=self._lease_ms)) as answers:
            async for outcomes in answers:
                for number, outcome in outcomes.items():
                    kept, writer = by_number[number]
                    kept.repeated(writer, outcome, sent_ms)
                    if kept.is_due:  # the response came too late to prove anything
                        self._wanted.set()


def proof(partition: int) -> Transition:
    """Create the tombstone that is appended as a proof."""
    return (Record(encode_key(RecordKey(str(partition), EntityKind.PARTITION, "proof")), None),)
