"""Each trigger's cause (section RS), and the text for each cause."""

from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from muster.events.causes import KAFKAS_TRIGGERS, TEXTS, Cause
from muster.events.events import RebalanceStarted
from muster.events.ids import MemberId
from tests.coordinator.group.client import Client, protocols
from tests.coordinator.group.harness import Harness

Trigger = Callable[[Harness, Client, Client], object]

CHANGED = protocols("range", metadata=b"new")
BOTH = protocols("range", "sticky")


def over_capacity(h: Harness, _a: Client, _b: Client) -> None:
    h.settings = Harness(max_size=1).settings
    h.takeover()


def pending_leaves(h: Harness, _a: Client, _b: Client) -> None:
    c = h.dynamic("c")
    c.join()
    c.leave()


def b_expires(h: Harness, a: Client, _b: Client) -> None:
    h.sleep(6_000)
    a.heartbeat()
    h.sleep(5_000)


def nobody_syncs(h: Harness, a: Client, b: Client) -> None:
    for _ in range(7):
        h.sleep(9_000)
        a.heartbeat()
        b.heartbeat()


FROM_STABLE: dict[Cause, Trigger] = {
    Cause.NEW_DYNAMIC_MEMBER: lambda h, _a, _b: h.dynamic("c").enter(),
    Cause.NEW_STATIC_MEMBER: lambda h, _a, _b: h.static("c").join(),
    Cause.METADATA_CHANGED: lambda _h, _a, b: b.join(protocols=CHANGED),
    Cause.LEADER_REJOINED: lambda _h, a, _b: a.join(),
    Cause.STATIC_REPLACEMENT_CHANGED_PROTOCOL: lambda _h, _a, b: b.restarted().join(protocols=protocols("sticky")),
    Cause.SESSION_EXPIRED: b_expires,
    Cause.MEMBER_LEFT: lambda _h, _a, b: b.leave(),
    Cause.MEMBER_REMOVED_BY_ADMIN: lambda h, _a, _b: h.leave_instance("b"),
    Cause.PENDING_MEMBER_LEFT: pending_leaves,
    Cause.OVER_CAPACITY: over_capacity,
}
FROM_SYNC_PHASE: dict[Cause, Trigger] = {
    Cause.NEW_DYNAMIC_MEMBER: lambda h, _a, _b: h.dynamic("c").enter(),
    Cause.NEW_STATIC_MEMBER: lambda h, _a, _b: h.static("c").join(),
    Cause.METADATA_CHANGED: lambda _h, a, _b: a.join(protocols=BOTH[:1] + CHANGED),
    Cause.STATIC_REPLACEMENT_DURING_SYNC: lambda _h, _a, b: b.restarted().join(),
    Cause.SESSION_EXPIRED: b_expires,
    Cause.SYNC_TIMED_OUT: nobody_syncs,
    Cause.MEMBER_LEFT: lambda _h, _a, b: b.leave(),
    Cause.MEMBER_REMOVED_BY_ADMIN: lambda h, _a, _b: h.leave_instance("b"),
    Cause.PENDING_MEMBER_LEFT: pending_leaves,
    Cause.ASSIGNMENT_NOT_STORED: lambda h, a, _b: h.reject_assignment(a, ErrorCode.unknown_server_error),
    Cause.OVER_CAPACITY: over_capacity,
}


def first_start_after(h: Harness, trigger: Trigger, a: Client, b: Client) -> RebalanceStarted:
    seen = len(h.events)
    trigger(h, a, b)
    return next(event for event in h.events[seen:] if isinstance(event, RebalanceStarted))


@pytest.mark.parametrize("cause", FROM_STABLE, ids=str)
def test_trigger_from_stable_is_named(cause: Cause) -> None:
    """RS2 to RS9, RS11, RS14: each trigger that is possible in Stable."""
    h = Harness()
    a, b = h.stable_group(h.static("a", protocols=BOTH), h.static("b", protocols=BOTH))
    assert first_start_after(h, FROM_STABLE[cause], a, b).why.cause is cause


@pytest.mark.parametrize("cause", FROM_SYNC_PHASE, ids=str)
def test_trigger_from_the_sync_phase_is_named(cause: Cause) -> None:
    """RS2, RS3, RS6 to RS11, RS14: each trigger that is possible in the sync phase."""
    h = Harness()
    a, b = h.form(h.static("a", protocols=BOTH), h.static("b", protocols=BOTH))
    assert first_start_after(h, FROM_SYNC_PHASE[cause], a, b).why.cause is cause


def test_every_trigger_is_tried() -> None:
    """RS14: there is a test for each; triggers beyond Kafka's are tested with their feature."""
    assert FROM_STABLE.keys() | FROM_SYNC_PHASE.keys() == KAFKAS_TRIGGERS


def test_start_of_an_empty_group_is_a_new_member() -> None:
    """RS16: the cause is the new member, as in a group with members."""
    h = Harness()
    h.static("a").join()
    assert h.events[-1].why.cause is Cause.NEW_STATIC_MEMBER


def test_why_names_the_acting_member() -> None:
    """RS18, RS20: member, instance, client, host, principal, API, and the client's own reason; "" counts as none."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.sleep(500)
    call = h.static("b", host="/10.0.0.5", version=8).join(reason="scaling up")
    why = call.events[-1].why
    assert (why.member_id, why.group_instance_id, why.client_id) == ("b-2", "b", "app-b")
    assert (why.client_host, why.principal) == ("/10.0.0.5", "User:app-b")
    assert (why.api_key, why.api_version, why.client_reason) == (11, 8, "scaling up")
    assert (why.arrived_ms, why.decided_ms, why.parked_ms) == (h.wall_ms, h.wall_ms, 0)
    assert h.static("c").join(reason="").events[-1].why.client_reason is None


def test_why_of_a_deadline_names_the_member_and_the_due_time() -> None:
    """RS7: no API was called."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.sleep(6_000)
    a.heartbeat()
    removed = h.sleep(4_000)[0]
    assert (removed.why.member_id, removed.why.group_instance_id) == (b.member_id, "b")
    assert (removed.why.api_key, removed.why.arrived_ms) == (None, h.wall_ms)


def test_cause_of_a_batch_is_its_first_valid_entry() -> None:
    """RS9, QK9: here the log does record which member was removed."""
    h = Harness()
    h.stable_group(*(h.static(name) for name in "abc"))
    events = h.leave_instance("ghost", "b", "c").events
    assert [event.why.member_id for event in events] == ["b-2", "c-3", "b-2"]


def test_the_end_of_a_join_phase_records_the_longest_wait() -> None:
    """The cause of the end: which member completed it, and the longest wait."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    a.join()
    h.sleep(700)
    completed = b.join().events[-1]
    assert (completed.why.cause, completed.why.member_id) == (Cause.ALL_JOINED, b.member_id)
    assert completed.why.parked_ms == 700


def test_every_cause_has_a_text() -> None:
    """The texts are for operators."""
    assert TEXTS.keys() == set(Cause)
    for text in TEXTS.values():
        assert text.format(member=MemberId("m"))
