"""The event log in memory: a real implementation for tests and simulations, in which failures can be injected.

Its records are in a `MemoryStorage`. Logs opened on the same storage see the same records and depose each other's
writers, as two processes do. It uses only the clock that it is given, and randomness only for its identity.
"""

import asyncio
import uuid
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from muster.events.log.base import (
    AppendRefused,
    Deposed,
    Ends,
    LogUnavailable,
    LogWriter,
    Repeated,
    Repeats,
    SignOfLife,
)
from muster.events.log.limits import BATCH_BYTES_MAX, CHUNK_RECORDS_MAX, verdict_on
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import FORMAT_LEVEL, StoredRecord, Transition


class MemoryStorage:
    """Records and epochs by partition, which outlive the logs opened on them."""

    def __init__(self, partitions: int = 8, *, format_level: int = FORMAT_LEVEL) -> None:
        self.identity = str(uuid.uuid4())
        self.format_level = format_level
        self.records: list[list[StoredRecord]] = [[] for _ in range(partitions)]
        self.epochs = [0] * partitions
        """The epoch of the last claim."""
        self.fences = [0] * partitions
        """The epoch of the last writer that has appended; older ones can no longer append."""
        self.signs_of_life: dict[str, int] = {}

    def end_offset(self, partition: int) -> int:
        records = self.records[partition]
        return records[-1].offset + 1 if records else 0

    def between(self, partition: int, start: int, end: int | None) -> list[StoredRecord]:
        """Return the records from `start` up to `end`, exclusive; None: up to the last."""
        records = self.records[partition]
        first = bisect_left(records, start, key=_offset)
        return records[first:] if end is None else records[first : bisect_left(records, end, key=_offset)]


def _offset(record: StoredRecord) -> int:
    return record.offset


class MemoryEventLog:
    """An `EventLog` on a `MemoryStorage` (a new one by default).

    Tests make its appends fail with the methods of the first group; each applies to the next append of any of its
    writers, except for `hold_acknowledgements`, which holds them until its event is set.
    """

    def __init__(
        self,
        storage: MemoryStorage | None = None,
        *,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        claim_renewal_ms: int | None = None,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.storage = MemoryStorage() if storage is None else storage
        self.claim_renewal_ms = claim_renewal_ms
        self.supports_takeover = True
        self.deletions_kept_ms: int | None = None
        self.trouble: str | None = None
        self._batch_bytes_max = batch_bytes_max
        self._wall_ms = wall_ms
        self.next_offsets: dict[tuple[int, int], int] = {}
        """The offset after the last append of each of this log's writers, by partition and epoch."""
        self._is_open = False
        self._fails = False
        self._loses_acknowledgement = False
        self._refuses_above_bytes: int | None = None
        self._released: asyncio.Event | None = None
        self._signs_refused_after_s: float | None = None

    def stored_by(self, _partition: int) -> str:
        """See EventLog. Appends can be held up here, so messages may name this."""
        return "memory"

    def fail_next_append(self) -> None:
        """Make the next append raise LogUnavailable without storing anything."""
        self._fails = True

    def lose_next_acknowledgement(self) -> None:
        """Make the next append raise LogUnavailable after storing all of it."""
        self._loses_acknowledgement = True

    def refuse_in_next_append(self, *, limit_bytes: int = 0) -> None:
        """Refuse transitions over this limit in the next append."""
        self._refuses_above_bytes = limit_bytes

    def refuse_signs_of_life(self, *, after_s: float = 0.0) -> None:
        """Make signs of life fail from now on: writing and reading them raises LogUnavailable, after this delay."""
        self._signs_refused_after_s = after_s

    def hold_acknowledgements(self) -> asyncio.Event:
        """Store appends from now on, but let them return only when the returned event is set."""
        self._released = asyncio.Event()
        return self._released

    @property
    def location(self) -> str:
        return "memory"

    @property
    def identity(self) -> str:
        return self.storage.identity

    @property
    def partitions(self) -> int:
        return len(self.storage.records)

    @property
    def format_level(self) -> int:
        return self.storage.format_level

    @property
    def warnings(self) -> Sequence[str]:
        return ()

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def raise_format_level(self) -> None:
        self.storage.format_level = FORMAT_LEVEL

    async def claim(self, partition: int) -> "MemoryLogWriter":
        self._check_open()
        self.storage.epochs[partition] += 1
        was_owned = await self.has_owners_record(partition)
        return MemoryLogWriter(self, partition, self.storage.epochs[partition], was_owned=was_owned)

    async def has_owners_record(self, partition: int) -> bool:
        self._check_open()
        return any(not record.is_foreign for record in self.storage.records[partition])

    async def leave_sign_of_life(self, sign: SignOfLife, *, timeout_ms: int) -> None:  # noqa: ARG002 -- the caller has one
        await self._answer_about_signs()
        self.storage.signs_of_life = {sign.owner: sign.wall_ms}

    async def last_signs_of_life(self, *, timeout_ms: int) -> Mapping[str, int]:  # noqa: ARG002 -- as above
        await self._answer_about_signs()
        return self.storage.signs_of_life

    async def _answer_about_signs(self) -> None:
        self._check_open()
        if self._signs_refused_after_s is not None:
            await asyncio.sleep(self._signs_refused_after_s)
            raise LogUnavailable("signs of life are refused, as asked for")

    async def end_offset(self, partition: int) -> int:
        self._check_open()
        return self.storage.end_offset(partition)

    async def prepare_claim(self, partition: int) -> None:
        """See FollowedLog: a claim waits for nothing."""

    async def end_offsets(self, partitions: Sequence[int], *, timeout_ms: int) -> Ends:  # noqa: ARG002 -- asks no broker
        """See FollowedLog."""
        await asyncio.sleep(0)
        yield {number: self.storage.end_offset(number) for number in partitions}

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """Read as the contract says. Yields to other tasks before each chunk, as reading from a disk does."""
        self._check_open()
        snapshot = self.storage.between(partition, start, end)
        for index in range(0, len(snapshot), CHUNK_RECORDS_MAX):
            await asyncio.sleep(0)
            yield snapshot[index : index + CHUNK_RECORDS_MAX]

    async def append(
        self, partition: int, epoch: int, transitions: Sequence[Transition]
    ) -> Sequence[AppendRefused | None]:
        """Store for this log's writers, and fail as requested."""
        self._check_open()
        await asyncio.sleep(0)  # an append never completes before the caller's loop has run other tasks
        if self._fails:
            self._fails = False
            raise LogUnavailable("the append failed, as asked for")
        if epoch < self.storage.fences[partition]:
            raise Deposed(partition, epoch)
        self.storage.fences[partition] = epoch
        verdicts = self._store(partition, transitions)
        self.next_offsets[partition, epoch] = self.storage.end_offset(partition)
        if self._released is not None:
            await self._released.wait()
        if self._loses_acknowledgement:
            self._loses_acknowledgement = False
            raise LogUnavailable("the acknowledgement was lost, as asked for")
        return verdicts

    async def repeat(self, writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:  # noqa: ARG002 -- asks no broker
        """See EventLog."""
        await asyncio.sleep(0)
        yield {writer.partition: self._repeated(writer.partition, writer.epoch) for writer in writers}

    def _repeated(self, partition: int, epoch: int) -> Repeated:
        if epoch < self.storage.fences[partition]:
            return Deposed(partition, epoch)
        return (partition, epoch) in self.next_offsets

    def _store(self, partition: int, transitions: Sequence[Transition]) -> list[AppendRefused | None]:
        limit_bytes = self._batch_bytes_max
        if self._refuses_above_bytes is not None:
            limit_bytes, self._refuses_above_bytes = self._refuses_above_bytes, None
        timestamp_ms = self._wall_ms()
        verdicts: list[AppendRefused | None] = []
        for transition in transitions:
            verdict = verdict_on(transition, limit_bytes)
            verdicts.append(verdict)
            if verdict is None:
                self._store_transition(partition, transition, timestamp_ms)
        return verdicts

    def _store_transition(self, partition: int, transition: Transition, timestamp_ms: int) -> None:
        offset = self.storage.end_offset(partition)
        self.storage.records[partition].extend(
            StoredRecord(partition, offset + index, timestamp_ms, record.key, record.value)
            for index, record in enumerate(transition)
        )

    def _check_open(self) -> None:
        if not self._is_open:
            raise LogUnavailable("the event log in memory is not open")


class MemoryLogWriter:
    """A `LogWriter` of a `MemoryEventLog`."""

    def __init__(self, log: MemoryEventLog, partition: int, epoch: int, *, was_owned: bool) -> None:
        self.was_owned = was_owned
        self._log = log
        self._partition = partition
        self._epoch = epoch

    @property
    def partition(self) -> int:
        return self._partition

    @property
    def epoch(self) -> int:
        return self._epoch

    async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        return await self._log.append(self._partition, self._epoch, transitions)

    @property
    def next_offset(self) -> int | None:
        return self._log.next_offsets.get((self._partition, self._epoch))
