"""Pre-registration (KIP-469) and the scale-up delay: many new members, one rebalance."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import ConfigOperation, EndRegistration
from muster.coordinator.group.configs import DEFAULT_WAIT_MS, REGISTERED, REGISTRATION_TIMEOUT
from muster.coordinator.group.held_joins import HOLD_MS_MAX, RETRY_WINDOW_MS
from muster.coordinator.group.outcomes import Standing
from muster.events.causes import Cause
from muster.events.events import MemberJoined, RebalanceStarted, RegistrationEnded
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import GroupState, MemberRole
from tests.coordinator.group.client import Client, protocols
from tests.coordinator.group.harness import Harness


def register(h: Harness, instances: str, timeout_ms: int | None = None) -> None:
    changes = [(REGISTERED, ConfigOperation.APPEND, instances)]
    if timeout_ms is not None:
        changes.append((REGISTRATION_TIMEOUT, ConfigOperation.SET, str(timeout_ms)))
    assert h.alter(*changes).error is ErrorCode.none


def starts(h: Harness) -> list[Cause]:
    """The triggers of all rebalances so far."""
    return [event.why.cause for event in h.events if isinstance(event, RebalanceStarted)]


def test_registered_members_make_one_rebalance() -> None:
    """The stable group is undisturbed while they arrive; the last one starts the rebalance that admits all."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    register(h, "c,d,e")
    arrivals = [h.static(name) for name in "cde"]
    calls = []
    for client in arrivals:
        assert h.state is GroupState.STABLE
        assert a.heartbeat().error is b.heartbeat().error is ErrorCode.none
        calls.append(client.join())
    assert starts(h)[1:] == [Cause.REGISTRATION_COMPLETE]
    h.rejoin_all(a, b)
    assert {call.outcome.generation_id for call in calls} == {2}
    h.sync_all(*arrivals)
    assert h.state is GroupState.STABLE
    assert len(h.live.members) == 5
    assert not h.live.registrations


def test_the_history_records_each_wait() -> None:
    """The registration ends with a join that records its wait."""
    h = Harness()
    h.stable_group(h.static("a"), h.static("b"))
    register(h, "c,d")
    h.static("c").join()
    h.sleep(700)
    h.static("d").join()
    assert [type(event) for event in h.events[-6:-1]] == [
        RebalanceStarted,
        MemberJoined,
        RegistrationEnded,
        MemberJoined,
        RegistrationEnded,
    ]
    joined = [event for event in h.events if isinstance(event, MemberJoined)][-2:]
    assert [event.why.decided_ms - event.why.arrived_ms for event in joined] == [700, 0]


def test_members_that_are_not_registered_are_not_held() -> None:
    """A registration does not affect others; a rebalance for another reason admits those that have arrived."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    register(h, "c,d")
    c = h.static("c")
    waiting = c.join()
    stranger = h.static("x").join()
    assert starts(h)[1:] == [Cause.NEW_STATIC_MEMBER]
    h.rejoin_all(a, b)
    assert waiting.error is stranger.error is ErrorCode.none
    assert list(h.live.registrations) == ["d"]


def test_a_learner_that_is_not_registered_is_admitted_while_registered_ones_wait() -> None:
    """It needs no rebalance. The last registered one does not become a learner, as the others wait for it."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    register(h, "c,d")
    c = h.static("c").join()
    h.set(members_learner_timeout_ms="60000")
    x = h.static("x")
    assert x.join().error is ErrorCode.none
    assert h.live.members[x.member_id].role is MemberRole.LEARNER
    assert (h.state, c.parked) == (GroupState.STABLE, True)
    d = h.static("d").join()
    assert starts(h)[1:] == [Cause.REGISTRATION_COMPLETE]
    h.rejoin_all(a, b, x)
    assert c.error is d.error is ErrorCode.none


def test_a_registered_member_that_comes_into_a_join_phase_is_not_held() -> None:
    """A rebalance is already running."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    register(h, "c,d")
    b.join(protocols=protocols("range", "sticky"))
    c = h.static("c").join()
    a.join()
    assert c.error is ErrorCode.none
    assert list(h.live.registrations) == ["d"]


def test_a_member_that_joins_while_the_leader_computes_waits_for_the_assignment() -> None:
    """The sync phase is not interrupted; the rebalance for it follows at once."""
    h = Harness()
    a, b = h.form(h.static("a"), h.static("b"))
    register(h, "c")
    c = h.static("c").join()
    assert h.state is GroupState.COMPLETING_REBALANCE
    h.sync_all(b)
    a.sync(h.assignments())
    assert b.assignment == f"{b.member_id}@1".encode()
    assert starts(h) == [Cause.NEW_STATIC_MEMBER, Cause.REGISTRATION_COMPLETE]
    assert c.parked


def test_the_timeout_makes_one_rebalance_with_the_registered_members() -> None:
    """KIP-469; the missing ones are no longer expected."""
    h = Harness()
    a, b = h.stable_group(h.static("a", session_timeout_ms=60_000), h.static("b", session_timeout_ms=60_000))
    register(h, "c,d", timeout_ms=15_000)
    c = h.static("c")
    call = c.join()
    h.sleep(15_000)
    assert starts(h)[1:] == [Cause.REGISTRATION_TIMED_OUT]
    h.rejoin_all(a, b)
    assert call.error is ErrorCode.none
    assert not h.live.registrations


def test_another_registration_timeout_counts_from_when_it_was_set() -> None:
    """In full; other settings do not affect it."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(members_registered="b")
    deadline_ms = h.soft.registration_deadline_ms
    h.sleep(1_000)
    h.set(members_expansion_delay_ms="4000")
    assert h.soft.registration_deadline_ms == deadline_ms
    h.set(members_registration_timeout_ms="60000")
    assert h.soft.registration_deadline_ms == h.now_ms + 60_000


def test_a_registration_timeout_that_is_not_over_ends_nothing() -> None:
    """It may have been moved or dropped after it was found to be due."""
    h = Harness()
    early = EndRegistration(group_id=h.group_id, due_ms=h.now_ms)
    h.stable_group(h.static("a"))
    assert h.send(early).events == ()
    h.set(members_registered="b")
    assert h.send(early).events == ()
    assert set(h.live.registrations) == {"b"}


def test_a_timeout_without_members_makes_no_rebalance() -> None:
    """Nothing has changed."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=2 * DEFAULT_WAIT_MS))
    register(h, "b")
    events = h.sleep(DEFAULT_WAIT_MS)
    assert [type(event) for event in events if isinstance(event, RegistrationEnded)] == [RegistrationEnded]
    assert h.state is GroupState.STABLE
    assert starts(h)[1:] == []


def held(h: Harness, **given: int) -> Client:
    """A group that expects c and d, where only c has arrived."""
    h.stable_group(h.static("a", session_timeout_ms=600_000))
    register(h, "c,d")
    c = h.static("c", **given)
    c.join()
    return c


def test_a_held_join_is_sent_back_to_ask_again() -> None:
    """Some clients give up any request after 40 s; all of them retry after error 14."""
    h = Harness()
    c = held(h)
    assert c.last_join is not None
    given_id = next(iter(h.soft.held_joins))
    h.sleep(HOLD_MS_MAX)
    assert c.last_join.error is ErrorCode.coordinator_load_in_progress
    assert c.last_join.outcome.member_id == given_id
    assert c.join().parked


def test_a_short_rebalance_timeout_shortens_the_hold() -> None:
    """The client waits for a join no longer than its rebalance timeout plus a margin."""
    h = Harness()
    c = held(h, rebalance_timeout_ms=5_000)
    h.sleep(5_000)
    assert c.last_join is not None
    assert c.last_join.error is ErrorCode.coordinator_load_in_progress


def test_a_join_without_a_rebalance_timeout_is_delayed_briefly() -> None:
    """Without one the join is delayed for a tenth of a second all the same."""
    h = Harness()
    c = held(h, rebalance_timeout_ms=0)
    h.sleep(99)
    assert c.last_join is not None
    assert c.last_join.parked
    h.sleep(1)
    assert c.last_join.error is ErrorCode.coordinator_load_in_progress


def test_a_member_sent_back_still_counts_as_joined() -> None:
    """For ten seconds: a client's retry comes well within that."""
    h = Harness()
    held(h)
    h.sleep(HOLD_MS_MAX + RETRY_WINDOW_MS - 1)
    h.static("d").join()
    assert h.state is GroupState.PREPARING_REBALANCE


def test_a_member_that_does_not_rejoin_no_longer_counts() -> None:
    """It is expected again."""
    h = Harness()
    held(h)
    h.sleep(HOLD_MS_MAX + RETRY_WINDOW_MS)
    h.static("d").join()
    assert h.state is GroupState.STABLE
    assert {each.standing for each in h.describe_config().members} == {
        Standing.ACTIVE,
        Standing.WAITING,
        Standing.EXPECTED,
    }


def test_a_second_process_with_the_instance_id_of_an_arrival_fences_the_first() -> None:
    """The same holds for a member (ST7, known bug S1)."""
    h = Harness()
    c = held(h)
    other = c.restarted().join()
    assert c.last_join is not None
    assert c.last_join.error is ErrorCode.fenced_instance_id
    assert other.parked


def test_a_second_process_of_an_arrival_needs_no_room_of_its_own() -> None:
    """It takes the place of the one that it replaces in a full group."""
    h = Harness(max_size=2)
    h.stable_group(h.static("a"))
    h.set(members_expansion_delay_ms="10000")
    b = h.static("b")
    assert b.join().parked
    assert b.restarted().join().parked
    assert h.static("c").join().error is ErrorCode.group_max_size_reached


def test_an_arrival_that_sends_its_join_again_has_one_place() -> None:
    """With the id it was given, and with the id that was proposed for it."""
    h = Harness()
    c = held(h)
    given_id = next(iter(h.soft.held_joins))
    c.join(member_id=given_id)
    c.join(member_id=UNKNOWN_MEMBER_ID, proposed_member_id=given_id)
    assert list(h.soft.held_joins) == [given_id]


def test_an_arrival_may_leave_and_be_removed() -> None:
    """It is not a member yet: the group does not change."""
    h = Harness()
    c = held(h)
    assert h.leave_instance("c").outcome.members[0].error is ErrorCode.none
    assert c.last_join is not None
    assert c.last_join.error is ErrorCode.unknown_member_id
    assert not h.soft.held_joins
    assert h.state is GroupState.STABLE


def test_withdrawing_the_last_missing_instance_completes_the_registration() -> None:
    """There is nothing left to wait for."""
    h = Harness()
    held(h)
    h.alter((REGISTERED, ConfigOperation.SUBTRACT, "d"))
    assert starts(h)[1:] == [Cause.REGISTRATION_COMPLETE]


def test_withdrawing_a_waiting_instance_admits_it() -> None:
    """It is then a new member like any other."""
    h = Harness()
    held(h)
    h.alter((REGISTERED, ConfigOperation.SUBTRACT, "c"))
    assert starts(h)[1:] == [Cause.REGISTRATION_WITHDRAWN]


def test_registrations_survive_a_takeover_and_arrivals_ask_again() -> None:
    """The timeout restarts in full."""
    h = Harness()
    held(h)
    h.sleep(DEFAULT_WAIT_MS - 1_000)
    h.takeover()
    assert not h.soft.held_joins
    h.sleep(DEFAULT_WAIT_MS - 1)
    assert set(h.live.registrations) == {"c", "d"}
    h.sleep(1)
    assert not h.live.registrations


def test_group_max_size_counts_waiting_joins() -> None:
    """KIP-389: a join that could not be admitted is not delayed."""
    h = Harness(max_size=2)
    h.stable_group(h.static("a"))
    h.set(members_expansion_delay_ms="10000")
    assert h.static("b").join().parked
    assert h.static("c").join().error is ErrorCode.group_max_size_reached


def test_expansion_delay_gathers_new_members() -> None:
    """expansion.timeout of the drafts: dynamic members too, after the two steps of KIP-394."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.set(members_expansion_delay_ms="4000")
    clients = [h.dynamic(), h.static("c"), h.dynamic(version=3)]
    calls = [client.enter() for client in clients]
    h.sleep(3_999)
    assert h.state is GroupState.STABLE
    h.sleep(1)
    assert starts(h)[1:] == [Cause.EXPANSION_DELAY_ELAPSED]
    h.rejoin_all(a, b)
    assert [call.error for call in calls] == [ErrorCode.none] * 3


def test_a_dynamic_member_that_was_sent_back_keeps_its_id_and_waits_again() -> None:
    """The delay is longer than one join may wait: it retries with its id (KIP-394)."""
    h = Harness()
    a, b = h.stable_group(*(h.static(name, session_timeout_ms=600_000) for name in "ab"))
    h.set(members_expansion_delay_ms="30000")
    c = h.dynamic("c")
    sent_back = c.enter()
    h.sleep(HOLD_MS_MAX)
    assert sent_back.error is ErrorCode.coordinator_load_in_progress
    member_id = c.member_id
    again = c.join()
    assert again.parked
    assert h.soft.held_joins[member_id].parked
    h.sleep(10_000)
    h.rejoin_all(a, b)
    assert (again.error, again.outcome.member_id) == (ErrorCode.none, member_id)


def test_a_static_restart_is_not_delayed() -> None:
    """It is not a new member."""
    h = Harness()
    _a, b = h.stable_group(h.static("a"), h.static("b"))
    h.set(members_expansion_delay_ms="4000")
    assert b.restarted().join().error is ErrorCode.none


def test_switching_the_delay_off_admits_waiting_joins() -> None:
    """At once, as an administrator would expect."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(members_expansion_delay_ms="60000")
    h.static("b").join()
    h.alter(("members.expansion.delay.ms", ConfigOperation.DELETE, None))
    assert starts(h)[1:] == [Cause.GROUP_CONFIGURED]


def test_the_delay_begins_with_the_first_waiting_join() -> None:
    """Setting the config does not start it: there is nothing waiting yet."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=600_000))
    h.set(members_expansion_delay_ms="4000")
    assert h.soft.expansion_deadline_ms is None
    h.sleep(3_000)
    h.static("b").join()
    assert h.soft.expansion_deadline_ms == h.now_ms + 4_000


def test_another_delay_counts_from_when_it_was_set() -> None:
    """In full, for those that are waiting already."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=600_000))
    h.set(members_expansion_delay_ms="60000")
    h.static("b").join()
    h.sleep(1_000)
    h.set(members_expansion_delay_ms="5000")
    h.sleep(4_999)
    assert h.state is GroupState.STABLE
    h.sleep(1)
    assert starts(h)[1:] == [Cause.EXPANSION_DELAY_ELAPSED]


def test_unexpected_waiting_joins_do_not_complete_a_registration() -> None:
    """They wait for the delay; they are as many as the registered ones, but not the same."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.alter((REGISTERED, ConfigOperation.SET, "b,c"), ("members.expansion.delay.ms", ConfigOperation.SET, "60000"))
    for name in "dbe":
        assert h.static(name).join().parked
    assert h.state is GroupState.STABLE
    h.static("c").join()
    assert starts(h)[1:] == [Cause.REGISTRATION_COMPLETE]


def test_an_arrival_that_no_longer_fits_is_refused_when_it_is_admitted() -> None:
    """The group may have agreed on other protocols in between."""
    h = Harness()
    a, _b = h.stable_group(*(h.static(name, protocols=protocols("range", "sticky")) for name in "ab"))
    h.set(members_expansion_delay_ms="4000")
    call = h.static("c", protocols=protocols("range")).join()
    a.join(protocols=protocols("sticky"))
    assert call.error is ErrorCode.inconsistent_group_protocol
