"""The outbox makes events and offsets durable, so that the replies that wait for them can be sent.

A *write unit* is the batch of one group: the events of one or more decisions, and changes of its offsets. Units of many
groups that are submitted during an append share the next one. A unit's offsets are written after its events, so that no
offset is durable for a group that is not. Between two appends a step may run, e.g. one that switches to another writer
of the same owner.

    submit(unit) -> events appended -> offsets written -> unit.settled(None | AppendRefused)
                 -> Deposed, LogUnavailable: lost(error), and no further unit is settled

A coroutine that is waiting for an append or for its step then gets OutboxEnded, as it does after `close`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from muster.coordinator.foreign_records import gap_between
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.load.slices import Yielder
from muster.coordinator.observability.metrics import (
    APPEND_FAILURES,
    APPEND_SECONDS,
    TRANSITIONS_APPENDED,
    AppendFailure,
)
from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.tasks import on_failure
from muster.events.log.base import AppendRefused, Deposed, LogDenied, LogError, LogUnavailable, LogWriter
from muster.events.records import Transition

R = TypeVar("R")

UNITS_PER_APPEND_MAX = 1_000


class WriteUnit(msgspec.Struct, kw_only=True, eq=False):
    """One group's batch. `settled` is called once: with None when all is durable, or with the refusal."""

    transition: Transition
    offsets: tuple[OffsetsChange, ...]
    settled: Callable[[AppendRefused | None], None]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """The write in progress, of offsets or of events; `began_s` is by the event loop's clock."""

    of_offsets: bool
    began_s: float


OnLost = Callable[[Exception], None]


class OutboxEnded(LogError):
    """The partition was lost or closed before the append or step finished; the append may be in the log."""

    def __init__(self, partition: int) -> None:
        super().__init__(f"partition {partition}: it was lost or closed before this write was done")
        self.partition = partition


class Outbox:
    """The outbox of one owned partition. `lost` is called at most once, and ends it."""

    def __init__(self, writer: LogWriter, offsets: OffsetStore, lost: OnLost, lease: AnswerLease | None = None) -> None:
        self._writer = writer
        self._lease = lease
        self.appended_ms = 0 if lease is None else lease.now_ms()
        """When the last append was sent, by the lease's clock."""
        self._offsets = offsets
        self._lost = lost
        self.on_foreign_records: Callable[[range], None] | None = None
        """Called with a range of offsets that contains foreign records."""
        self._waiting: list[WriteUnit] = []
        self._steps: list[tuple[Callable[[], Awaitable[None]], bool, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._write_now: Write | None = None
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(), name=f"outbox-{writer.partition}")
        self._task.add_done_callback(on_failure(lost))

    @property
    def writer(self) -> LogWriter:
        """The current writer."""
        return self._writer

    def submit(self, unit: WriteUnit) -> None:
        """Queue the unit for the next append."""
        self._waiting.append(unit)
        self._idle.clear()
        self._wake.set()

    async def appended(self, transition: Transition) -> None:
        """Append the transition with the next units; returns when it is durable. Raises LogUnavailable, OutboxEnded."""
        settled: asyncio.Future[AppendRefused | None] = self._loop.create_future()
        self.submit(WriteUnit(transition=transition, offsets=(), settled=settled.set_result))
        if (refused := await self._unless_ended(settled)) is not None:
            raise partition_record_refused(self._writer, refused)

    async def between_writes(self, step: Callable[[], Awaitable[None]], *, of_offsets: bool = False) -> None:
        """Run a step between two writes. If it raises LogError, the outbox is lost. Raises OutboxEnded.

        `of_offsets`: the step writes to the log of the offsets.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self._steps.append((step, of_offsets, done))
        self._idle.clear()
        self._wake.set()
        await self._unless_ended(done)

    async def _unless_ended(self, done: asyncio.Future[R]) -> R:
        either: set[asyncio.Future[Any]] = {done, self._task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise OutboxEnded(self._writer.partition)
        return done.result()

    def switch_to(self, writer: LogWriter) -> None:
        """Switch to another writer, which has written its fence record; must be called in a step."""
        self._check_gap(self._writer.next_offset, writer.next_offset, 1)
        self._writer = writer

    @property
    def waits(self) -> tuple[Write, float] | None:
        """The write in progress, and its age in seconds. Thread-safe; may be called from `lost`."""
        write = self._write_now
        return None if write is None else (write, self._loop.time() - write.began_s)

    def _begin(self, *, of_offsets: bool) -> None:
        self._write_now = Write(of_offsets=of_offsets, began_s=self._loop.time())

    async def drained(self) -> None:
        """Wait until nothing is being written, or the outbox is lost."""
        idle = asyncio.create_task(self._idle.wait())
        try:
            await asyncio.wait({idle, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            idle.cancel()

    async def close(self) -> None:
        """Stop immediately; queued units are dropped."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._write_all()
            except LogError as error:
                APPEND_FAILURES.labels(kind_of(error).value).inc()
                self._lost(error)
                return
            self._idle.set()

    def _check_gap(self, before: int | None, after: int | None, appended: int) -> None:
        """Report foreign records if there are more records between two offsets than we have appended."""
        gap = gap_between(before, after, appended)
        if self.on_foreign_records is not None and gap is not None:
            self.on_foreign_records(gap)

    async def _write_all(self) -> None:
        while self._waiting or self._steps:
            if self._steps:
                step, of_offsets, done = self._steps.pop(0)
                self._begin(of_offsets=of_offsets)
                await step()
                done.set_result(None)
            units = self._waiting[:UNITS_PER_APPEND_MAX]
            del self._waiting[:UNITS_PER_APPEND_MAX]
            await self._write(units)
        self._write_now = None

    async def _write(self, units: Sequence[WriteUnit]) -> None:
        with_events = [unit for unit in units if unit.transition]
        verdicts: dict[int, AppendRefused | None] = {}
        if with_events:
            self._begin(of_offsets=False)
            before = self._writer.next_offset
            sent_ms = 0 if self._lease is None else self._lease.now_ms()
            with APPEND_SECONDS.time():
                answers = await self._writer.append([unit.transition for unit in with_events])
            TRANSITIONS_APPENDED.inc(answers.count(None))
            if len(answers) > answers.count(None):
                APPEND_FAILURES.labels(AppendFailure.TOO_LARGE.value).inc(len(answers) - answers.count(None))
            if self._lease is not None and None in answers:
                self.appended_ms = sent_ms
                self._lease.proven(sent_ms)
            appended = sum(
                len(unit.transition) for unit, answer in zip(with_events, answers, strict=True) if not answer
            )
            self._check_gap(before, self._writer.next_offset, appended)
            verdicts = {id(unit): answer for unit, answer in zip(with_events, answers, strict=True)}
        stored = [(unit, change) for unit in units if verdicts.get(id(unit)) is None for change in unit.offsets]
        if stored:
            self._begin(of_offsets=True)
            answers = await self._offsets.write([change for _, change in stored])
            for (unit, _), answer in zip(stored, answers, strict=True):
                if answer is not None and unit.transition:
                    # The unit's events are stored but its offsets never will be, so the stored state has to be read
                    # again.
                    raise LogUnavailable(f"a commit of {answer.size_bytes} bytes was refused, its events are stored")
                verdicts[id(unit)] = verdicts.get(id(unit)) or answer
        yielder = Yielder()
        for unit in units:
            unit.settled(verdicts.get(id(unit)))
            await yielder.maybe_yield()


def kind_of(error: Exception) -> AppendFailure:
    """Map an error of the log to the kind of failure."""
    match error:
        case Deposed():
            return AppendFailure.DEPOSED
        case LogDenied():
            return AppendFailure.DENIED
        case LogUnavailable():
            return AppendFailure.UNAVAILABLE
    return AppendFailure.OTHER


def partition_record_refused(writer: LogWriter, refused: AppendRefused) -> LogUnavailable:
    """The error for a record about the partition itself that is too large: the partition cannot be owned without it."""
    return LogUnavailable(
        f"partition {writer.partition}: a record of the partition itself, of {refused.size_bytes} bytes, was refused;"
        f" the limit is {refused.limit_bytes} bytes"
    )
