"""Proves, while nothing is appended, that partitions are still this process's: each half lease, and when answers wait.

What belongs here: when it is proven, and by what. What it must not know: answers.

The last appends are sent again, those of one broker together, by one timer of the process: the log answers without
appending, or refuses once another owner has appended. If that proves nothing, a record is appended; as with any append,
it is waited for, and its failure says what is wrong.

A partition leader that was deposed itself and does not know it answers a repeated append from its memory, without
asking its replicas. So once in REAL_PROOF_MS a record is really appended, which such a leader cannot do: a tombstone
under a key that no event has, so that readers of the log can ignore it, and compaction removes it.
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
"""These are 2,880 records a day for a partition in which nothing else is appended, of some 100 bytes."""


class KeptLease:
    """The lease of one partition, as it is kept. `lost` is called with what ends the ownership."""

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
        """Whether it is time for a proof, and none is under way."""
        return not self._is_under_way and self.lease.half_is_over

    def begin(self) -> LogWriter | None:
        """Begin a proof; returns the writer whose last append is to be sent again, None if something is appended."""
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
            self._lost(outcome)  # else it may have been a newer claim of our own
        elif self.lease.half_is_over:  # else an append has proven it meanwhile
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
    """The proofs of all partitions of this process, from `keep` on."""

    def __init__(
        self, event_log: EventLog, lease_ms: int, boot_ms: Callable[[], int], *, failed: Callable[[Exception], None]
    ) -> None:
        """`failed` is called with a bug of ours."""
        self._log = event_log
        self._failed = failed
        self._lease_ms = lease_ms
        self._boot_ms = boot_ms
        self._kept: dict[int, KeptLease] = {}
        self._wanted = asyncio.Event()
        self._asking: set[asyncio.Task[None]] = set()

    def add(self, number: int, kept: KeptLease) -> None:
        """Keep the lease of a partition that is owned from now on."""
        self._kept[number] = kept
        kept.lease.want_proof = self._wanted.set

    def remove(self, number: int) -> None:
        """Keep it no more."""
        self._kept.pop(number, None)

    async def keep(self) -> None:
        """Prove each half lease, and when answers wait; runs for ever."""
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
                    if kept.is_due:  # the answer came too late to be worth anything
                        self._wanted.set()


def proof(partition: int) -> Transition:
    """Make the tombstone that is appended to prove that it can be."""
    return (Record(encode_key(RecordKey(str(partition), EntityKind.PARTITION, "proof")), None),)
