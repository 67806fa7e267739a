"""The event log in memory: the contract, and the faults that it plays for other tests."""

import asyncio

import pytest

from muster.events.log.base import AppendRefused, Deposed, EventLog, LogUnavailable, SignOfLife
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.records import Record
from tests.events.log.contract import EventLogContract
from tests.events.log.repeating import repeated
from tests.events.log.storage import BATCH_BYTES_MAX
from tests.events.log.transitions import flat, read_all, records_of, transition
from tests.faults.process import seconds, story


class MemoryFaults:
    def lose_next_acknowledgement(self, log: EventLog) -> None:
        assert isinstance(log, MemoryEventLog)
        log.lose_next_acknowledgement()


class MemoryLogStorage:
    def __init__(self) -> None:
        self.faults = MemoryFaults()
        self._storage = MemoryStorage(partitions=3)

    def make_log(self, *, read_only: bool = False, batch_bytes_max: int = BATCH_BYTES_MAX) -> MemoryEventLog:
        return MemoryEventLog(self._storage, batch_bytes_max=batch_bytes_max)


class TestMemoryEventLog(EventLogContract):
    @pytest.fixture
    def storage(self) -> MemoryLogStorage:
        return MemoryLogStorage()


@pytest.fixture
async def log() -> MemoryEventLog:
    log = MemoryEventLog(MemoryStorage(partitions=2), wall_ms=lambda: 1_000)
    await log.open()
    return log


async def until_stored(log: MemoryEventLog) -> None:
    for _ in range(100):
        if await log.end_offset(0):
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing was stored")


async def test_an_append_that_is_made_to_fail_stores_nothing(log: MemoryEventLog) -> None:
    """The one after it is well again."""
    writer = await log.claim(0)
    log.fail_next_append()

    with pytest.raises(LogUnavailable):
        await writer.append([transition("failed")])
    assert await read_all(log) == []

    assert list(await writer.append([transition("stored")])) == [None]
    assert records_of(await read_all(log)) == list(transition("stored"))


async def test_a_lost_acknowledgement_is_lost_once(log: MemoryEventLog) -> None:
    """The append that was not acknowledged is stored; the next is acknowledged."""
    writer = await log.claim(0)
    log.lose_next_acknowledgement()

    with pytest.raises(LogUnavailable):
        await writer.append([transition("unknown")])
    assert list(await writer.append([transition("known")])) == [None]

    assert records_of(await read_all(log)) == flat([transition("unknown"), transition("known")])


async def test_transitions_are_refused_by_the_requested_limit(log: MemoryEventLog) -> None:
    """Only in the next append, and only those over it."""
    writer = await log.claim(0)
    small, large = transition("s", records=1), transition("large", records=10)
    log.refuse_in_next_append(limit_bytes=50)

    verdicts = list(await writer.append([small, large]))

    size_bytes = sum(len(one.key) + len(one.value or b"") for one in large)
    assert verdicts == [None, AppendRefused(size_bytes=size_bytes, limit_bytes=50)]
    assert list(await writer.append([large])) == [None]
    assert records_of(await read_all(log)) == flat([small, large])


async def test_withheld_acknowledgements_come_when_they_are_released(log: MemoryEventLog) -> None:
    """Stored records can be read before their writer gets the acknowledgement."""
    writer = await log.claim(0)
    release = log.hold_acknowledgements()
    appending = asyncio.create_task(writer.append([transition("held")]))
    await until_stored(log)
    assert not appending.done()

    release.set()

    assert list(await appending) == [None]
    assert list(await writer.append([transition("next")])) == [None]


async def test_a_writer_deposed_while_its_acknowledgement_is_withheld_was_stored(log: MemoryEventLog) -> None:
    """The claim came after the append, which is therefore stored before the fence record."""
    other = MemoryEventLog(log.storage)
    await other.open()
    old = await log.claim(0)
    release = log.hold_acknowledgements()
    appending = asyncio.create_task(old.append([transition("held")]))
    await until_stored(log)

    new = await other.claim(0)
    await new.append([transition("fence")])
    release.set()

    assert list(await appending) == [None]
    with pytest.raises(Deposed):
        await old.append([transition("late")])
    assert records_of(await read_all(log)) == flat([transition("held"), transition("fence")])


async def test_signs_of_life_that_are_refused_are_neither_left_nor_read(log: MemoryEventLog) -> None:
    """The last sign that was written remains."""
    first, second = (SignOfLife(owner=owner, wall_ms=1) for owner in ("first", "second"))
    await log.leave_sign_of_life(first, timeout_ms=1_000)
    log.refuse_signs_of_life()
    with pytest.raises(LogUnavailable, match="refused"):
        await log.leave_sign_of_life(second, timeout_ms=1_000)
    with pytest.raises(LogUnavailable, match="refused"):
        await log.last_signs_of_life(timeout_ms=1_000)
    assert log.storage.signs_of_life == {"first": 1}


async def test_records_are_stamped_by_the_clock_that_was_given(log: MemoryEventLog) -> None:
    """A simulation has its own clock."""
    await (await log.claim(0)).append([transition("a")])

    assert {stored.timestamp_ms for stored in await read_all(log)} == {1_000}


@story
async def test_it_gives_way_and_takes_no_time() -> None:
    """So the log does not determine a story's times."""
    log = MemoryEventLog()
    await log.open()
    writer = await log.claim(0)
    began_s = seconds()
    await writer.append([transition("a")])
    assert records_of(await read_all(log)) == list(transition("a"))
    assert seconds() == began_s


async def test_a_log_that_is_not_open_is_unavailable() -> None:
    """Neither before opening nor after closing."""
    log = MemoryEventLog()
    with pytest.raises(LogUnavailable):
        await log.claim(0)
    await log.open()
    writer = await log.claim(0)
    await log.close()
    with pytest.raises(LogUnavailable):
        await writer.append([transition("a")])
    with pytest.raises(LogUnavailable):
        await read_all(log)
    with pytest.raises(LogUnavailable):
        await log.end_offset(0)
    with pytest.raises(LogUnavailable):
        await log.has_owners_record(0)
    with pytest.raises(LogUnavailable):
        await log.last_signs_of_life(timeout_ms=1_000)
    with pytest.raises(LogUnavailable):
        await log.leave_sign_of_life(SignOfLife(owner="a", wall_ms=1), timeout_ms=1_000)


async def test_an_append_that_is_sent_again_is_known_until_a_newer_writer_appends() -> None:
    """A claim alone deposes no writer."""
    storage = MemoryStorage(partitions=1)
    log = MemoryEventLog(storage)
    await log.open()
    writer = await log.claim(0)
    assert await repeated(log, writer) == {0: False}
    await writer.append([(Record(b"a", b"1"),)])
    newer = await log.claim(0)
    assert await repeated(log, writer) == {0: True}
    await newer.append([(Record(b"a", b"2"),)])
    answers = [(await repeated(log, each))[0] for each in (writer, newer)]
    assert isinstance(answers[0], Deposed)
    assert (answers[0].partition, answers[0].epoch, answers[1]) == (0, 1, True)
    assert (log.location, log.identity, log.warnings, log.stored_by(0)) == ("memory", storage.identity, (), "memory")
