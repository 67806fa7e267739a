"""Each event type in one line of English, for `history`. A table: a type that is missing here is a type error."""

from typing import assert_never

from events.events import (
    AnyEvent,
    AnyRecordedEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    GroupAdvanced,
    GroupCreated,
    GroupDeleted,
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    JoinRefused,
    MemberAssigned,
    MemberFenced,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    PartitionEvent,
    RebalanceStarted,
    StaticMemberReplaced,
)
from replay.incidents import unserved
from replay.moves import by_topic, decode_assignment
from replay.rebalance import actor, ref
from replay.times import duration, setting
from replay.wording import JOIN_ENDS, cause_text, host, partitions, plural, short_member_id, who


def event_text(event: AnyRecordedEvent) -> str:
    """What the event says."""
    if isinstance(event, PartitionEvent):
        return _partition_text(event)
    if isinstance(event, MemberJoined | MemberRejoined | StaticMemberReplaced | MemberAssigned | MemberRemoved):
        return _member_text(event)
    return _group_text(event)


def _partition_text(event: CoordinatorElected | CoordinatorReady | CoordinatorPaused | CoordinatorStopped) -> str:
    match event:
        case CoordinatorElected():
            return f"{event.owner} (Muster {event.version}) was elected coordinator, epoch {event.owner_epoch}"
        case CoordinatorReady():
            read = f"{plural(event.events_read, 'event')} read, {plural(event.groups, 'group')}"
            return f"{event.owner} was ready after {duration(event.took_ms)}: {read}, {plural(event.members, 'member')}"
        case CoordinatorPaused():
            return f"{event.owner} stood still for {duration(event.late_ms)}; all sessions were re-armed"
        case CoordinatorStopped():
            return f"{event.owner} stopped in good order"
        case _:
            assert_never(event)


def _member_text(
    event: MemberJoined | MemberRejoined | StaticMemberReplaced | MemberAssigned | MemberRemoved,
) -> str:
    match event:
        case MemberAssigned():
            return f"{who(ref(event.member))} was assigned {_assignment(event)}"
        case StaticMemberReplaced():
            replaced = f"{short_member_id(event.replaced_member_id)} at {host(event.replaced_client_host)}"
            return f"{cause_text(event.why, [actor(event)])}; it replaces {replaced}"
        case MemberJoined() | MemberRejoined() | MemberRemoved():
            return cause_text(event.why, [actor(event)])
        case _:
            assert_never(event)


def _assignment(event: MemberAssigned) -> str:
    decoded = decode_assignment(event.member.assignment)
    if decoded is None:
        return f"{len(event.member.assignment)} bytes that are no consumer assignment"
    return partitions(by_topic(decoded)) or "nothing"


def _group_text(event: AnyEvent) -> str:
    match event:
        case GroupCreated():
            return "the group was created"
        case GroupAdvanced():
            return f"the group's own record was written with the members' ({event.why.cause})"
        case RebalanceStarted():
            return f"rebalance: the join phase began, for up to {setting(event.timeout_ms)} ({event.why.cause})"
        case JoinPhaseCompleted():
            return f"generation {event.group.generation_id} began: {_join_end(event)}"
        case GroupStabilized():
            return f"generation {event.group.generation_id} is stable: the leader sent the assignment"
        case GroupEmptied():
            return f"the group is empty, generation {event.group.generation_id}"
        case GroupDeleted():
            return cause_text(event.why, [])
        case JoinRefused() | MemberFenced():
            return _refusal(event)
        case MemberJoined() | MemberRejoined() | StaticMemberReplaced() | MemberAssigned() | MemberRemoved():
            return _member_text(event)
        case _:
            assert_never(event)


def _refusal(event: JoinRefused | MemberFenced) -> str:
    text = "; ".join(f"{incident.text} ({incident.error})" for incident in unserved(event))
    return f"{text}, and {event.suppressed} more that were not written" if event.suppressed else text


def _join_end(event: JoinPhaseCompleted) -> str:
    text = JOIN_ENDS.get(event.why.cause, str(event.why.cause))
    if event.absent:
        text += f"; {plural(len(event.absent), 'static member')} did not rejoin and stayed"
    return text
