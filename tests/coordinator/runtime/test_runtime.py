"""The runtime on a memory log, in virtual time: no response before its events are durable, and no durable event is
lost.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.runtime.ownership.owned_partition import READ_TIMEOUT_S
from muster.events.avro.codec import decode, records_of
from muster.events.events import (
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    MemberAssigned,
)
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.log.base import Deposed, LogUnavailable
from muster.events.log.memory import MemoryStorage
from muster.events.partitioner import partition_for
from muster.events.records import FORMAT_LEVEL, StoredRecord
from muster.events.state import GroupState, Protocol
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import VirtualTimeLoop, simulate
from tests.waiting import until

Story = Callable[[], Awaitable[None]]


def story(run: Story) -> Callable[[], None]:
    """Run the test in virtual time."""

    def test() -> None:
        simulate(run())  # type: ignore[arg-type]

    test.__name__, test.__doc__ = run.__name__, run.__doc__
    return test


def recorded(storage: MemoryStorage, event_type: type) -> list[object]:
    """The events of a type in the log, in order within each partition."""
    values = (record.value for records in storage.records for record in records)
    events = (decode(value) for value in values if value is not None)
    return [event for event in events if isinstance(event, event_type)]


@story
async def test_a_reply_leaves_only_when_its_events_are_durable() -> None:
    """An unacknowledged append delays the response and everything decided after it."""
    process = await SimulatedProcess(MemoryStorage()).start()
    joined = await process.stable_group("a")
    release = process.log.hold_acknowledgements()
    leave = process.leave(joined["a"].member_id)
    heartbeat = process.heartbeat(joined["a"])
    await asyncio.sleep(5)
    assert not leave.done()
    assert not heartbeat.done()
    release.set()
    assert (await leave).members[0].error is ErrorCode.none
    assert (await heartbeat).error is ErrorCode.unknown_member_id
    await process.runtime.stop()


@story
async def test_other_groups_are_served_while_an_append_of_one_is_under_way() -> None:
    """A request that needs no append is answered at once, whatever another group waits for."""
    process = await SimulatedProcess(MemoryStorage()).start()
    joined = await process.stable_group("a")
    release = process.log.hold_acknowledgements()
    commit = process.join("x", group_id=GroupId("another"))
    assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
    assert not commit.done()
    release.set()
    await process.runtime.stop()


@story
async def test_joins_that_queue_behind_an_append_share_the_next_one() -> None:
    """Twenty joins of one group take two appends, not twenty."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    release = process.log.hold_acknowledgements()
    joins = [process.join(f"i{number}") for number in range(20)]
    await asyncio.sleep(0.001)
    stored_first = len(storage.records[partition_for(GROUP, 8)])
    release.set()
    reported = [await join for join in joins]
    assert {joined.generation_id for joined in reported} == {1}
    assert stored_first <= 2 + 3  # elected, ready; then group created, member joined, rebalance started
    await process.runtime.stop()


@story
async def test_a_crash_does_not_change_the_group() -> None:
    """The next process finds generation, leader and assignments of the killed one; sessions restart in full."""
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    outcomes = await first.stable_group("a", "b", "c")
    second = await SimulatedProcess(storage).start()
    for joined in outcomes.values():
        assert (await second.heartbeat(joined)).error is ErrorCode.none
    again = await second.sync(outcomes["b"])
    assert again.assignment == outcomes["b"].member_id.encode()
    described = await second.describe()
    assert described.state is GroupState.STABLE
    assert len(described.members) == 3
    await second.runtime.stop()


@story
async def test_the_old_process_is_deposed_by_the_new_one() -> None:
    """Its next append is refused, its clients are redirected, and it logs that."""
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    joined = await first.stable_group("a")
    second = await SimulatedProcess(storage).start()
    left = await first.leave(joined["a"].member_id)
    assert left.error is ErrorCode.not_coordinator
    assert isinstance(first.lost[0], Deposed)
    assert (await second.heartbeat(joined["a"])).error is ErrorCode.none
    await second.runtime.stop()


@story
async def test_the_successor_is_named_by_its_own_record_however_slow_the_log_is() -> None:
    """The process ends once it has been read; a foreign record that claims ownership is ignored."""
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    joined = await first.stable_group("a")
    number = partition_for(first.group_id, len(storage.records))
    elected = CoordinatorElected(
        partition=number,
        owner_epoch=99,
        owner="stranger:1",
        elected_ms=0,
        version="test",
        format_level=1,
        settings={},
    )
    (claimed,) = records_of([elected], FORMAT_LEVEL)
    storage.records[number].append(
        StoredRecord(number, storage.end_offset(number), 0, claimed.key, claimed.value, is_foreign=True)
    )
    second = await SimulatedProcess(storage).start()
    read = first.log.read

    async def slowly(
        partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        await asyncio.sleep(READ_TIMEOUT_S - 1)
        async for chunk in read(partition, start=start, end=end):
            yield chunk

    first.log.read = slowly  # type: ignore[method-assign]
    await first.leave(joined["a"].member_id)
    await first.runtime.stop()
    assert str(first.lost[0]).startswith("simulated:1 took over the event log from this process at ")
    await second.runtime.stop()


@story
async def test_a_deposed_process_does_not_complain_about_an_unclean_stop() -> None:
    """The last record in the log is its successor's."""
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    second = await SimulatedProcess(storage).start()
    with capture_logs() as lines:
        await first.runtime.stop()
    assert lines == []
    await second.runtime.stop()


@story
async def test_a_lost_acknowledgement_loses_and_doubles_nothing() -> None:
    """The events are in the log, the client got an error: after the takeover it is a member, exactly once."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    outcomes = await process.stable_group("a")
    process.log.lose_next_acknowledgement()
    joined = await process.join("b")
    assert joined.error is ErrorCode.not_coordinator
    await until(lambda: process.runtime.ready, "the partition is served again")
    again = process.join("b")
    rejoin = process.join("a", outcomes["a"].member_id)
    members = [await again, await rejoin]
    assert {member.error for member in members} == {ErrorCode.none}
    described = await process.describe()
    assert sorted(str(member.group_instance_id) for member in described.members) == ["a", "b"]
    await process.runtime.stop()


@story
async def test_an_append_that_failed_has_no_effect() -> None:
    """Events that could not be stored have not happened: the group is as before once the log is back."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    joined = await process.stable_group("a")
    process.log.fail_next_append()
    assert (await process.leave(joined["a"].member_id)).error is ErrorCode.not_coordinator
    await until(lambda: process.runtime.ready, "the partition is served again")
    assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
    await process.runtime.stop()


@story
async def test_a_join_too_large_for_the_log_fails_alone() -> None:
    """Its sender gets UNKNOWN_SERVER_ERROR; the other joins of the append succeed."""
    process = await SimulatedProcess(MemoryStorage(), batch_bytes_max=10_000).start()
    release = process.log.hold_acknowledgements()
    first = process.join("a")
    large = process.join("large", metadata=bytes(20_000))
    third = process.join("c")
    release.set()
    assert (await large).error is ErrorCode.unknown_server_error
    reported = [await first, await third]
    assert {joined.error for joined in reported} == {ErrorCode.none}
    described = await process.describe()
    assert len(described.members) == 2
    await process.runtime.stop()


@story
async def test_an_assignment_too_large_for_the_log_starts_a_rebalance() -> None:
    """The leader's sync fails, and the group rebalances (SG13)."""
    process = await SimulatedProcess(MemoryStorage(), batch_bytes_max=10_000).start()
    joins = [process.join("a"), process.join("b")]
    reported = [await join for join in joins]
    leader = next(joined for joined in reported if joined.members)
    follower = next(joined for joined in reported if not joined.members)
    waiting = process.sync(follower)
    refused = await process.sync(leader, {leader.member_id: bytes(20_000)})
    assert refused.error is ErrorCode.unknown_server_error
    assert (await waiting).error is ErrorCode.unknown_server_error
    assert (await process.heartbeat(follower)).error is ErrorCode.rebalance_in_progress
    await process.runtime.stop()


@story
async def test_a_silent_member_is_expired_after_its_session() -> None:
    """The deadline fires without a request, and not before."""
    process = await SimulatedProcess(MemoryStorage()).start()
    joined = await process.stable_group("a", "b")

    async def heartbeats(seconds: int) -> ErrorCode:
        error = ErrorCode.none
        for _ in range(seconds):
            await asyncio.sleep(1)
            error = (await process.heartbeat(joined["a"])).error
        return error

    assert await heartbeats(9) is ErrorCode.none
    assert await heartbeats(2) is ErrorCode.rebalance_in_progress
    assert (await process.heartbeat(joined["b"])).error is ErrorCode.unknown_member_id
    await process.runtime.stop()


@story
async def test_no_member_expires_after_a_machine_pause() -> None:
    """A late timer restarts all sessions in full, and that is recorded."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    outcomes = await process.stable_group("a", "b")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(60)
    await asyncio.sleep(9)
    for joined in outcomes.values():
        assert (await process.heartbeat(joined)).error is ErrorCode.none
    await process.runtime.stop()
    (paused,) = recorded(storage, CoordinatorPaused)
    assert isinstance(paused, CoordinatorPaused)
    assert paused.sessions == 2
    assert paused.late_ms >= 49_000


@story
async def test_a_dead_member_expires_despite_repeated_machine_pauses() -> None:
    """At each end of its session, and for long enough that the other members are not to blame."""
    process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
    joined = await process.stable_group("a", "b")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    (ownership,) = process.runtime._owned.values()
    sessions = ownership.partition._contexts[GROUP].soft.sessions
    stood_still_s, began_s, error = 0.0, loop.time(), ErrorCode.none
    while error is ErrorCode.none:
        assert loop.time() - began_s < 2 * 10 + 1 + stood_still_s, "b's session is 10 s"
        left_s = sessions[joined["b"].member_id].deadline_ms / 1000 - loop.time()
        if left_s < 0.5:
            loop.advance(left_s + 1.3)
            stood_still_s += left_s + 1.3
        await asyncio.sleep(0.25)
        error = (await process.heartbeat(joined["a"])).error
    assert error is ErrorCode.rebalance_in_progress
    assert stood_still_s > 1.3
    await process.runtime.stop()


@story
async def test_a_ticket_holds_until_the_group_changes() -> None:
    """The fast path refreshes the session; any change of the group invalidates the ticket."""
    process = await SimulatedProcess(MemoryStorage()).start()
    joined = await process.stable_group("a", "b")
    ticket = process.runtime.heartbeat_ticket(process.heartbeat_command(joined["a"]))
    assert ticket is not None
    for _ in range(9):
        await asyncio.sleep(1)
        assert ticket.accept(process.clock.monotonic_ms())
    await asyncio.sleep(2)
    assert not ticket.accept(process.clock.monotonic_ms()), "b was expired meanwhile"
    assert process.runtime.heartbeat_ticket(process.heartbeat_command(joined["a"])) is None
    assert (await process.heartbeat(joined["a"])).error is ErrorCode.rebalance_in_progress
    await process.runtime.stop()


@story
async def test_a_ticket_holder_is_notified_of_the_end() -> None:
    """Once, when the group changes in any way or its partition is released; at once if that has happened already."""
    process = await SimulatedProcess(MemoryStorage()).start()
    joined = await process.stable_group("a", "b")
    command, over = process.heartbeat_command(joined["a"]), list[str]()
    ticket = process.runtime.heartbeat_ticket(command)
    assert ticket is not None
    ticket.when_changed(lambda: over.append("changed"))
    await process.heartbeat(joined["a"])
    assert over == []
    join = process.join("c")
    await asyncio.sleep(0.01)
    assert over == ["changed"]
    ticket.when_changed(lambda: over.append("at once"))
    assert over == ["changed", "at once"]
    await process.runtime.stop()
    await join


@story
async def test_a_heartbeat_that_is_reported_late_takes_no_time_from_a_session() -> None:
    """Another process answered it before a later one that is known already."""
    process = await SimulatedProcess(MemoryStorage()).start()
    joined = await process.stable_group("a")
    ticket = process.runtime.heartbeat_ticket(process.heartbeat_command(joined["a"]))
    assert ticket is not None
    answered_ms = process.clock.monotonic_ms()
    await asyncio.sleep(5)
    assert ticket.accept(process.clock.monotonic_ms())
    assert ticket.accept(answered_ms)
    await asyncio.sleep(9)
    assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
    await process.runtime.stop()


@story
async def test_stopping_answers_what_is_parked_and_writes_coordinator_stopped() -> None:
    """A parked join gets NOT_COORDINATOR with its own member id, and CoordinatorStopped is the last record (LD12)."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    join = process.join("a")
    await asyncio.sleep(0.01)
    await process.runtime.stop()
    joined = await join
    assert joined.error is ErrorCode.not_coordinator
    assert joined.member_id.startswith("a-")
    assert len(recorded(storage, CoordinatorStopped)) == len(storage.records)
    after: JoinGroupOutcome = await process.join("a")
    assert after.error is ErrorCode.coordinator_not_available


@story
async def test_each_takeover_is_in_the_log() -> None:
    """The fence record comes before any other of an owner, and CoordinatorReady has the figures of the loading."""
    storage = MemoryStorage(partitions=1)
    first = await SimulatedProcess(storage).start()
    await first.stable_group("a", "b")
    await SimulatedProcess(storage).start()
    elected = recorded(storage, CoordinatorElected)
    ready = recorded(storage, CoordinatorReady)
    assert [event.owner_epoch for event in elected if isinstance(event, CoordinatorElected)] == [1, 2]
    last = ready[-1]
    assert isinstance(last, CoordinatorReady)
    assert (last.groups, last.members) == (1, 2)
    assert last.events_read == sum(1 for record in storage.records[0] if record.value is not None) - 1


@story
async def test_a_group_with_a_broken_record_is_quarantined_alone() -> None:
    """Its members are asked to retry; every other group is served (L8)."""
    storage = MemoryStorage(partitions=1)
    first = await SimulatedProcess(storage).start()
    joined = await first.stable_group("a")
    other = GroupId("other")
    await first.commit(5, group_id=other)
    records = storage.records[0]
    index = next(
        i for i, record in enumerate(records) if record.value and isinstance(decode(record.value), MemberAssigned)
    )
    broken = records[index]
    assert broken.value is not None
    records[index] = StoredRecord(broken.partition, broken.offset, broken.timestamp_ms, broken.key, broken.value[:-3])
    second = await SimulatedProcess(storage, offsets=first.offsets).start()
    assert (await second.heartbeat(joined["a"])).error is ErrorCode.coordinator_load_in_progress
    assert (await second.sync(joined["a"])).error is ErrorCode.rebalance_in_progress
    assert (await second.describe(other)).state is GroupState.EMPTY
    assert second.offsets.committed(other)["orders", 0].offset == 5
    await second.runtime.stop()


@story
async def test_offsets_are_visible_when_the_commit_is_answered() -> None:
    """A member's commit is stored; a commit of an older generation is not."""
    process = await SimulatedProcess(MemoryStorage()).start()
    joined = await process.stable_group("a")
    assert (await process.commit(7, joined["a"])).error is ErrorCode.none
    assert process.offsets.committed(GROUP)["orders", 0].offset == 7
    stale = JoinGroupOutcome(member_id=joined["a"].member_id, generation_id=0)
    assert (await process.commit(9, stale)).error is ErrorCode.illegal_generation
    assert process.offsets.committed(GROUP)["orders", 0].offset == 7
    await process.runtime.stop()


@story
async def test_deleting_a_group_deletes_its_offsets() -> None:
    """If a deletion was cut short between the two, the next start deletes the offsets."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    simple = GroupId("simple")
    await process.commit(3, group_id=simple)
    left_over = await process.commit(4, group_id=GroupId("kept"))
    assert left_over.error is ErrorCode.none
    assert (await process.delete(simple)).error is ErrorCode.none
    assert not process.offsets.committed(simple)
    await SimulatedProcess(MemoryStorage(), offsets=process.offsets).start()
    assert not process.offsets.group_ids()


@story
async def test_a_failing_rule_affects_no_other_client() -> None:
    """A bug in a rule is UNKNOWN_SERVER_ERROR for its sender, and all others are still served (G24)."""
    process = await SimulatedProcess(MemoryStorage()).start()
    joined = await process.join("a")
    nonsense: dict[str, bytes] = {"no member id": None}  # type: ignore[dict-item]
    failed = await process.sync(joined, {joined.member_id: 7, **nonsense})  # type: ignore[dict-item]
    assert failed.error is ErrorCode.unknown_server_error
    assert (await process.sync(joined)).assignment == joined.member_id.encode()
    await process.runtime.stop()


@story
async def test_a_recreated_group_has_a_higher_incarnation() -> None:
    """Also when the wall clock stalls: (group, incarnation, seq) stays unique."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage, settings=GroupSettings(initial_rebalance_delay_ms=0)).start()
    for _ in range(3):
        await process.commit(1, group_id=GROUP)
        await process.delete(GROUP)
    numbers = [
        (event.incarnation, event.seq)  # type: ignore[attr-defined]
        for event in recorded(storage, object)
        if getattr(event, "group_id", None) == GROUP
    ]
    assert len(set(numbers)) == len(numbers)
    assert len({incarnation for incarnation, _ in numbers}) == 3
    await process.runtime.stop()


@story
async def test_a_partition_that_is_lost_while_the_process_stops_is_not_claimed_again() -> None:
    """It would depose its successor."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage, claim_renewal_ms=3_600_000).start()
    number = partition_for(GROUP, len(storage.records))
    lost = process.runtime._partitions.lost
    stopping = asyncio.create_task(process.runtime.stop())
    await asyncio.sleep(0)
    lost(number, LogUnavailable("an append came to nothing"))
    await stopping
    await asyncio.sleep(60)
    assert storage.epochs == [1] * len(storage.epochs)


@story
async def test_a_group_that_is_over_a_lowered_group_max_size_rebalances_at_the_takeover() -> None:
    """Its members learn it from their heartbeats; otherwise the size would stay exceeded until something else
    happens.
    """
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    joined = await first.stable_group("a", "b", "c")
    await first.runtime.stop()
    second = await SimulatedProcess(storage, settings=GroupSettings(max_size=2)).start()
    await until(lambda: is_rebalancing(second))
    assert (await second.heartbeat(joined["a"])).error is ErrorCode.rebalance_in_progress
    await second.runtime.stop()


async def is_rebalancing(process: SimulatedProcess) -> bool:
    return (await process.describe()).state is GroupState.PREPARING_REBALANCE


@story
async def test_figures_are_of_all_groups_and_members() -> None:
    process = await SimulatedProcess(MemoryStorage(partitions=2)).start()
    await process.stable_group("a", "b")
    for group_id in ("simple-1", "simple-2", "simple-3"):
        assert (await process.commit(1, group_id=GroupId(group_id))).error is ErrorCode.none
    figures = process.runtime.figures()
    found = {key: groups for key, groups in figures.groups.items() if groups}
    assert found == {("Stable", "muster"): 1, ("Empty", "muster"): 3}
    assert {key: members for key, members in figures.members.items() if members} == {("Stable", "muster"): 2}
    assert (figures.quarantined, figures.partitions, figures.log_partitions) == (0, 2, 2)
    await process.runtime.stop()


@story
async def test_it_is_known_of_a_join_whether_it_would_be_refused() -> None:
    """The group's current state decides, and is not changed."""
    process = await SimulatedProcess(MemoryStorage(), settings=GroupSettings(max_size=1)).start()
    await process.stable_group("a")

    def join(instance: str, *, group_id: GroupId = GROUP, session_timeout_ms: int = 10_000) -> JoinGroup:
        return JoinGroup(
            caller=process.caller(),
            group_id=group_id,
            member_id=MemberId(""),
            group_instance_id=GroupInstanceId(instance),
            proposed_member_id=MemberId(f"{instance}-new"),
            protocol_type="consumer",
            protocols=(Protocol(name="range", metadata=b""),),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=30_000,
            reason=None,
            requires_known_member_id=False,
            supports_skip_assignment=True,
        )

    new = GroupId("new")
    assert process.runtime.would_refuse(join("b"))
    assert not process.runtime.would_refuse(join("a"))
    assert not process.runtime.would_refuse(join("b", group_id=new))
    assert process.runtime.would_refuse(join("b", group_id=new, session_timeout_ms=1))
    assert not process.runtime.has_group(new)
    await process.runtime.stop()
    assert process.runtime.would_refuse(join("a"))


@story
async def test_a_former_owner_that_did_not_stop_cleanly_is_named_once() -> None:
    """A clean stop is not logged; a crash of a process with the same name, such as a pod's, is."""
    storage = MemoryStorage(partitions=3)
    for number in range(3):
        ready = CoordinatorReady(
            partition=number,
            owner_epoch=0,
            owner="other:1",
            ready_ms=0,
            took_ms=0,
            events_read=0,
            groups=0,
            members=0,
            incarnation_max=0,
        )
        (record,) = records_of([ready], FORMAT_LEVEL)
        storage.records[number].append(StoredRecord(number, 0, 0, record.key, record.value))

    async def named() -> tuple[SimulatedProcess, list[str]]:
        with capture_logs() as lines:
            process = await SimulatedProcess(storage).start()
        text = "the previous owner of the event log did not shut down cleanly: if it still runs, it is fenced now"
        return process, [line["owner"] for line in lines if line["event"] == text]

    first, after_another = await named()
    await first.runtime.stop()
    _, after_a_stop = await named()
    third, after_a_crash = await named()
    assert (after_another, after_a_stop, after_a_crash) == (["other:1"], [], ["simulated:1"])
    await third.runtime.stop()
