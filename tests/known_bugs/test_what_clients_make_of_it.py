"""Bugs of clients and of assignors, and how the coordinator makes them harmless: R10 to R17."""

import asyncio
from io import BytesIO

import pytest
from kio.schema.consumer_protocol_subscription.v2.data import ConsumerProtocolSubscription, TopicPartition
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from muster.coordinator.group.commands import ConfigOperation
from muster.coordinator.group.configs import REGISTERED
from muster.coordinator.group.outcomes import CommitOffsetsOutcome, JoinGroupOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.events.causes import Cause
from muster.events.events import JoinPhaseCompleted, MemberRemoved
from muster.events.log.memory import MemoryStorage
from muster.events.state import GroupState, Protocol
from tests.coordinator.group.client import protocols, subscription
from tests.coordinator.group.harness import Harness
from tests.coordinator.serving import GROUP_ID, join_body, serving
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate


def claim(*partitions: int, generation_id: int) -> tuple[Protocol, ...]:
    """The subscription of a cooperative-sticky consumer that has owned these partitions since that generation."""
    owned = TopicPartition(topic=TopicName("orders"), partitions=tuple(map(i32, partitions)))
    message = ConsumerProtocolSubscription(
        topics=("orders",), owned_partitions=(owned,), generation_id=i32(generation_id)
    )
    buffer = BytesIO()
    entity_writer(ConsumerProtocolSubscription)(buffer, message)
    return (Protocol(name="cooperative-sticky", metadata=b"\x00\x02" + buffer.getvalue()),)


def test_r10_claims_of_an_old_generation_reach_the_leader_as_what_they_are() -> None:
    """A leader that could not tell a stale claim of partitions from a fresh one gave them to two members, or panicked:
    each claim must be passed on byte by byte, an absent member's must be its last one, and no generation may occur
    twice, so that the number shows which of two claims is older.
    """
    h = Harness()
    a, b, c = h.stable_group(*(h.static(n, protocols=claim(generation_id=-1)) for n in "abc"))
    generations = [h.live.generation_id]
    first = a.join(protocols=claim(0, 1, generation_id=1))
    b.join(protocols=claim(2, 3, generation_id=1))
    c.join(protocols=claim(4, 5, generation_id=1))
    h.sync_all(a, b, c)
    generations.append(h.live.generation_id)
    h.takeover()
    second = a.join(protocols=claim(0, 1, 4, 5, generation_id=2))
    b.join(protocols=claim(2, 3, generation_id=2))
    for _ in range(7):  # c only heartbeats
        h.sleep(9_000)
        c.heartbeat()
    generations.append(h.live.generation_id)
    assert first.outcome.members != second.outcome.members
    read = entity_reader(ConsumerProtocolSubscription)
    reported = {}
    for member in second.outcome.members:
        message, size = read(member.metadata, 2)
        assert size + 2 == len(member.metadata)
        reported[member.group_instance_id] = (message.generation_id, message.owned_partitions[0].partitions)
    assert reported == {"a": (2, (0, 1, 4, 5)), "b": (2, (2, 3)), "c": (1, (4, 5))}
    h.leave_instance("a", "b", "c")
    h.form(h.static("a", protocols=claim(generation_id=-1)))
    generations.append(h.live.generation_id)
    assert generations == sorted(set(generations))


def test_r11_a_commit_during_a_rebalance_is_taken_or_may_be_tried_again() -> None:
    """A client that got ILLEGAL_GENERATION for a commit during a cooperative rebalance lost its partitions: while
    members rejoin, a commit of the ending generation must be accepted, and while assignments are awaited one of the new
    generation must be told to retry; only older ones are illegal.
    """
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.static("b"), h.dynamic("c"))
    taken = CommitOffsetsOutcome(error=ErrorCode.none)
    b.join(protocols=protocols(metadata=b"changed"))
    assert h.state is GroupState.PREPARING_REBALANCE
    assert [client.commit().outcome for client in (a, b, c)] == [taken] * 3
    a.join()
    assert a.commit().outcome == taken
    c.join()
    assert h.live.state is GroupState.COMPLETING_REBALANCE
    assert {client.commit().error for client in (a, b, c)} == {ErrorCode.rebalance_in_progress}
    assert a.commit(generation_id=1).error is ErrorCode.illegal_generation
    h.sync_all(a, b, c)
    assert [client.commit().outcome for client in (a, b, c)] == [taken] * 3


async def test_r12_a_coordinator_is_found_at_once_whatever_its_groups_do() -> None:
    """A client whose coordinator lookup was cut short gave its group up for ever: the response must not wait for a
    load, an append or a parked join, must always be the same, and an aborted lookup must leave nothing behind.
    """

    async def found(client_id: str) -> tuple[int, int, str, int]:
        connection = await muster.connect(client_id)
        answer = await connection.ask("FindCoordinator", 4, key_type=0, coordinator_keys=[GROUP_ID])
        connection.close()
        (one,) = answer["coordinators"]
        return one["error_code"], one["node_id"], one["host"], one["port"]

    async with serving(load=False) as muster:
        first = await found("while it loads")
        assert first[0] == 0
        await muster.runtime.start()
        release = muster.log.hold_acknowledgements()
        waiting = await muster.connect("waiting")
        join = waiting.send("JoinGroup", 9, **join_body(instance="a"))
        for number in range(20):
            cut_short = await muster.connect(f"gives up {number}")
            cut_short.send("FindCoordinator", 4, key_type=0, coordinator_keys=[GROUP_ID])
            cut_short.close()
            assert await found(f"asks again {number}") == first
        assert not join.is_answered
        release.set()
        assert (await join.get())["error_code"] == 0
        assert await found("later") == first


def test_r13_a_leave_without_a_coordinator_is_answered_and_the_member_expires_in_time() -> None:
    """A client crashed when it left and there was no coordinator: while the coordinator loads, stops or has stopped, a
    leave must get a retriable error, and a member that could not leave must expire after the next takeover.
    """

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage).start()
        joined = await first.stable_group("a", "b")
        second = SimulatedProcess(storage)
        while_loading = await second.leave(joined["b"].member_id)
        assert while_loading.error is ErrorCode.coordinator_load_in_progress
        first.log.fail_next_append()
        assert (await first.leave(joined["b"].member_id)).error is ErrorCode.not_coordinator
        await first.runtime.stop()
        assert (await first.leave(joined["b"].member_id)).error is ErrorCode.coordinator_not_available
        await second.start()
        errors = []
        for _ in range(11):
            await asyncio.sleep(1)
            errors.append((await second.heartbeat(joined["a"])).error)
        assert errors[:9] == [ErrorCode.none] * 9
        assert errors[-1] is ErrorCode.rebalance_in_progress
        assert (await second.heartbeat(joined["b"])).error is ErrorCode.unknown_member_id
        await second.runtime.stop()

    simulate(story())


@pytest.mark.parametrize("heartbeats", [True, False], ids=["with heartbeats", "in silence"])
def test_r14_a_leader_that_computes_for_longer_than_its_session_ends_no_group(heartbeats: bool) -> None:
    """450 consumers of 3,000 partitions rebalanced without end, since the leader's assignor took longer than its
    session: a leader that heartbeats must have the whole rebalance timeout, a silent one must be replaced once, waiting
    members must not expire, and a late assignment must be refused.
    """
    h = Harness()
    crew = h.form(*(h.static(f"{n:02}") for n in range(45)))
    leader = next(client for client in crew if client.is_leader)
    others = [client for client in crew if client is not leader]
    computed = h.assignments()
    waiting = [client.sync() for client in others]
    if heartbeats:
        for _ in range(6):
            h.sleep(9_000)
            assert leader.heartbeat().error is ErrorCode.none
        assert leader.sync(computed).error is ErrorCode.none
        assert {call.error for call in waiting} == {ErrorCode.none}
    else:
        h.sleep(10_000)
        assert {call.error for call in waiting} == {ErrorCode.rebalance_in_progress}
        assert leader.sync(computed).error is ErrorCode.unknown_member_id
        h.rejoin_all(*others)
        returned = leader.restarted()
        returned.join()
        h.rejoin_all(*others)
        returned.sync()
        assert not returned.is_leader
    assert h.state is GroupState.STABLE
    removed = [event for event in h.events if isinstance(event, MemberRemoved)]
    assert [event.why.cause for event in removed] == ([] if heartbeats else [Cause.SESSION_EXPIRED])


def test_r15_members_that_come_during_a_rebalance_cost_no_further_one() -> None:
    """Each member added to a group cost it a separate rebalance: members that join during a rebalance must all be in
    the generation that it ends with.
    """
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    added = [h.static(f"added-{n}") for n in range(8)]
    calls = [client.join() for client in added]
    a.join()
    b.join()
    assert {call.outcome.generation_id for call in calls} == {2}
    h.sync_all(a, b, *added)
    assert (h.state, len(h.live.members)) == (GroupState.STABLE, 10)
    assert sum(isinstance(event, JoinPhaseCompleted) for event in h.events) == 2


@pytest.mark.parametrize(("registered", "rebalances"), [(True, 1), (False, 8)])
def test_r15_registered_members_that_come_one_by_one_cost_one(registered: bool, rebalances: int) -> None:
    """Eight members that join one by one, each when the group is stable, cost it eight rebalances: with KIP-469
    registered members must wait for the last of them, and cost one.
    """
    h = Harness()
    crew = list(h.stable_group(h.static("a"), h.static("b")))
    names = [f"added-{n}" for n in range(8)]
    if registered:
        assert h.alter((REGISTERED, ConfigOperation.APPEND, ",".join(names))).error is ErrorCode.none
    for name in names:
        h.sleep(1_000)
        for client in crew:
            client.heartbeat()
        client = h.static(name)
        client.join()
        crew.append(client)
        if h.state is GroupState.PREPARING_REBALANCE:
            h.rejoin_all(*[each for each in crew if each.last_join and not each.last_join.parked])
            h.sync_all(*crew)
    assert (h.state, len(h.live.members)) == (GroupState.STABLE, 10)
    assert sum(isinstance(event, JoinPhaseCompleted) for event in h.events) == 1 + rebalances


@pytest.mark.parametrize("garbage", [b"x" * 60, b"", b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\xff" * 8])
def test_r16_an_unreadable_subscription_refuses_no_member(garbage: bytes) -> None:
    """A consumer whose subscription was garbage left its group in PreparingRebalance for good, with all who joined
    later: metadata must be opaque to the rules, and the group must continue with the member and with later ones.
    """
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    broken = h.dynamic("broken", protocols=protocols(metadata=garbage))
    joining = broken.enter()
    a.join()
    assert joining.outcome.generation_id == 2
    h.sync_all(a, broken)
    later = h.static("later").join()
    h.takeover()
    for client in (a, broken):
        client.join()
    assert later.lost
    again = h.static("later").join()
    assert again.outcome.generation_id == 3
    assert h.live.members[broken.member_id].protocols[0].metadata == garbage
    a.join(protocols=protocols(metadata=subscription("payments")))
    refused = h.delete_offsets(("orders", 0), ("elsewhere", 0)).outcome.refused
    assert set(refused.values()) <= {ErrorCode.group_subscribed_to_topic}
    h.sleep(1_000_000)
    assert h.live.state is GroupState.EMPTY


async def consume(process: SimulatedProcess, instance: str, members: int) -> JoinGroupOutcome:
    """Act like a consumer: join, sync, heartbeat, and rejoin when told; until the group has this many members."""
    member_id = ""
    while True:
        joined = await process.join(instance, member_id)
        assert joined.error is ErrorCode.none
        member_id = joined.member_id
        error: ErrorCode = (await process.sync(joined)).error
        while error is ErrorCode.none:
            if len((await process.describe()).members) == members:
                return joined
            await asyncio.sleep(0.1)
            error = (await process.heartbeat(joined)).error
        assert error is ErrorCode.rebalance_in_progress


@pytest.mark.parametrize("gap_ms", [0, 1, 5, 50])
def test_r17_simultaneous_first_joins_without_a_delay_do_not_wait_for_the_timeout(gap_ms: int) -> None:
    """With an initial rebalance delay of 0, members that joined an empty group together waited for the whole rebalance
    timeout: however close they come, they must be in one generation as soon as the earlier ones have rejoined.
    """

    async def story() -> None:
        settings = GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=100)
        process = await SimulatedProcess(MemoryStorage(), settings=settings).start()
        started_ms = process.clock.monotonic_ms()
        members = []
        for instance in "abc":
            members.append(asyncio.create_task(consume(process, instance, 3)))
            await asyncio.sleep(gap_ms / 1000)
        reported = await asyncio.gather(*members)
        took_ms = process.clock.monotonic_ms() - started_ms
        assert took_ms < 2_000, "the rebalance timeout is 30 s"
        assert len({joined.generation_id for joined in reported}) == 1
        await process.runtime.stop()

    simulate(story())
