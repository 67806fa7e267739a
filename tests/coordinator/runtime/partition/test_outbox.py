"""The outbox of a partition: which events are written together, and in which order."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from muster.coordinator.group.commands import OffsetToCommit
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.outbox import Outbox, OutboxEnded, WriteUnit
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, Deposed, LogUnavailable
from muster.events.records import Record, Transition
from tests.coordinator.runtime.test_runtime import story

REFUSED = AppendRefused(size_bytes=2, limit_bytes=1)
GROUP = GroupId("orders")


class Writer:
    """Records the appends, and refuses a transition with the key `refused`."""

    partition, epoch, next_offset, was_owned = 0, 1, None, True

    def __init__(self) -> None:
        self.appended: list[int] = []

    async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        self.appended.append(len(transitions))
        return [REFUSED if transition[0].key == b"refused" else None for transition in transitions]


def unit(settled: list[AppendRefused | None], *keys: bytes, commits: bool = False) -> WriteUnit:
    committed = OffsetToCommit(
        topic="t", partition=0, offset=7, leader_epoch=-1, metadata="", commit_ms=1, expire_ms=None
    )
    return WriteUnit(
        transition=tuple(Record(key, b"value") for key in keys),
        offsets=(OffsetsChange(group_id=GROUP, committed=(committed,)),) if commits else (),
        settled=settled.append,
    )


def outbox(writer: Writer, offsets: MemoryOffsetStore) -> Outbox:
    return Outbox(writer, offsets, lambda error: pytest.fail(str(error)))


class HungWriter(Writer):
    """Answers an append when the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        await self.answer
        return await super().append(transitions)


async def nothing() -> None:
    pass


Waits = Callable[[Outbox], Coroutine[Any, Any, None]]
WAITS: dict[str, Waits] = {
    "an append": lambda out: out.appended((Record(b"key", b"value"),)),
    "a step": lambda out: out.between_writes(nothing),
}


@pytest.mark.parametrize("error", [Deposed(0, 1), LogUnavailable("no broker"), ZeroDivisionError("a bug")], ids=repr)
@pytest.mark.parametrize("waits", WAITS.values(), ids=WAITS)
async def test_a_caller_that_waits_gets_an_error_when_the_partition_is_lost(waits: Waits, error: Exception) -> None:
    """After the loss was reported; later callers as well."""
    writer, lost = HungWriter(), list[Exception]()
    out = Outbox(writer, MemoryOffsetStore(), lost.append)
    out.submit(unit([], b"key"))
    await asyncio.sleep(0)  # the append is pending
    waiting = asyncio.create_task(waits(out))
    await asyncio.sleep(0)
    writer.answer.set_exception(error)
    async with asyncio.timeout(60):
        with pytest.raises(OutboxEnded, match="partition 0"):
            await waiting
        with pytest.raises(OutboxEnded):
            await waits(out)
    assert lost == [error]
    await out.close()


@pytest.mark.parametrize("waits", WAITS.values(), ids=WAITS)
async def test_a_caller_that_waits_gets_an_error_when_the_outbox_is_closed(waits: Waits) -> None:
    """For example when the partition is released while an append hangs."""
    out = outbox(HungWriter(), MemoryOffsetStore())
    out.submit(unit([], b"key"))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(waits(out))
    await asyncio.sleep(0)
    await out.close()
    async with asyncio.timeout(60):
        with pytest.raises(OutboxEnded):
            await waiting


async def test_the_caller_of_a_step_that_fails_gets_an_error() -> None:
    """The error itself causes the loss of the partition."""
    lost = list[Exception]()
    out, error = Outbox(Writer(), MemoryOffsetStore(), lost.append), LogUnavailable("no broker")

    async def fails() -> None:
        raise error

    async with asyncio.timeout(60):
        with pytest.raises(OutboxEnded):
            await out.between_writes(fails)
    assert lost == [error]
    await out.close()


@story
async def test_a_cancelled_caller_ends_nothing_but_itself() -> None:
    """Its unit is appended, its step runs, and other units are completed."""
    writer, settled, steps = Writer(), list[AppendRefused | None](), list[str]()

    async def step() -> None:
        steps.append("ran")

    out = outbox(writer, MemoryOffsetStore())
    work: list[Awaitable[None]] = [out.appended((Record(b"key", b"value"),)), out.between_writes(step)]
    tasks = [asyncio.ensure_future(each) for each in work]
    await asyncio.sleep(0)
    for each in tasks:
        each.cancel()
    out.submit(unit(settled, b"key"))
    await out.drained()
    assert (sum(writer.appended), steps, settled) == (2, ["ran"], [None])
    await out.close()


@story
async def test_waiting_events_are_appended_together_up_to_a_thousand_groups() -> None:
    """With more the first of them would wait for the last."""
    writer, settled = Writer(), list[AppendRefused | None]()
    out = outbox(writer, MemoryOffsetStore())
    for _ in range(2_001):
        out.submit(unit(settled, b"key"))
    await out.drained()
    assert writer.appended == [1_000, 1_000, 1]
    assert settled == [None] * 2_001
    await out.close()


@story
async def test_offsets_of_refused_events_are_not_stored() -> None:
    """Each unit gets its own result."""
    offsets = MemoryOffsetStore()
    out = outbox(Writer(), offsets)
    refused, taken = list[AppendRefused | None](), list[AppendRefused | None]()
    out.submit(unit(refused, b"refused", commits=True))
    await out.drained()
    assert (refused, dict(offsets.committed(GROUP))) == ([REFUSED], {})
    out.submit(unit(taken, b"key", commits=True))
    await out.drained()
    assert taken == [None]
    assert offsets.committed(GROUP)["t", 0].offset == 7
    await out.close()


@story
async def test_transitions_are_counted_when_they_are_durable() -> None:
    """A refused one is not counted."""

    def counted() -> float:
        return REGISTRY.get_sample_value("muster_transitions_appended_total") or 0.0

    out, before = outbox(Writer(), MemoryOffsetStore()), counted()
    for key in (b"key", b"refused", b"another"):
        out.submit(unit([], key))
    await out.drained()
    assert counted() - before == 2
    await out.close()


@story
async def test_an_append_proves_the_lease_from_its_send_time() -> None:
    """A refusal proves nothing: it may be due to our own limit."""
    now_ms = 10_000
    lease = AnswerLease(2_000, lambda: now_ms)
    out = Outbox(Writer(), MemoryOffsetStore(), lambda error: pytest.fail(str(error)), lease)
    for key, is_proven in ((b"refused", False), (b"key", True)):
        out.submit(unit([], key))
        await out.drained()
        assert lease.covers is is_proven
    now_ms = 12_000
    assert not lease.covers
    await out.close()


class RefusingOffsets(MemoryOffsetStore):
    """Refuses the first change of each write."""

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        return [REFUSED, *(await super().write(changes[1:]))]


async def test_a_unit_of_which_one_change_of_offsets_is_refused_is_refused() -> None:
    """Even if a later change of it is stored."""
    settled: list[AppendRefused | None] = []
    one = unit(settled, commits=True)
    out = outbox(Writer(), RefusingOffsets())
    out.submit(msgspec.structs.replace(one, offsets=one.offsets * 2))
    await out.drained()
    assert settled == [REFUSED]
    await out.close()


async def test_an_idle_outbox_waits_for_no_write() -> None:
    """The status would report an append that hangs, and an outage would seem to have started with it."""
    out = outbox(Writer(), MemoryOffsetStore())
    out.submit(unit([], b"key", commits=True))
    await out.drained()
    assert out.waits is None
    await out.close()
