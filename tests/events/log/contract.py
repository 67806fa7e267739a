"""What every event log does, whatever keeps its events: one suite, inherited by each implementation's tests.

    class TestMemoryEventLog(EventLogContract):
        @pytest.fixture
        def storage(self) -> MemoryLogStorage: ...

An implementation brings its `LogStorage`: the place that the events are kept in, which outlives the logs that
are opened on it. Two logs of one storage stand for two processes. Each test has a storage of its own, with
two partitions or more.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Protocol

import pytest

from events.log.base import AppendRefused, Deposed, EventLog, LogUnavailable, LogWriter
from events.records import Record, StoredRecord, Transition

MIB = 1024 * 1024
BATCH_BYTES_MAX = 64 * MIB


class LogFaults(Protocol):
    """What can be done to an opened log of this storage, from outside."""

    def lose_next_acknowledgement(self, log: EventLog) -> None:
        """The log's next append is stored, and its writer is not told so: it raises LogUnavailable."""
        ...


class LogStorage(Protocol):
    """A place that events are kept in, with two partitions or more, empty at first."""

    @property
    def faults(self) -> LogFaults | None:
        """None where this fault cannot be played; its tests are skipped then, with a reason."""
        ...

    def make_log(self, *, read_only: bool = False, batch_bytes_max: int = BATCH_BYTES_MAX) -> EventLog:
        """Another log on this storage, not yet opened. `batch_bytes_max` limits one transition."""
        ...


OpenLog = Callable[..., Awaitable[EventLog]]
"""`open_log(read_only=..., batch_bytes_max=...)`: as `LogStorage.make_log`, opened; closed after the test."""


def record(key: str, value: str | None = "value") -> Record:
    return Record(key.encode(), None if value is None else value.encode())


def transition(name: str, *, records: int = 2) -> Transition:
    """Records whose values tell which transition they are of, which one they are of it, and of how many."""
    return tuple(record(f"{name}-{index}", f"{name} {index} {records}") for index in range(records))


def incompressible(size_bytes: int, seed: str) -> bytes:
    """The same bytes for the same seed; no compression makes a batch of them smaller."""
    return hashlib.shake_128(seed.encode()).digest(size_bytes)


async def read_all(log: EventLog, partition: int = 0, *, start: int = 0, end: int | None = None) -> list[StoredRecord]:
    return [stored async for chunk in log.read(partition, start=start, end=end) for stored in chunk]


def records_of(stored: Iterable[StoredRecord]) -> list[Record]:
    return [Record(one.key, one.value) for one in stored]


def flat(transitions: Iterable[Transition]) -> list[Record]:
    return [one for each in transitions for one in each]


def assert_in_order(stored: list[StoredRecord]) -> None:
    assert all(before.offset < after.offset for before, after in pairwise(stored))


def assert_whole(stored: list[StoredRecord]) -> None:
    """Every transition made by `transition()` is there from first record to last, at a stretch, once."""
    seen: set[str] = set()
    expected: tuple[str, int, int] | None = None
    for one in stored:
        assert one.value is not None
        name, index, records = one.value.decode().split()
        found = (name, int(index), int(records))
        if expected is None:
            assert found[1] == 0, f"{name} begins with its record {index}"
            assert name not in seen, f"{name} is there twice"
            seen.add(name)
        else:
            assert found == expected
        expected = (name, found[1] + 1, found[2]) if found[1] + 1 < found[2] else None
    assert expected is None, f"{expected} is missing"


class EventLogContract:
    """The suite. Inherit it, and give it a `storage`."""

    @pytest.fixture
    def storage(self) -> LogStorage:
        raise NotImplementedError("an implementation brings its storage")

    @pytest.fixture
    async def open_log(self, storage: LogStorage) -> AsyncIterator[OpenLog]:
        async with AsyncExitStack() as opened:

            async def open_one(*, read_only: bool = False, batch_bytes_max: int = BATCH_BYTES_MAX) -> EventLog:
                log = storage.make_log(read_only=read_only, batch_bytes_max=batch_bytes_max)
                await log.open()
                opened.push_async_callback(log.close)
                return log

            yield open_one

    @pytest.fixture
    async def log(self, open_log: OpenLog) -> EventLog:
        return await open_log()

    @pytest.fixture
    async def writer(self, log: EventLog) -> LogWriter:
        return await log.claim(0)

    # What is appended is read.

    async def test_an_empty_log_ends_at_zero_and_reads_as_nothing(self, log: EventLog) -> None:
        """A new log has its partitions, with nothing in them."""
        assert log.partitions >= 2
        for partition in range(log.partitions):
            assert await log.end_offset(partition) == 0
            assert await read_all(log, partition) == []

    async def test_claiming_and_appending_nothing_leaves_the_log_empty(self, log: EventLog) -> None:
        """A claim writes no record, an append of no transition neither."""
        writer = await log.claim(0)

        assert list(await writer.append([])) == []

        assert await log.end_offset(0) == 0
        assert await read_all(log) == []

    async def test_records_are_read_in_the_order_of_their_append(self, log: EventLog, writer: LogWriter) -> None:
        """Transitions of one append, and of several, stand one behind the other."""
        first, second, third = transition("a"), transition("b", records=3), transition("c", records=1)

        assert list(await writer.append([first, second])) == [None, None]
        assert list(await writer.append([third])) == [None]

        stored = await read_all(log)
        assert records_of(stored) == flat([first, second, third])
        assert_in_order(stored)
        assert {one.partition for one in stored} == {0}
        assert await log.end_offset(0) == stored[-1].offset + 1

    async def test_a_record_carries_the_wall_clock_of_its_append(self, log: EventLog, writer: LogWriter) -> None:
        """Replay shows these times to people."""
        before_ms = int(time.time() * 1000)
        await writer.append([transition("a")])
        after_ms = int(time.time() * 1000)

        for stored in await read_all(log):
            assert before_ms - 1000 <= stored.timestamp_ms <= after_ms + 1000

    async def test_a_tombstone_is_not_an_empty_value(self, log: EventLog, writer: LogWriter) -> None:
        """None says that the key is gone; empty bytes are a value."""
        records = (record("gone", None), record("empty", ""), record("", "the empty key"))

        await writer.append([records])

        assert records_of(await read_all(log)) == list(records)

    async def test_any_bytes_come_back_as_they_were(self, log: EventLog, writer: LogWriter) -> None:
        """Keys and values are opaque, zero bytes and invalid UTF-8 included."""
        records = (Record(bytes(range(256)), bytes(reversed(range(256)))), Record(b"\x00", b"\xff\x00\xfe"))

        await writer.append([records])

        assert records_of(await read_all(log)) == list(records)

    async def test_partitions_do_not_see_each_other(self, log: EventLog) -> None:
        """Each partition counts its own offsets."""
        zero, one = await log.claim(0), await log.claim(1)

        await zero.append([transition("zero")])
        await one.append([transition("one", records=3)])
        await zero.append([transition("again")])

        assert records_of(await read_all(log, 0)) == flat([transition("zero"), transition("again")])
        assert records_of(await read_all(log, 1)) == flat([transition("one", records=3)])
        assert (zero.partition, one.partition) == (0, 1)

    async def test_two_partitions_can_be_appended_to_at_the_same_time(self, log: EventLog) -> None:
        """Their appends are each as if alone."""
        writers = [await log.claim(partition) for partition in (0, 1)]

        async def append_many(writer: LogWriter) -> None:
            for number in range(20):
                assert list(await writer.append([transition(f"{writer.partition}/{number}")])) == [None]

        await asyncio.gather(*(append_many(writer) for writer in writers))

        for partition in (0, 1):
            expected = flat(transition(f"{partition}/{number}") for number in range(20))
            assert records_of(await read_all(log, partition)) == expected

    async def test_many_transitions_fit_in_one_append(self, log: EventLog, writer: LogWriter) -> None:
        """A thousand groups that change at one moment are one append."""
        transitions = [transition(str(number), records=1 + number % 5) for number in range(1000)]

        assert list(await writer.append(transitions)) == [None] * 1000

        stored = await read_all(log)
        assert records_of(stored) == flat(transitions)
        assert_whole(stored)

    async def test_reopening_gives_the_same(self, open_log: OpenLog, storage: LogStorage) -> None:
        """What was stored is there for the next process, offsets and times included."""
        first = storage.make_log()
        await first.open()
        writer = await first.claim(0)
        await writer.append([transition("a"), (record("gone", None),)])
        before = await read_all(first)
        await first.close()

        again = await open_log()

        assert await read_all(again) == before
        assert await again.end_offset(0) == before[-1].offset + 1
        assert again.partitions == first.partitions
        assert again.location == first.location

    async def test_offsets_go_on_after_reopening(self, open_log: OpenLog, storage: LogStorage) -> None:
        """The next process appends behind what is there."""
        first = storage.make_log()
        await first.open()
        await (await first.claim(0)).append([transition("a")])
        await first.close()

        again = await open_log()
        await (await again.claim(0)).append([transition("b")])

        stored = await read_all(again)
        assert_in_order(stored)
        assert records_of(stored) == flat([transition("a"), transition("b")])

    async def test_closing_twice_is_no_error(self, storage: LogStorage) -> None:
        """Whoever stops in a hurry may close what is closed."""
        log = storage.make_log()
        await log.open()
        await log.close()
        await log.close()

    # Reading.

    async def test_reading_starts_at_the_position_asked_for(self, log: EventLog, writer: LogWriter) -> None:
        """A tail is read without what stands before it."""
        await writer.append([transition("a", records=5)])
        await writer.append([transition("b", records=5)])
        stored = await read_all(log)

        for start in range(11):
            assert await read_all(log, start=start) == [one for one in stored if one.offset >= start]
        assert await read_all(log, start=1000) == []

    async def test_reading_stops_before_the_end_asked_for(self, log: EventLog, writer: LogWriter) -> None:
        """A takeover reads up to its own fence record, and no further."""
        await writer.append([transition("a", records=5)])
        stored = await read_all(log)

        assert await read_all(log, end=3) == stored[:3]
        assert await read_all(log, start=1, end=3) == stored[1:3]
        assert await read_all(log, start=3, end=3) == []
        assert await read_all(log, start=4, end=2) == []

    async def test_what_is_appended_during_a_reading_is_not_part_of_it(self, log: EventLog, writer: LogWriter) -> None:
        """Reading ends where the log ended when it was asked for, so that it ends at all."""
        before = [transition(f"before-{number}", records=50) for number in range(100)]
        await writer.append(before)
        reading = log.read(0)
        stored = list(await anext(reading))

        await writer.append([transition("after")])

        async for chunk in reading:
            stored += chunk
        assert records_of(stored) == flat(before)

    async def test_a_reading_that_is_given_up_leaves_the_log_usable(self, log: EventLog, writer: LogWriter) -> None:
        """`muster replay` stops when it has seen enough."""
        await writer.append([transition(f"{number}", records=50) for number in range(100)])
        async for _ in log.read(0):
            break

        await writer.append([transition("after")])
        assert records_of(await read_all(log))[-2:] == list(transition("after"))

    async def test_a_reader_sees_whole_transitions_while_a_writer_appends(self, open_log: OpenLog) -> None:
        """Reading a live log from another process shows every transition wholly, and disturbs no append."""
        log, reader = await open_log(), await open_log(read_only=True)
        writer = await log.claim(0)
        await writer.append([transition("0", records=3)])
        appended = 1
        done = asyncio.Event()

        async def append_many() -> None:
            nonlocal appended
            for number in range(1, 100):
                assert list(await writer.append([transition(str(number), records=3)])) == [None]
                appended += 1
            done.set()

        appending = asyncio.create_task(append_many())
        seen = 0
        while not done.is_set():
            acknowledged = appended
            stored = await read_all(reader)
            assert_whole(stored)
            assert len(stored) >= 3 * acknowledged
            assert len(stored) >= seen
            seen = len(stored)
        await appending
        assert records_of(await read_all(reader)) == flat(transition(str(n), records=3) for n in range(100))

    async def test_fifty_readings_beside_a_writer(self, open_log: OpenLog) -> None:
        """Many operators look at one live log at once."""
        log, reader = await open_log(), await open_log(read_only=True)
        writer = await log.claim(0)
        before = [transition(f"before-{number}", records=5) for number in range(200)]
        await writer.append(before)

        async def append_many() -> None:
            for number in range(50):
                assert list(await writer.append([transition(f"during-{number}", records=5)])) == [None]

        async def read_once() -> None:
            stored = await read_all(reader)
            assert_whole(stored)
            assert records_of(stored)[:1000] == flat(before)

        await asyncio.gather(append_many(), *(read_once() for _ in range(50)))
        assert len(await read_all(reader)) == 1250

    # The limit.

    async def test_a_transition_over_the_limit_is_refused_alone(self, open_log: OpenLog) -> None:
        """Its neighbours in the same append are well, and it is refused however often it is tried."""
        log = await open_log(batch_bytes_max=MIB)
        writer = await log.claim(0)
        large = (Record(b"large", incompressible(MIB + 1, "large")),)

        for name in ("1", "2"):
            verdicts = list(await writer.append([transition(f"a{name}"), large, transition(f"b{name}")]))

            assert (verdicts[0], verdicts[2]) == (None, None)
            assert isinstance(verdicts[1], AppendRefused)
            assert verdicts[1].size_bytes > verdicts[1].limit_bytes >= MIB

        expected = flat(transition(name) for name in ("a1", "b1", "a2", "b2"))
        assert records_of(await read_all(log)) == expected

    async def test_of_a_transition_over_the_limit_nothing_is_stored(self, open_log: OpenLog) -> None:
        """Its small records are refused with the large one, and with a large one in sum."""
        log = await open_log(batch_bytes_max=MIB)
        writer = await log.claim(0)
        one_large = (record("small"), Record(b"large", incompressible(MIB + 1, "large")), record("small"))
        many_small = tuple(Record(b"%d" % n, incompressible(MIB // 10, str(n))) for n in range(11))

        verdicts = list(await writer.append([one_large])) + list(await writer.append([many_small]))

        assert all(isinstance(verdict, AppendRefused) for verdict in verdicts)
        assert await log.end_offset(0) == 0
        assert await read_all(log) == []

    async def test_transitions_over_the_limit_in_sum_are_stored(self, open_log: OpenLog) -> None:
        """The limit is on one transition: an append of many is divided as need be."""
        log = await open_log(batch_bytes_max=MIB)
        writer = await log.claim(0)
        transitions = [(Record(b"%d" % n, incompressible(MIB // 2, str(n))),) for n in range(5)]

        assert list(await writer.append(transitions)) == [None] * 5

        assert records_of(await read_all(log)) == flat(transitions)

    async def test_a_group_of_5000_members_with_10_kb_each_is_one_transition(
        self, log: EventLog, writer: LogWriter
    ) -> None:
        """50 MB that are there wholly, as after the assignment of a very large group."""
        blob = incompressible(10_000 + 5_000, "a large group")
        group = tuple(Record(b"member-%d" % n, blob[n : n + 10_000]) for n in range(5_000))

        assert list(await writer.append([group])) == [None]

        assert records_of(await read_all(log)) == list(group)

    # One writer at a time.

    async def test_epochs_grow_with_each_claim(self, log: EventLog, open_log: OpenLog) -> None:
        """A later claim has a higher epoch, in whatever process, also when nothing was appended between."""
        other = await open_log()
        epochs = [(await claimer.claim(0)).epoch for claimer in (log, other, log, log, other)]

        assert all(before < after for before, after in pairwise(epochs))

    async def test_epochs_grow_across_reopening(self, storage: LogStorage) -> None:
        """An epoch is never given out a second time."""
        epochs = []
        for _ in range(3):
            log = storage.make_log()
            await log.open()
            epochs.append((await log.claim(1)).epoch)
            await log.close()

        assert all(before < after for before, after in pairwise(epochs))

    @pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "other process"])
    async def test_a_deposed_writer_appends_nothing_more(
        self, log: EventLog, open_log: OpenLog, elsewhere: bool
    ) -> None:
        """A writer deposed between two appends is told so, each time, and nothing of it is there."""
        claimer = await open_log() if elsewhere else log
        old = await log.claim(0)
        await old.append([transition("old")])

        new = await claimer.claim(0)
        await new.append([transition("fence")])
        for _ in range(2):
            with pytest.raises(Deposed) as deposed:
                await old.append([transition("late"), transition("later")])
            assert (deposed.value.partition, deposed.value.epoch) == (0, old.epoch)
        await new.append([transition("new")])

        expected = flat(transition(name) for name in ("old", "fence", "new"))
        assert records_of(await read_all(log)) == expected

    async def test_a_writer_that_never_appended_is_deposed_all_the_same(self, log: EventLog) -> None:
        """The claim counts, not the first append."""
        old = await log.claim(0)
        new = await log.claim(0)
        await new.append([transition("fence")])

        with pytest.raises(Deposed):
            await old.append([transition("late")])

        assert records_of(await read_all(log)) == list(transition("fence"))

    async def test_a_claim_of_one_partition_deposes_no_writer_of_another(
        self, log: EventLog, open_log: OpenLog
    ) -> None:
        """Ownership is by partition."""
        other = await open_log()
        zero = await log.claim(0)
        one = await other.claim(1)

        await one.append([transition("one")])
        await zero.append([transition("zero")])

        assert records_of(await read_all(log, 0)) == list(transition("zero"))

    async def test_a_claim_while_appends_are_under_way_divides_them(self, log: EventLog, open_log: OpenLog) -> None:
        """Behind the new writer's fence record nothing of the old one is there; what it was told is."""
        other = await open_log()
        old = await log.claim(0)
        acknowledged: list[str] = []
        under_way = asyncio.Event()

        async def append_until_deposed() -> None:
            for number in range(1_000_000):
                names = [f"{number}a", f"{number}b"]
                await old.append([transition(name, records=5) for name in names])
                acknowledged.extend(names)
                if number == 5:
                    under_way.set()

        appending = asyncio.create_task(append_until_deposed())
        await under_way.wait()
        new = await other.claim(0)
        await new.append([transition("fence")])
        fence = (await read_all(other))[-1].offset
        with pytest.raises(Deposed):
            await appending

        stored = await read_all(other)
        assert stored[-1].offset == fence
        assert_whole(stored)
        names = {one.key.decode().split("-")[0] for one in stored}
        assert names.issuperset(acknowledged)

    # The acknowledgement that was lost.

    async def test_what_was_appended_without_acknowledgement_is_there_once(
        self, log: EventLog, open_log: OpenLog, storage: LogStorage
    ) -> None:
        """The writer does not know; whoever claims next and reads up to its fence record does."""
        if storage.faults is None:
            pytest.skip("this storage cannot lose an acknowledgement")
        writer = await log.claim(0)
        await writer.append([transition("before")])
        storage.faults.lose_next_acknowledgement(log)
        with pytest.raises(LogUnavailable):
            await writer.append([transition("unknown"), transition("unknown-too")])

        other = await open_log()
        new = await other.claim(0)
        await new.append([transition("fence")])

        expected = ("before", "unknown", "unknown-too", "fence")
        assert records_of(await read_all(other)) == flat(transition(name) for name in expected)
