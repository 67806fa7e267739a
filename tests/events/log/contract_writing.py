"""The contract's second half: the limit on a transition, one writer at a time, the acknowledgement that was lost."""

import asyncio
from itertools import pairwise

import pytest

from muster.events.log.base import AppendRefused, Deposed, EventLog, LogUnavailable, LogWriter, SignOfLife
from muster.events.records import Record
from tests.events.log.storage import MIB, LogStorage, OpenLog
from tests.events.log.transitions import (
    assert_whole,
    flat,
    incompressible,
    read_all,
    record,
    records_of,
    transition,
)


class WritingContract:
    """Writing. The storage and the logs are those of `EventLogContract`."""

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
        """An epoch is never reused."""
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
        """A writer deposed between two appends gets that error each time, and nothing of it is stored."""
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
        """Nothing of the old writer follows the new one's fence record; everything acknowledged to it is stored."""
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

    # Signs of life.

    async def test_the_last_sign_of_life_is_found_by_the_next_process_that_opens_the_log(
        self, log: EventLog, open_log: OpenLog
    ) -> None:
        """It is among no events, and it takes no claim to leave one."""
        assert await log.last_signs_of_life(timeout_ms=10_000) == {}
        for wall_ms in (1, 2):
            await log.leave_sign_of_life(SignOfLife(owner="größe:1", wall_ms=wall_ms), timeout_ms=10_000)
        other = await open_log()
        assert await other.last_signs_of_life(timeout_ms=10_000) == {"größe:1": 2}
        assert [await other.end_offset(partition) for partition in (0, 1)] == [0, 0]

        await other.leave_sign_of_life(SignOfLife(owner="b:2", wall_ms=3), timeout_ms=10_000)
        assert (await log.last_signs_of_life(timeout_ms=10_000))["b:2"] == 3
        writer = await other.claim(0)
        assert list(await writer.append([transition("a")])) == [None]

    # The acknowledgement that was lost.

    async def test_an_unacknowledged_append_is_stored_once(
        self, log: EventLog, open_log: OpenLog, storage: LogStorage
    ) -> None:
        """The writer does not know; the next claimer, which reads up to its fence record, does."""
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
