"""Proves, while nothing is appended, that a partition is still this process's: each half lease, and when answers wait.

What belongs here: when it is proven, and by what. What it must not know: answers.

The last append is sent again: the log answers without appending, or refuses it once another owner has appended. A
partition leader that was deposed itself and does not know it answers a repeated append from its memory, without asking
its replicas. So once in REAL_PROOF_MS something is really appended, which such a leader cannot do: a tombstone under a
key that no event has, so that nobody who reads the log has to know of it, and compaction takes it away.
"""

import asyncio
from typing import Final

from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.outbox import OnLost, Outbox, partition_record_refused
from muster.coordinator.tasks import on_failure
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.base import AppendRefused
from muster.events.records import Record, Transition

REAL_PROOF_MS: Final = 30_000
"""These are 2,880 records a day for a partition in which nothing else is appended, of some 100 bytes."""


class LeaseKeeper:
    """See the module. A proof that fails is the outbox's loss."""

    def __init__(self, lease: AnswerLease, outbox: Outbox, *, lost: OnLost) -> None:
        self._lease = lease
        self._outbox = outbox
        self._wanted = asyncio.Event()
        lease.want_proof = self._wanted.set
        self._task = asyncio.create_task(self._keep(), name="answer-lease")
        self._task.add_done_callback(on_failure(lost))

    async def close(self) -> None:
        """Prove no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        pause_s = self._lease.lease_ms / 4 / 1000
        while True:
            try:
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
            except TimeoutError:
                if not self._lease.half_is_over:
                    continue
            self._wanted.clear()
            if not self._lease.covers or self._lease.half_is_over:
                await self._outbox.between_writes(self._prove)

    async def _prove(self) -> None:
        if self._lease.covers and not self._lease.half_is_over:
            return  # what was appended meanwhile has proven it
        writer, sent_ms = self._outbox.writer, self._lease.now_ms()
        is_repeated = sent_ms - self._outbox.appended_ms < REAL_PROOF_MS and await writer.repeat()
        if not is_repeated:
            (verdict,) = await writer.append([proof(writer.partition)])
            if isinstance(verdict, AppendRefused):
                raise partition_record_refused(writer, verdict)
            self._outbox.appended_ms = sent_ms
        self._lease.proven(sent_ms)


def proof(partition: int) -> Transition:
    """Make the tombstone that is appended to prove that it can be."""
    return (Record(encode_key(RecordKey(str(partition), EntityKind.PARTITION, "proof")), None),)
