"""The first half of the contract: what is appended can be read, between any offsets, while others append."""

import asyncio
import re
import time

import pytest

from muster.events.log.base import EventLog, FollowedLog, LogWriter
from muster.events.records import Record
from tests.events.log.storage import LogStorage, OpenLog
from tests.events.log.transitions import (
    assert_in_order,
    assert_whole,
    flat,
    read_all,
    record,
    records_of,
    transition,
)


class ReadingContract:
    """Reading. The storage and the logs are those of `EventLogContract`."""

    # Which log it is.

    async def test_a_log_has_the_same_identity_at_each_opening(self, log: EventLog, open_log: OpenLog) -> None:
        """For every opener; it may be part of a Kafka resource name."""
        again, reader = await open_log(), await open_log(read_only=True)

        assert log.identity == again.identity == reader.identity
        assert re.fullmatch(r"[A-Za-z0-9._-]{8,200}", log.identity)

    async def test_the_storage_of_a_partition_can_be_described(self, log: EventLog) -> None:
        """As text."""
        assert all(log.stored_by(partition) for partition in range(log.partitions))

    async def test_a_partition_has_an_owners_record_once_one_was_appended(
        self, log: EventLog, open_log: OpenLog
    ) -> None:
        """A claim leaves none; another process finds it, too, and so does the next claim."""
        writer = await log.claim(0)
        assert not await log.has_owners_record(0)
        assert not (await log.claim(0)).was_owned

        writer = await log.claim(0)
        await writer.append([transition("a")])

        for opened in (log, await open_log()):
            assert await opened.has_owners_record(0)
            assert not await opened.has_owners_record(1)
        assert [(await log.claim(partition)).was_owned for partition in (0, 1)] == [True, False]

    # Appended records are read.

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

    async def test_the_ends_of_several_partitions_can_be_requested(self, log: EventLog, writer: LogWriter) -> None:
        """In one call, for a log that others follow."""
        if not isinstance(log, FollowedLog):
            pytest.skip("nobody follows a file: it has one process")
        await writer.append([transition("a", records=3)])

        ends: dict[int, int] = {}
        async for some in log.end_offsets(range(log.partitions), timeout_ms=60_000):
            ends |= some

        assert ends == {number: 3 if number == writer.partition else 0 for number in range(log.partitions)}
        assert [each async for each in log.end_offsets((), timeout_ms=60_000) if each] == []

    async def test_records_are_read_in_the_order_of_their_append(self, log: EventLog, writer: LogWriter) -> None:
        """Transitions of one append, and of several, follow one another."""
        first, second, third = transition("a"), transition("b", records=3), transition("c", records=1)

        assert list(await writer.append([first, second])) == [None, None]
        assert list(await writer.append([third])) == [None]

        stored = await read_all(log)
        assert records_of(stored) == flat([first, second, third])
        assert_in_order(stored)
        assert {one.partition for one in stored} == {0}
        assert await log.end_offset(0) == stored[-1].offset + 1

    async def test_an_owners_records_are_not_foreign(self, log: EventLog, writer: LogWriter) -> None:
        """Small and large ones, tombstones too; and no one else has appended in between."""
        large = tuple(record(f"large-{number}", "value" * 100) for number in range(100))
        await writer.append([transition("a"), (record("gone", None),)])
        await writer.append([large])

        stored = await read_all(log)
        assert len(stored) > len(large)
        assert not any(one.is_foreign for one in stored)

    async def test_a_record_carries_the_wall_clock_of_its_append(self, log: EventLog, writer: LogWriter) -> None:
        """Replay shows these times to people."""
        before_ms = int(time.time() * 1000)
        await writer.append([transition("a")])
        after_ms = int(time.time() * 1000)

        for stored in await read_all(log):
            assert before_ms - 1000 <= stored.timestamp_ms <= after_ms + 1000

    async def test_a_tombstone_is_not_an_empty_value(self, log: EventLog, writer: LogWriter) -> None:
        """None means that the key is gone; empty bytes are a value."""
        records = (record("gone", None), record("empty", ""), record("", "the empty key"))

        await writer.append([records])

        assert records_of(await read_all(log)) == list(records)

    async def test_any_bytes_are_returned_unchanged(self, log: EventLog, writer: LogWriter) -> None:
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
        """A thousand groups that change at the same time are one append."""
        transitions = [transition(str(number), records=1 + number % 5) for number in range(1000)]

        assert list(await writer.append(transitions)) == [None] * 1000

        stored = await read_all(log)
        assert records_of(stored) == flat(transitions)
        assert_whole(stored)

    async def test_reopening_gives_the_same(self, open_log: OpenLog, storage: LogStorage) -> None:
        """Stored records are there for the next process, offsets and times included."""
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

    async def test_offsets_continue_after_reopening(self, open_log: OpenLog, storage: LogStorage) -> None:
        """The next process appends after the existing records."""
        first = storage.make_log()
        await first.open()
        await (await first.claim(0)).append([transition("a")])
        await first.close()

        again = await open_log()
        await (await again.claim(0)).append([transition("b")])

        stored = await read_all(again)
        assert_in_order(stored)
        assert records_of(stored) == flat([transition("a"), transition("b")])

    async def test_closing_twice_is_not_an_error(self, storage: LogStorage) -> None:
        """A process that stops in a hurry may close a closed log."""
        log = storage.make_log()
        await log.open()
        await log.close()
        await log.close()

    # Reading.

    async def test_reading_starts_at_the_requested_position(self, log: EventLog, writer: LogWriter) -> None:
        """A tail is read without what comes before it."""
        await writer.append([transition("a", records=5)])
        await writer.append([transition("b", records=5)])
        stored = await read_all(log)

        for start in range(11):
            assert await read_all(log, start=start) == [one for one in stored if one.offset >= start]
        assert await read_all(log, start=1000) == []

    async def test_reading_stops_before_the_requested_end(self, log: EventLog, writer: LogWriter) -> None:
        """A takeover reads up to its own fence record, and no further."""
        await writer.append([transition("a", records=5)])
        stored = await read_all(log)

        assert await read_all(log, end=3) == stored[:3]
        assert await read_all(log, start=1, end=3) == stored[1:3]
        assert await read_all(log, start=3, end=3) == []
        assert await read_all(log, start=4, end=2) == []

    async def test_records_appended_during_a_read_are_not_part_of_it(self, log: EventLog, writer: LogWriter) -> None:
        """Reading ends at the end of the log as of its start, so that it ends at all."""
        before = [transition(f"before-{number}", records=50) for number in range(100)]
        await writer.append(before)
        reading = log.read(0)
        stored = list(await anext(reading))

        await writer.append([transition("after")])

        async for chunk in reading:
            stored += chunk
        assert records_of(stored) == flat(before)

    async def test_an_abandoned_read_leaves_the_log_usable(self, log: EventLog, writer: LogWriter) -> None:
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
        """Many operators read one live log at once."""
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
