"""Each event type as one line of English, for `history`. The match is exhaustive, so mypy reports a missing type."""

from typing import assert_never

from muster.events.causes import REFUSED_WITHOUT_GROUP, TEXTS, Cause
from muster.events.events import (
    AnyGroupEvent,
    AnyMemberEvent,
    AnyRecordedEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    GroupAdvanced,
    GroupConfigured,
    GroupCreated,
    GroupDeleted,
    GroupEmptied,
    GroupEvent,
    GroupStabilized,
    InstanceRegistered,
    JoinPhaseCompleted,
    JoinRefused,
    MemberAssigned,
    MemberFenced,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    MemberRoleChanged,
    PartitionEvent,
    RebalanceStarted,
    RegistrationEnded,
    StaticMemberReplaced,
)
from muster.events.state import GroupConfig, GroupState, MemberRole
from muster.replay.rebalances.happenings import unserved
from muster.replay.rebalances.moves import by_topic, decode_assignment
from muster.replay.rebalances.planned import configured_text
from muster.replay.rebalances.rebalance import actor, ref
from muster.replay.rebalances.takeovers import taken_over
from muster.replay.rebalances.wording import (
    JOIN_ENDS,
    asked_by,
    cause_text,
    host,
    partitions,
    plainly,
    rearmed_text,
    short_member_id,
    who,
)
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, setting


def event_text(event: AnyRecordedEvent, config: GroupConfig | None = None) -> str:
    """Return the text of an event. `config`: the group's configs before it; None: unknown."""
    if isinstance(event, PartitionEvent):
        return _partition_text(event)
    if event.why.cause is Cause.RECORD_OVERWRITTEN:
        return cause_text(event.why, [])
    if isinstance(event, GroupConfigured):
        return configured_text(event, config)
    if isinstance(event, InstanceRegistered | RegistrationEnded):
        return _registration_text(event)
    return _group_text(event) if isinstance(event, GroupEvent) else _member_text(event)


def _partition_text(event: CoordinatorElected | CoordinatorReady | CoordinatorPaused | CoordinatorStopped) -> str:
    match event:
        case CoordinatorElected():
            return f"{event.owner} (Muster {event.version}) was elected coordinator, epoch {event.owner_epoch}"
        case CoordinatorReady():
            read = f"{plural(event.events_read, 'event')} read, {plural(event.groups, 'group')}"
            ready = (
                f"{event.owner} was ready after {duration(event.took_ms)}: {read}, {plural(event.members, 'member')}"
            )
            return "; ".join(filter(None, (ready, _takeover_text(event))))
        case CoordinatorPaused():
            return f"{event.owner} stalled for at least {duration(event.late_ms)}; {rearmed_text(event)}"
        case CoordinatorStopped():
            return f"{event.owner} released its partition cleanly"
        case _:
            assert_never(event)


def _takeover_text(event: CoordinatorReady) -> str | None:
    if event.owner_before is None or event.owner_before_end is None:
        return None
    return taken_over(event.owner, event.owner_before, event.owner_before_end)


def _member_text(event: AnyMemberEvent) -> str:
    match event:
        case MemberAssigned():
            called = ", a lost member's: the standby was called" if event.why.cause is Cause.STANDBY_CALLED else ""
            return f"{who(ref(event.member))} was assigned {_assignment(event)}{called}"
        case MemberRoleChanged():
            return _role_text(event)
        case StaticMemberReplaced():
            replaced = f"{short_member_id(event.replaced_member_id)} at {host(event.replaced_client_host)}"
            return f"{cause_text(event.why, [actor(event)])}; it replaces {replaced}"
        case MemberRemoved() if event.why.cause is Cause.RETIREMENT_TIMED_OUT:
            return f"{who(ref(event.member))} was retired, did not leave in time, and was removed"
        case MemberRemoved() if event.why.cause is Cause.GROUP_RELEASED:
            return f"{who(ref(event.member))} was removed: {cause_text(event.why, [])}"
        case MemberRemoved() if event.why.cause is Cause.GROUP_FULL:
            return f"{who(ref(event.member))} rejoined a group that has group.max.size members, and was removed"
        case MemberJoined() | MemberRejoined() | MemberRemoved():
            return cause_text(event.why, [actor(event)])
        case _:
            assert_never(event)


def _role_text(event: MemberRoleChanged) -> str:
    member = who(ref(event.member))
    match event.why.cause:
        case Cause.MEMBERS_RETIRED:
            return f"{member} was retired: it was asked to leave{asked_by(event.why)}"
        case Cause.RETIREMENT_WITHDRAWN:
            return f"{member} is to stay after all{asked_by(event.why)}"
        case Cause.STANDBY_TOOK_OVER:
            return f"{member} asked for its partitions, and is active"
        case Cause.LEARNERS_PROMOTED | Cause.GROUP_CONFIGURED:
            return f"the learner {plainly(ref(event.member))} was promoted{asked_by(event.why)}"
        case Cause.LEARNER_TIMEOUT_ELAPSED:
            return f"the learner {plainly(ref(event.member))} was promoted: the learner timeout elapsed"
        case _:
            return f"{member} {_ROLES[event.member.role]} from the next generation on"


_ROLES = {
    MemberRole.ACTIVE: "is active",
    MemberRole.CALLED: "is called",
    MemberRole.STANDBY: "stands by, without partitions,",
    MemberRole.LEARNER: "learns, without partitions,",
}


def _registration_text(event: InstanceRegistered | RegistrationEnded) -> str:
    instance = f"instance '{event.registration.group_instance_id}'"
    if isinstance(event, InstanceRegistered):
        return f"{instance} was registered: it is expected to join{asked_by(event.why)}"
    match event.why.cause:
        case Cause.REGISTRATION_WITHDRAWN:
            return f"{instance} is no longer expected: its registration was withdrawn{asked_by(event.why)}"
        case Cause.REGISTRATION_TIMED_OUT:
            return f"{instance} is no longer expected: the time for registered instances to join ran out"
        case Cause.GROUP_DELETED:
            return f"{instance} is no longer expected: the group was deleted"
        case _:
            return f"{instance} joined, as registered"


def _assignment(event: MemberAssigned) -> str:
    decoded = decode_assignment(event.member.assignment)
    if decoded is None:
        return f"{len(event.member.assignment)} bytes that are not a consumer assignment"
    return partitions(by_topic(decoded)) or "nothing"


def _group_text(event: AnyGroupEvent) -> str:
    match event:
        case GroupCreated() if event.why.cause is Cause.GROUP_REPAIRED:
            return f"{TEXTS[event.why.cause]}{asked_by(event.why)}"
        case GroupCreated() if event.why.cause is Cause.OFFSETS_FOUND:
            return TEXTS[event.why.cause]
        case GroupCreated():
            return "the group was created"
        case GroupAdvanced():
            return f"the group's own record was written with the members' ({event.why.cause})"
        case RebalanceStarted():
            return f"rebalance: the join phase began, {_join_limit(event)} ({event.why.cause})"
        case JoinPhaseCompleted():
            return f"generation {event.group.generation_id} began: {_join_end(event)}"
        case GroupStabilized():
            return f"generation {event.group.generation_id} is stable: the leader sent the assignment"
        case GroupEmptied():
            return f"the group is empty, generation {event.group.generation_id}"
        case GroupDeleted(why=why) if why.cause in REFUSED_WITHOUT_GROUP:
            return "the group was removed: it existed only to record the refusal"
        case GroupDeleted():
            return cause_text(event.why, [])
        case JoinRefused() | MemberFenced():
            return _refusal(event)
        case _:
            assert_never(event)


def _join_limit(event: RebalanceStarted) -> str:
    """The limit of the join phase: if the group was Empty, the initial delay, which restarts as members join
    (KIP-134).
    """
    if event.group.previous_state is GroupState.EMPTY:
        return (
            f"for the initial delay of {setting(event.timeout_ms)}, longer as members join, up to the rebalance timeout"
        )
    return f"for up to {setting(event.timeout_ms)}"


def _refusal(event: JoinRefused | MemberFenced) -> str:
    text = "; ".join(f"{happening.text} ({happening.error})" for happening in unserved(event))
    return f"{text}, and {event.suppressed} more that were not written" if event.suppressed else text


def _join_end(event: JoinPhaseCompleted) -> str:
    text = JOIN_ENDS.get(event.why.cause, str(event.why.cause))
    if event.absent:
        text += f"; {plural(len(event.absent), 'static member')} did not rejoin and stayed"
    return text
