"""Static members whose clients race with themselves or with each other: S13, S14, S16, S18, S19."""

from collections import Counter

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.turn import REFUSALS_PER_WINDOW
from muster.events.causes import Cause
from muster.events.events import MemberFenced, MemberRemoved, StaticMemberReplaced
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import GroupState
from tests.coordinator.group.harness import Harness, story
from tests.coordinator.serving import enter, heartbeat_body, join_body, serving, sync_body

DUEL = Cause.INSTANCE_DUEL
FIRST_HOST, SECOND_HOST = "/10.0.0.1", "/10.0.0.2"


async def test_s13_two_joins_of_one_consumer_do_not_fence_it() -> None:
    """A static consumer that unsubscribes forgets its member id, and its next two joins fenced each other, for good:
    joins of one connection must be decided one after the other, so that none is answered with a fence by its own
    connection, and the id in the last response is the valid one.
    """
    async with serving() as muster:
        other, racing = await muster.connect("other"), await muster.connect("app")
        reported = await enter(other, 9, instance="a")
        assert (await other.ask("SyncGroup", 5, **sync_body(reported, instance="a")))["error_code"] == 0
        joins = [racing.send("JoinGroup", 9, **join_body(instance="b")) for _ in range(2)]
        await other.ask("Heartbeat", 4, **heartbeat_body(reported, instance="a"))
        answers = []
        for join in joins:
            again = other.send("JoinGroup", 9, **join_body(reported["member_id"], instance="a"))
            answers.append(await join.get())
            reported = await again.get()
        assert [answer["error_code"] for answer in answers] == [0, 0]
        assert answers[0]["member_id"] != answers[1]["member_id"]
        ours = answers[1]
        leader, follower = (other, racing) if reported["members"] else (racing, other)
        parts = {other: sync_body(reported, instance="a"), racing: sync_body(ours, instance="b")}
        waiting = follower.send("SyncGroup", 5, **parts[follower])
        await leader.ask("SyncGroup", 5, **parts[leader])
        assert (await waiting.get())["error_code"] == 0
        assert (await racing.ask("Heartbeat", 4, **heartbeat_body(ours, instance="b")))["error_code"] == 0


@pytest.mark.parametrize("is_static", [True, False], ids=["static", "dynamic"])
def test_s14_a_member_that_did_not_hear_its_join_answer_gets_it_again(is_static: bool) -> None:
    """A member whose response was lost was fenced by its own earlier join, or cost its group a rebalance: a retry with
    the id that it has must return the current state, and one without, as a static member, its place.
    """
    h = Harness()
    a = h.static("a")
    b = h.static("b") if is_static else h.dynamic("b")
    h.form(a, b)
    for _ in range(2):
        call = b.join()
        assert call.outcome == b.joined
        assert not call.events
    a.sync(h.assignments())
    for _ in range(2):
        assert b.join().outcome.generation_id == 1
        assert b.sync().outcome.assignment == f"{b.member_id}@1".encode()
    assert (h.state, h.live.generation_id) == (GroupState.STABLE, 1)
    if is_static:
        b.member_id = UNKNOWN_MEMBER_ID  # it has none: the response to its very first join was lost
        assert b.join().outcome.generation_id == 1
        assert b.sync().error is ErrorCode.none
        assert b.heartbeat().error is ErrorCode.none
        assert (h.state, h.live.generation_id) == (GroupState.STABLE, 1)


def duel(h: Harness, rounds: int) -> None:
    """Two live processes on two hosts with one instance id, each of which comes back whenever it is fenced."""
    (first,) = h.stable_group(h.static("a", host=FIRST_HOST))
    second = first.restarted(host=SECOND_HOST)
    for number in range(rounds):
        winner, loser = (first, second) if number % 2 else (second, first)
        winner.member_id = UNKNOWN_MEMBER_ID
        assert winner.join().error is ErrorCode.none
        h.sleep(200)
        loser.heartbeat()


def test_s16_processes_that_share_an_instance_id_are_named_with_their_hosts() -> None:
    """Replicas of one deployment with one instance id fenced each other in a loop, and their hosts were unknown: each
    fence must be an event with the hosts of the fenced process and of the current one; their number must be limited,
    with a count of those not written.
    """
    h = Harness()
    duel(h, rounds=2 * REFUSALS_PER_WINDOW)
    named = [event for event in h.events if isinstance(event, MemberFenced)]
    causes = Counter(event.why.cause for event in named)
    assert causes == {Cause.INSTANCE_FENCED: REFUSALS_PER_WINDOW, DUEL: REFUSALS_PER_WINDOW}
    for event in named:
        assert event.why.group_instance_id == "a"
        assert {event.why.client_host, event.current_client_host} == {FIRST_HOST, SECOND_HOST}
        assert event.why.member_id != event.current_member_id
    last = h.events[-1]
    h.sleep(60_000)
    duel(h, rounds=2)
    after = [event for event in h.events[h.events.index(last) + 1 :] if isinstance(event, MemberFenced)]
    counted = {event.why.client_host: event.suppressed for event in after[::-1] if event.why.cause is not DUEL}
    assert counted == {FIRST_HOST: REFUSALS_PER_WINDOW // 2, SECOND_HOST: REFUSALS_PER_WINDOW // 2}


def test_s18_no_generation_of_a_heartbeat_means_goodbye() -> None:
    """Clients of the newer protocol leave for good, or for a while, by a special epoch in a heartbeat, and one that
    sent the wrong one of the two made each restart a rebalance: here no heartbeat removes a member, and a static member
    that ends without a LeaveGroup must keep its place.
    """
    h = Harness()
    _, b = h.stable_group(h.static("a"), h.static("b"))
    for generation_id in (-1, -2):
        assert b.heartbeat(generation_id=generation_id).error is ErrorCode.illegal_generation
    assert b.heartbeat().error is ErrorCode.none
    new = b.restarted()
    assert story(new.join().events)[0] == (StaticMemberReplaced, Cause.STATIC_RESTART_ABSORBED)
    assert (h.state, h.live.generation_id) == (GroupState.STABLE, 1)
    assert new.leave().outcome.members[0].error is ErrorCode.none
    assert new.leave().outcome.members[0].error is ErrorCode.unknown_member_id
    assert [e.why.cause for e in h.events if isinstance(e, MemberRemoved)] == [Cause.MEMBER_LEFT]


def test_s19_a_duel_of_clients_that_cannot_be_fenced_is_in_the_log() -> None:
    """aiokafka's heartbeats have no instance id, so a replaced member is unknown, comes back with an empty id, and two
    live processes evict each other for ever, unseen: each eviction must be an event with both hosts, and its short
    silence must show that the evicted one was alive.
    """
    h = Harness()
    (first,) = h.stable_group(h.static("a", host=FIRST_HOST, version=5))
    second = first.restarted(host=SECOND_HOST)
    for number in range(6):
        winner, loser = (first, second) if number % 2 else (second, first)
        winner.member_id = UNKNOWN_MEMBER_ID
        assert winner.join().error is ErrorCode.none
        h.sleep(500)
        assert winner.heartbeat(group_instance_id=None).error is ErrorCode.none
        assert loser.heartbeat(group_instance_id=None).error is ErrorCode.unknown_member_id
    assert h.live.generation_id == 1
    replaced = [event for event in h.events if isinstance(event, StaticMemberReplaced)]
    hosts = [(event.replaced_client_host, event.member.client_host) for event in replaced]
    assert hosts == [(FIRST_HOST, SECOND_HOST), (SECOND_HOST, FIRST_HOST)] * 3
    for event in replaced:
        assert event.longest_silence_ms <= 500 < event.member.session_timeout_ms
    duels = [event for event in h.events if isinstance(event, MemberFenced) and event.why.cause is Cause.INSTANCE_DUEL]
    assert len(duels) == 5, "all but the first replacement, which may have been a restart"
    for each in duels:
        assert {each.why.client_host, each.current_client_host} == {FIRST_HOST, SECOND_HOST}
