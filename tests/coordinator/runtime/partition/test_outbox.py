"""The outbox of a partition: what is written together, and in which order."""

from collections.abc import Sequence

import pytest

from muster.coordinator.group.commands import OffsetToCommit
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.outbox import Outbox, WriteUnit
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused
from muster.events.records import Record, Transition
from tests.coordinator.runtime.test_runtime import story

REFUSED = AppendRefused(size_bytes=2, limit_bytes=1)
GROUP = GroupId("orders")


class Writer:
    """It notes the appends, and refuses a transition with the key `refused`."""

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


@story
async def test_what_waits_is_appended_together_a_thousand_groups_at_a_time() -> None:
    """More would keep the first of them waiting for the last."""
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
    """Each unit is told of its own."""
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
    """A refused one is none."""

    def counted() -> float:
        return REGISTRY.get_sample_value("muster_transitions_appended_total") or 0.0

    out, before = outbox(Writer(), MemoryOffsetStore()), counted()
    for key in (b"key", b"refused", b"another"):
        out.submit(unit([], key))
    await out.drained()
    assert counted() - before == 2
    await out.close()


@story
async def test_what_was_appended_proves_the_lease_from_when_it_was_sent() -> None:
    """A refusal proves nothing: it may be of our own limit."""
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
