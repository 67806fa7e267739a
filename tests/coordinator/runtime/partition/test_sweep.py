"""The sweep of expired groups and offsets, in virtual time: durable first, finished after a crash, step by step."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.runtime.partition.sweep import WORK_OF_A_GROUP, WORK_PER_STEP, Sweep
from muster.events.avro.codec import decode
from muster.events.causes import Cause
from muster.events.events import GroupDeleted, MemberAssigned
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryStorage
from muster.events.records import StoredRecord
from muster.events.state import GroupState
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

INTERVAL_MS = 10_000
INTERVAL_S = INTERVAL_MS / 1000
A_LITTLE_S = 0.1
RETENTION_S = 60
SETTINGS = GroupSettings(
    initial_rebalance_delay_ms=100,
    min_session_timeout_ms=100,
    offsets_retention_minutes=RETENTION_S // 60,
    offsets_retention_check_interval_ms=INTERVAL_MS,
)


def story(run: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run the test in virtual time."""

    def test() -> None:
        simulate(run())  # type: ignore[arg-type]

    test.__name__, test.__doc__ = run.__name__, run.__doc__
    return test


async def started(storage: MemoryStorage | None = None, **given: Any) -> SimulatedProcess:
    return await SimulatedProcess(storage or MemoryStorage(partitions=1), settings=SETTINGS, **given).start()


def deletions(storage: MemoryStorage) -> list[tuple[GroupId, Cause]]:
    events = [decode(record.value) for records in storage.records for record in records if record.value is not None]
    return [(event.group_id, event.why.cause) for event in events if isinstance(event, GroupDeleted)]


def expired() -> list[float]:
    """The number of offsets and groups that have expired in this process, by its metrics."""
    names = ("muster_offsets_expired_total", "muster_groups_expired_total")
    return [REGISTRY.get_sample_value(name) or 0 for name in names]


async def heartbeats(process: SimulatedProcess, reported: JoinGroupOutcome, seconds: float) -> None:
    """Let time pass, with a member that stays alive."""
    for _ in range(int(seconds)):
        await asyncio.sleep(1)
        assert (await process.heartbeat(reported)).error is ErrorCode.none


@story
async def test_an_expired_group_is_gone_after_the_next_sweep() -> None:
    """EX1, EX8: not before it, with its offsets, and the log has the reason."""
    storage = MemoryStorage(partitions=1)
    process = await started(storage)
    counted = expired()
    await process.commit(5, retention_ms=1)
    await asyncio.sleep(INTERVAL_S - A_LITTLE_S)
    assert (await process.describe()).state is GroupState.EMPTY
    assert process.offsets.committed(GROUP)
    await asyncio.sleep(2 * A_LITTLE_S)
    assert (await process.describe()).state is GroupState.DEAD
    assert not process.offsets.group_ids()
    assert deletions(storage) == [(GROUP, Cause.GROUP_EXPIRED)]
    assert [after - before for before, after in zip(counted, expired(), strict=True)] == [1, 1]
    await process.runtime.stop()


@story
async def test_sweeps_come_again_and_again() -> None:
    """EX1, TM4: a sweep that finds nothing is not the last one."""
    process = await started()
    for _ in range(3):
        await process.commit(5)
        assert (await process.delete()).error is ErrorCode.none
        await process.commit(6, retention_ms=15_000)
        await asyncio.sleep(3 * INTERVAL_S)
        assert not process.offsets.group_ids()
    await process.runtime.stop()


@story
async def test_offsets_expire_and_the_group_lives_on() -> None:
    """EX3: those of a topic that no member subscribes, also after a takeover."""
    storage = MemoryStorage(partitions=1)
    first = await started(storage)
    subscription = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
    joined = await first.join("a", metadata=subscription)
    assert (await first.sync(joined)).error is ErrorCode.none
    for topic in ("orders", "old"):
        assert (await first.commit(7, joined, topic=topic)).error is ErrorCode.none
    await first.runtime.stop()
    second = await started(storage, offsets=first.offsets)
    await heartbeats(second, joined, RETENTION_S - 2)
    assert len(second.offsets.committed(GROUP)) == 2
    await heartbeats(second, joined, INTERVAL_S + 2)
    assert list(second.offsets.committed(GROUP)) == [("orders", 0)]
    assert not deletions(storage)
    await second.runtime.stop()


@story
async def test_nothing_vanishes_before_its_deletion_is_durable() -> None:
    """The group is described and its offsets are returned until then; later requests wait for the outcome."""
    storage = MemoryStorage(partitions=1)
    process = await started(storage)
    await process.commit(5, retention_ms=1)
    release = process.log.hold_acknowledgements()
    await asyncio.sleep(2 * INTERVAL_S)
    listed = process.runtime.list_groups()
    assert not isinstance(listed, ErrorCode)
    assert [group.group_id for group in listed] == [GROUP]
    assert not isinstance(reported := process.runtime.committed_offsets(GROUP), ErrorCode)
    assert reported["orders", 0].offset == 5
    join = process.join("a")
    await asyncio.sleep(A_LITTLE_S)
    assert not join.done()
    release.set()
    assert (await join).generation_id == 1
    assert not process.offsets.group_ids()
    await process.runtime.stop()


@story
async def test_a_failed_append_has_removed_nothing() -> None:
    """The next sweep after the takeover deletes it."""
    process = await started()
    await process.commit(5, retention_ms=1)
    process.log.fail_next_append()
    await asyncio.sleep(INTERVAL_S + A_LITTLE_S)
    await until(lambda: process.runtime.ready, "the partition is served again")
    assert (await process.describe()).state is GroupState.EMPTY
    assert process.offsets.committed(GROUP)["orders", 0].offset == 5
    await asyncio.sleep(INTERVAL_S + A_LITTLE_S)
    assert (await process.describe()).state is GroupState.DEAD
    await process.runtime.stop()


@story
async def test_a_crash_between_the_event_and_the_offsets_is_finished_by_the_next_takeover() -> None:
    """The log has the deletion, the store still has the offsets: a group created again does not inherit them."""
    storage = MemoryStorage(partitions=1)
    first = await started(storage)
    offsets = first.offsets
    await first.commit(5, retention_ms=1)
    write = offsets.write

    async def cut_short(changes: Any) -> Any:
        await asyncio.Event().wait()

    offsets.write = cut_short  # type: ignore[method-assign]
    await asyncio.sleep(INTERVAL_S + A_LITTLE_S)
    assert deletions(storage) == [(GROUP, Cause.GROUP_EXPIRED)]
    assert offsets.committed(GROUP)
    offsets.write = write  # type: ignore[method-assign]
    with capture_logs() as lines:
        second = await started(storage, offsets=offsets)
    (line,) = [line for line in lines if line["event"] == "removing offsets of deleted groups"]
    assert (line["partition"], line["groups"]) == (0, 1)
    assert not offsets.group_ids()
    assert (await second.describe()).state is GroupState.DEAD
    await second.runtime.stop()


@story
async def test_a_pending_commit_is_not_swept_away() -> None:
    """The sweep checks the group when the commit is durable, and removes only what has expired."""
    process = await started()
    await process.commit(5, retention_ms=1)
    await process.commit(5, topic="old", retention_ms=1)
    await asyncio.sleep(INTERVAL_S / 2)
    write = process.offsets.write
    written: list[tuple[int, int]] = []

    async def late(changes: Any) -> Any:
        if not written:
            await asyncio.sleep(INTERVAL_S)
        written.extend((len(change.committed), len(change.deleted)) for change in changes)
        return await write(changes)

    process.offsets.write = late  # type: ignore[method-assign]
    commit = process.commit(6)
    queued = process.commit(7, topic="new")
    await asyncio.sleep(INTERVAL_S - 2 * A_LITTLE_S)
    assert not commit.done()
    assert (await commit).error is ErrorCode.none
    assert (await queued).error is ErrorCode.none
    found = {topic: stored.offset for (topic, _), stored in process.offsets.committed(GROUP).items()}
    assert found == {"orders": 6, "new": 7}
    assert written == [(1, 0), (0, 1), (1, 0)], "the sweep does not wait until nobody commits any more"
    await process.runtime.stop()


@story
async def test_the_offsets_of_a_quarantined_group_are_left_alone() -> None:
    """It is unknown whether they are needed."""
    storage = MemoryStorage(partitions=1)
    first = await started(storage)
    joined = await first.stable_group("a")
    await first.commit(5, joined["a"])
    await first.runtime.stop()
    records = storage.records[0]
    index = next(
        i for i, record in enumerate(records) if record.value and isinstance(decode(record.value), MemberAssigned)
    )
    broken = records[index]
    assert broken.value is not None
    records[index] = StoredRecord(broken.partition, broken.offset, broken.timestamp_ms, broken.key, broken.value[:-3])
    second = await started(storage, offsets=first.offsets)
    await asyncio.sleep(RETENTION_S + 2 * INTERVAL_S)
    assert second.offsets.committed(GROUP)["orders", 0].offset == 5
    await second.runtime.stop()


@story
async def test_a_stopped_process_does_not_sweep() -> None:
    """No timer is left, and expired data is there for the next owner."""
    process = await started()
    await process.commit(5, retention_ms=1)
    await process.runtime.stop()
    timers: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    assert all(timer.cancelled() for timer in timers)
    await asyncio.sleep(3 * INTERVAL_S)
    assert process.offsets.committed(GROUP)


# ---- the steps of a sweep -------------------------------------------------------------------------


@pytest.mark.parametrize("offsets", [0, 7, 2 * WORK_PER_STEP])
def test_a_sweep_of_many_groups_gives_way_to_others(offsets: int) -> None:
    """No step is longer than its slice, except for a single group that is too large; each group is checked once."""
    group_ids = [GroupId(f"group-{number}") for number in range(1_000)]
    seen: dict[GroupId, float] = {}

    async def run() -> None:
        def look_at(group_id: GroupId) -> int:
            assert group_id not in seen
            seen[group_id] = asyncio.get_running_loop().time()
            return offsets

        sweep = Sweep(interval_ms=INTERVAL_MS, group_ids=lambda: group_ids, check=look_at)
        await until(lambda: len(seen) == len(group_ids), "all are looked at")
        await asyncio.sleep(INTERVAL_S / 2)
        sweep.close()
        await asyncio.sleep(3 * INTERVAL_S)

    simulate(run())
    assert list(seen) == group_ids
    at_a_time = Counter(seen.values())
    assert max(at_a_time.values()) <= max(1, WORK_PER_STEP // (WORK_OF_A_GROUP + offsets) + 1)


@story
async def test_a_sweep_that_is_closed_in_its_midst_ends_there() -> None:
    """The other groups are not checked."""
    seen: list[GroupId] = []

    def look_at(group_id: GroupId) -> int:
        seen.append(group_id)
        return WORK_PER_STEP

    group_ids = [GroupId(str(number)) for number in range(100)]
    sweep = Sweep(interval_ms=INTERVAL_MS, group_ids=lambda: group_ids, check=look_at)
    await until(lambda: len(seen) >= 10, "it is under way")
    sweep.close()
    looked_at = len(seen)
    await asyncio.sleep(3 * INTERVAL_S)
    assert len(seen) == looked_at < len(group_ids)


def test_a_group_that_fails_ends_no_sweep() -> None:
    """The error is reported; the groups after it are checked, in this sweep and in the next."""
    seen: list[GroupId] = []

    async def run() -> None:
        def look_at(group_id: GroupId) -> int:
            seen.append(group_id)
            return 1 // (group_id != "2")

        group_ids = [GroupId(str(number)) for number in range(4)]
        sweep = Sweep(interval_ms=INTERVAL_MS, group_ids=lambda: group_ids, check=look_at)
        await asyncio.sleep(2.5 * INTERVAL_S)
        sweep.close()

    with pytest.raises(ZeroDivisionError):
        simulate(run())
    assert seen == [GroupId(str(number)) for number in (0, 1, 2, 3)] * 2
