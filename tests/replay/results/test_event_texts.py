"""The text of an event depends on its cause."""

import msgspec
import pytest

from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    GroupCreated,
    GroupEmptied,
    InstanceRegistered,
    JoinPhaseCompleted,
    JoinRefused,
    MemberAssigned,
    MemberRemoved,
    RebalanceStarted,
    RegistrationEnded,
)
from muster.events.ids import GroupInstanceId
from muster.events.state import GroupState, Registration
from muster.replay.results.event_texts import event_text
from tests.replay.histories import Script


def events() -> dict[type, AnyEvent]:
    """Return one event of each type."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).advanced(script.joined(script.member("b")))
    script.complete(cause=Cause.JOIN_PHASE_TIMED_OUT, absent=[script.of("b")])
    script.stabilize({"a": {"orders": [3, 4]}})
    script.refused(script.member("c"), 81, Cause.GROUP_FULL, suppressed=7).emptied()
    why = msgspec.structs.replace(script.why(Cause.UNKNOWN), client_id="admin-1", api_key=44)
    registration = Registration(group_instance_id=GroupInstanceId("r"), registered_ms=0)
    fields = {"registration": registration, "why": why, **script._head()}
    reported: list[AnyEvent] = [InstanceRegistered(**fields), RegistrationEnded(**fields)]
    reported += [event for _, parts in script.transitions for event in parts]  # type: ignore[misc]
    return {type(event): event for event in reversed(reported)}


EVENTS = events()


@pytest.mark.parametrize(
    ("event_type", "cause", "said"),
    [
        (GroupCreated, Cause.GROUP_CREATED, "the group was created"),
        (GroupCreated, Cause.GROUP_REPAIRED, "an administrator had it re-created"),
        (GroupCreated, Cause.OFFSETS_FOUND, "has committed offsets: it was recreated"),
        (GroupEmptied, Cause.RECORD_OVERWRITTEN, "a foreign record had replaced it in the event log"),
        (GroupEmptied, Cause.ALL_JOINED, "the group is empty, generation 2"),
        (InstanceRegistered, Cause.INSTANCES_REGISTERED, "'r' was registered: it is expected to join"),
        (RegistrationEnded, Cause.REGISTRATION_WITHDRAWN, "no longer expected: its registration was withdrawn"),
        (RegistrationEnded, Cause.REGISTRATION_TIMED_OUT, "no longer expected: the time for registered instances"),
        (RegistrationEnded, Cause.GROUP_DELETED, "no longer expected: the group was deleted"),
        (RegistrationEnded, Cause.REGISTRATION_COMPLETE, "instance 'r' joined, as registered"),
        (JoinRefused, Cause.GROUP_FULL, "(GROUP_MAX_SIZE_REACHED), and 7 more that were not written"),
        (JoinPhaseCompleted, Cause.JOIN_PHASE_TIMED_OUT, "; 1 static member did not rejoin and stayed"),
        (MemberAssigned, Cause.ASSIGNMENT_RECEIVED, "was assigned orders 3-4"),
        (MemberAssigned, Cause.STANDBY_CALLED, "orders 3-4, a lost member's: the standby was called"),
    ],
)
def test_the_text_names_the_effect_of_the_cause(event_type: type, cause: Cause, said: str) -> None:
    """It has nothing that belongs to another cause."""
    event = EVENTS[event_type]
    reported = event_text(msgspec.structs.replace(event, why=msgspec.structs.replace(event.why, cause=cause)))
    assert said in reported
    assert "None" not in reported


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (GroupState.EMPTY, "for the initial delay of 3 s, longer as members join, up to the rebalance timeout (all-jo"),
        (GroupState.STABLE, "the join phase began, for up to 3 s (all-joined)"),
    ],
)
def test_an_initial_delay_is_not_a_limit_of_the_join_phase(state: GroupState, said: str) -> None:
    """Each member that joins in it extends it, up to the rebalance timeout (KIP-134)."""
    event = EVENTS[RebalanceStarted]
    assert isinstance(event, RebalanceStarted)
    why = msgspec.structs.replace(event.why, cause=Cause.ALL_JOINED)
    group = msgspec.structs.replace(event.group, previous_state=state)
    assert said in event_text(msgspec.structs.replace(event, why=why, group=group, timeout_ms=3_000))


def test_a_member_that_is_removed_from_a_full_group_is_not_called_refused() -> None:
    """It was a member, with partitions; what it gets next is a refusal, another event."""
    script = Script().created()
    script.advanced(script.joined(script.member("a"))).advanced(script.removed(script.of("a"), Cause.GROUP_FULL))
    (removed,) = (event for _, parts in script.transitions for event in parts if isinstance(event, MemberRemoved))
    assert "rejoined a group that has group.max.size members, and was removed" in event_text(removed)


def test_invalid_assignments_are_counted() -> None:
    """Clients other than consumers may write anything."""
    event = EVENTS[MemberAssigned]
    assert isinstance(event, MemberAssigned)
    for assignment, reported in ((b"\x00\x01\x02", "3 bytes that are not a consumer assignment"), (b"", "nothing")):
        changed = msgspec.structs.replace(event.member, assignment=assignment)
        assert event_text(msgspec.structs.replace(event, member=changed)).endswith(f"was assigned {reported}")
