"""Rebalances that never ended, came twice, or had no reason: R1 to R9."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.settings import INT32_MAX, NEW_MEMBER_JOIN_TIMEOUT_MS
from muster.events.avro.codec import decode
from muster.events.causes import Cause
from muster.events.events import AnyRecordedEvent, JoinPhaseCompleted, MemberJoined, MemberRemoved, RebalanceStarted
from muster.events.kafka.codec.reading import STRING_BYTES_MAX
from muster.events.log.memory import MemoryStorage
from muster.events.state import GroupState
from tests.conformance.wire import Fields
from tests.coordinator.group.client import protocols
from tests.coordinator.group.harness import DELAY_MS, Harness, story
from tests.coordinator.serving import SESSION_MS, enter, heartbeat_body, join_body, serving, sync_body


def test_r1_a_member_that_never_syncs_does_not_stop_its_group() -> None:
    """A member that heartbeats but never syncs left its group in CompletingRebalance for ever: the sync timer must
    remove it after the rebalance timeout, and the others must be told to rejoin.
    """
    h = Harness()
    a, b, c = h.form(h.static("a", rebalance_timeout_ms=20_000), h.static("b"), h.dynamic("c"))
    leader, silent = (a, c) if a.is_leader else (c, a)
    waiting = b.sync()
    for _ in range(6):
        h.sleep(9_000)
        assert leader.heartbeat().error is ErrorCode.none
        assert silent.heartbeat().error is ErrorCode.none
    assert h.state is GroupState.COMPLETING_REBALANCE
    removed = h.sleep(6_000)
    assert story(removed)[-1] == (RebalanceStarted, Cause.SYNC_TIMED_OUT)
    assert {e.member.member_id for e in removed if isinstance(e, MemberRemoved)} == {a.member_id, c.member_id}
    assert waiting.error is ErrorCode.rebalance_in_progress
    assert b.join().outcome.leader_id == b.member_id
    b.sync(h.assignments())
    assert h.live.state is GroupState.STABLE


def test_r2_a_heartbeat_is_accepted_while_assignments_are_awaited() -> None:
    """A member that waited for its assignment got REBALANCE_IN_PROGRESS for its heartbeat, rejoined, and the group
    never became stable: in CompletingRebalance a heartbeat must be accepted, and refresh the session.
    """
    h = Harness()
    a, b = h.form(h.static("a"), h.static("b"))
    for _ in range(3):
        h.sleep(9_000)
        assert a.heartbeat().error is ErrorCode.none
        assert b.heartbeat().error is ErrorCode.none
    assert (h.state, h.live.generation_id) == (GroupState.COMPLETING_REBALANCE, 1)
    h.sync_all(a, b)
    assert h.state is GroupState.STABLE


async def test_r3_a_join_without_a_rebalance_timeout_has_the_session_timeout() -> None:
    """JoinGroup v0 has no rebalance timeout, and with one of zero every join phase ended before any member could
    rejoin, so the group rebalanced for ever: the session timeout must be used instead, and members that rejoin within
    it must be in.
    """
    storage = MemoryStorage(partitions=1)
    async with serving(storage=storage) as muster:
        first, second = await muster.connect("first"), await muster.connect("second")
        joined = await enter(first, 0)
        assert (await first.ask("SyncGroup", 0, **sync_body(joined)))["error_code"] == 0
        joining = second.send("JoinGroup", 0, **join_body())
        error = 0
        while error == 0:
            error = (await first.ask("Heartbeat", 0, **heartbeat_body(joined)))["error_code"]
        assert error == ErrorCode.rebalance_in_progress.value
        assert not joining.is_answered
        again = first.send("JoinGroup", 0, **join_body(joined["member_id"]))
        answers = [await again.get(), await joining.get()]
        assert [answer["generation_id"] for answer in answers] == [joined["generation_id"] + 1] * 2
        assert sorted(len(answer["members"]) for answer in answers) == [0, 2]
    started = [event for event in stored_events(storage) if isinstance(event, RebalanceStarted)]
    assert started[-1].timeout_ms == SESSION_MS


def stored_events(storage: MemoryStorage) -> list[AnyRecordedEvent]:
    return [decode(record.value) for record in storage.records[0] if record.value is not None]


@pytest.mark.parametrize("goes", ["is silent", "leaves"])
def test_r4_an_unused_member_id_does_not_delay_a_rebalance_for_long(goes: str) -> None:
    """A client that got an id and disappeared was awaited, and nothing could remove it: such an id must expire after
    the client's own session timeout, its client must be able to leave, and the join phase must end then.
    """
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    gone = h.dynamic("gone", session_timeout_ms=7_000)
    gone.join()
    waiting = [a.join(), b.join()]
    h.sleep(6_999)
    assert all(call.parked for call in waiting)
    if goes == "leaves":
        assert gone.leave().outcome.members[0].error is ErrorCode.none
    else:
        h.sleep(1)
    assert [call.outcome.generation_id for call in waiting] == [2, 2]
    assert not h.soft.pending_members
    assert gone.join().error is ErrorCode.unknown_member_id


def test_r5_a_new_member_waits_for_five_minutes_and_no_longer() -> None:
    """A consumer that gave up its join and retried was a new member each time, and with a long rebalance timeout the
    group grew without a limit: a first join must not be parked for more than five minutes, nor its ids live longer.
    """
    h = Harness()
    endless = {"rebalance_timeout_ms": INT32_MAX, "session_timeout_ms": 1_800_000}
    h.stable_group(h.static("never-rejoins", **endless))
    retry_every_ms = 30_000
    calls = []
    sizes = []
    for _ in range(40):
        calls.append(h.dynamic("old", version=3, **endless).join())
        h.sleep(retry_every_ms)
        sizes.append(len(h.live.members))
    assert max(sizes) <= 1 + NEW_MEMBER_JOIN_TIMEOUT_MS / retry_every_ms
    assert calls[0].error is ErrorCode.unknown_member_id
    causes = {event.why.cause for event in h.events if isinstance(event, MemberRemoved)}
    assert causes == {Cause.FIRST_JOIN_TIMED_OUT}


@pytest.mark.parametrize("how", ["left", "removed", "replaced", "not rejoined", "not synced"])
def test_r6_nothing_is_left_of_a_removed_member_that_could_fire(how: str) -> None:
    """The session timer of a removed member fired all the same and started a second rebalance: however a member is
    removed, no deadline may remain for its id, and the group must not be disturbed.
    """
    h = Harness()
    long = {"session_timeout_ms": 100_000}
    a, b = h.form(h.static("a"), h.dynamic("b", **long) if how == "not rejoined" else h.static("b", **long))
    a.sync(h.assignments())
    if how != "not synced":
        b.sync()
    alive = [a]
    match how:
        case "left":
            b.leave()
        case "removed":
            h.leave_instance("b")
        case "replaced":
            alive.append(b.restarted())
            alive[1].join()
        case "not rejoined":
            a.join()
    while b.member_id in h.live.members:
        h.sleep(5_000)
        a.heartbeat()
    if h.state is GroupState.PREPARING_REBALANCE:
        a.join()
    if h.state is GroupState.COMPLETING_REBALANCE:
        a.sync(h.assignments())
    generation_id = h.live.generation_id
    assert h.soft.sessions.keys() == {client.member_id for client in alive}
    for _ in range(30):
        h.sleep(5_000)
        for client in alive:
            assert client.heartbeat().error is ErrorCode.none
    assert (h.state, h.live.generation_id) == (GroupState.STABLE, generation_id)


@pytest.mark.parametrize("comes_back", [True, False])
def test_r7_a_join_phase_whose_members_are_all_gone_ends(comes_back: bool) -> None:
    """A group whose members all disappeared while it waited for them stayed in PreparingRebalance, and later joins
    waited with it: it must become Empty, and the next member must be served like the first of a new group.
    """
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.dynamic("b"), h.static("c"))
    a.leave()
    assert h.state is GroupState.PREPARING_REBALANCE
    waiting = b.join()
    b.leave()
    assert waiting.error is ErrorCode.unknown_member_id
    if comes_back:
        c.join()
        c = c.restarted()
        c.join()
    h.leave_instance("c")
    h.sleep(10_000)
    assert (h.live.state, dict(h.soft.sessions)) == (GroupState.EMPTY, {})
    call = h.static("a").join()
    h.sleep(DELAY_MS)
    assert call.outcome.generation_id == h.live.generation_id
    assert h.live.image.state is GroupState.COMPLETING_REBALANCE


async def test_r8_a_reason_of_any_length_is_cut_and_kept() -> None:
    """A reason of 32 KiB did not fit into Kafka's own request and broke it: a reason of the maximum length must be cut
    at 255 characters, in joins and leaves, and otherwise be logged unchanged.
    """
    storage = MemoryStorage(partitions=1)
    async with serving(storage=storage) as muster:
        connection = await muster.connect("app")
        joined = await enter(connection, 9, instance="a", reason="j" * STRING_BYTES_MAX)
        left: Fields = {"member_id": joined["member_id"], "group_instance_id": "a", "reason": "l" * STRING_BYTES_MAX}
        answer = await connection.ask("LeaveGroup", 5, group_id="orders", members=[left])
        assert [member["error_code"] for member in answer["members"]] == [0]
    events = stored_events(storage)
    reasons = {
        type(event): event.why.client_reason for event in events if isinstance(event, MemberJoined | MemberRemoved)
    }
    assert reasons == {MemberJoined: "j" * 255, MemberRemoved: "l" * 255}


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_r9_a_rejoin_that_changes_nothing_is_answered_while_assignments_are_awaited(leads: bool) -> None:
    """A member whose join response was lost asked again and cost its group another rebalance: with the same protocols
    it must get the current generation, with the list of members if it leads; with others there must be a rebalance.
    """
    h = Harness()
    members = h.form(h.static("a"), h.dynamic("b"))
    client = next(member for member in members if member.is_leader is leads)
    for _ in range(3):
        call = client.join()
        assert call.outcome == client.joined
        assert (not call.events, bool(call.outcome.members)) == (True, leads)
    changed = client.join(protocols=protocols(metadata=b"other topics"))
    assert story(changed.events)[-1] == (RebalanceStarted, Cause.METADATA_CHANGED)
    assert [e for e in h.events if isinstance(e, JoinPhaseCompleted)][-1].group.generation_id == 1
