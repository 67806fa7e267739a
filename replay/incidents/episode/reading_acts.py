"""Reads the acts of a transition: those of its events, with a function for each type, and the phase that the group
entered.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from muster.coordinator.group.members import supported_by_all
from muster.coordinator.group.unassigned import shares_of
from muster.events.causes import PLANNED_TRIGGERS, Cause
from muster.events.connection import LastConnection
from muster.events.events import (
    AnyMemberEvent,
    GroupAdvanced,
    GroupConfigured,
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
    MemberRoleChanged,
    RebalanceStarted,
    StaticMemberReplaced,
)
from muster.replay.history.transitions import Transition
from muster.replay.incidents.episode.acts import (
    AnyAct,
    AskedFor,
    Called,
    Came,
    CameBack,
    ConnectionKey,
    Departure,
    Duelled,
    JoinNotLetIn,
    Phase,
    RebalancedTopic,
    Rejoined,
    TookOver,
    TopicsUnassigned,
    Went,
)
from muster.replay.rebalances.planned import config_changes
from muster.replay.rebalances.wording import is_of_another

_DEPARTURES = {
    Cause.SESSION_EXPIRED: Departure.EXPIRED,
    Cause.NOT_REJOINED: Departure.NOT_REJOINED,
    Cause.FIRST_JOIN_TIMED_OUT: Departure.NOT_REJOINED,
    Cause.SYNC_TIMED_OUT: Departure.NOT_SYNCED,
    Cause.MEMBER_REMOVED_BY_ADMIN: Departure.REMOVED,
}
_PLANNED_JOINS = frozenset({Cause.LEARNER_ADMITTED, Cause.STANDBY_ADMITTED, Cause.REGISTRATION_COMPLETE})
_PHASES = frozenset({GroupCreated, RebalanceStarted, JoinPhaseCompleted, GroupStabilized, GroupEmptied, GroupDeleted})


def acts_of(step: Transition) -> list[AnyAct]:
    """Return the acts of one transition in order: those of members first, then those of the group."""
    acts: list[AnyAct] = []
    for part in step.parts:
        if isinstance(part, MemberAssigned) and part.why.cause is not Cause.STANDBY_CALLED:  # most are
            continue
        read = _ACT_OF.get(type(part))
        act = None if read is None else read(part, step)
        if act is not None:
            acts.append(act)
    if not isinstance(step.event, GroupAdvanced):  # most are
        acts += _of_group(step)
    unassigned = _unassigned(step, acts)
    return acts if unassigned is None else [*acts, unassigned]


def _unassigned(step: Transition, acts: Iterable[AnyAct]) -> TopicsUnassigned | None:
    """Return the topics without an owner after an assignment, or after a member came back to its old assignment."""
    came_back = next((act for act in acts if isinstance(act, CameBack) and act.absorbed and act.changed_topics), None)
    if came_back is None and not isinstance(step.event, GroupStabilized):
        return None
    shares, event = shares_of(step.after), step.event
    topics = frozenset[str]() if shares is None else shares.unassigned_topics
    if not topics:
        return None
    seq = event.seq if came_back is None else came_back.seq
    return TopicsUnassigned(seq=seq, at_ms=event.why.decided_ms, why=event.why, topics=topics)


def _of_group(step: Transition) -> Iterator[AnyAct]:
    event = step.event
    seq, at_ms, why = event.seq, event.why.decided_ms, event.why
    if isinstance(event, RebalanceStarted) and why.cause in PLANNED_TRIGGERS:
        yield AskedFor(seq=seq, at_ms=at_ms, why=why, cause=why.cause, topics=tuple(_rebalanced_for(step)))
    if isinstance(event, MemberFenced):
        is_duel = why.cause is Cause.INSTANCE_DUEL
        yield Duelled(seq=seq, at_ms=at_ms, why=why, is_duel=is_duel, times=1 + event.suppressed, event=event)
    elif isinstance(event, JoinRefused):
        members = step.after.members.values()
        common = tuple(sorted(supported_by_all(members))) if why.cause is Cause.PROTOCOL_MISMATCH else ()
        times = 1 + event.suppressed
        yield JoinNotLetIn(seq=seq, at_ms=at_ms, why=why, times=times, event=event, members=len(members), common=common)
    elif type(event) in _PHASES:
        yield Phase(seq=seq, at_ms=at_ms, why=why, event=event, members=tuple(step.after.members))


def _went(part: MemberRemoved, _step: Transition) -> Went:
    return Went(
        seq=part.seq,
        at_ms=part.why.decided_ms,
        why=part.why,
        member=part.member,
        how=departure(part),
        last_seen_ms=part.last_seen_ms,
        longest_silence_ms=part.longest_silence_ms,
        heard=part.heard,
        connection=_connection(part),
        last_connection=part.last_connection,
        last_connection_key=_key(part, part.last_connection),
    )


def _called(part: MemberAssigned, step: Transition) -> Called | None:
    """Read a standby's call: the replaced member left in the same transition, and had exactly this assignment."""
    if part.why.cause is not Cause.STANDBY_CALLED:
        return None
    gone = (each.member for each in step.parts if isinstance(each, MemberRemoved))
    lost = next((each.member_id for each in gone if each.assignment == part.member.assignment), None)
    return Called(seq=part.seq, at_ms=part.why.decided_ms, why=part.why, member=part.member, lost=lost)


def _took_over(part: MemberRoleChanged, _step: Transition) -> TookOver | None:
    if part.why.cause is not Cause.STANDBY_TOOK_OVER:
        return None
    return TookOver(seq=part.seq, at_ms=part.why.decided_ms, why=part.why, member=part.member)


def _rebalanced_for(step: Transition) -> Iterator[RebalancedTopic]:
    """Yield the topics that are new or changed among those for which Muster asked to rebalance."""
    shares, before = shares_of(step.before), {each.topic: each for each in step.before.config.rebalanced_for}
    for each in step.after.config.rebalanced_for:
        earlier = before.get(each.topic)
        if each != earlier:
            yield RebalancedTopic(
                topic=each.topic,
                partitions=each.partitions,
                partitions_before=None if earlier is None else earlier.partitions,
                assigned=None if shares is None else shares.assigned.get(each.topic, range(0)),
                is_subscribed=shares is None or each.topic in shares.subscribed,
            )


def _asked_for(part: GroupConfigured, step: Transition) -> AskedFor | None:
    if part.why.cause in (Cause.PARTITIONS_UNASSIGNED, Cause.PARTITIONS_ASSIGNED):
        return None  # belongs to a rebalance, or is its result
    is_upstream = part.config.coordinator is not None
    why = part.why
    changes = config_changes(step.before.config, part.config) if why.cause is Cause.GROUP_CONFIGURED else ()
    return AskedFor(
        seq=part.seq, at_ms=why.decided_ms, why=why, cause=why.cause, is_upstream=is_upstream, configs=changes
    )


def departure(part: MemberRemoved) -> Departure:
    """Return how the member left. A LeaveGroup with another client id, or from another host, is not its own."""
    why, member = part.why, part.member
    known = _DEPARTURES.get(why.cause)
    if known is not None:
        return known
    if why.cause is not Cause.MEMBER_LEFT or member.retiring:
        return Departure.PLANNED
    return Departure.REMOVED if is_of_another(why, member) else Departure.LEFT


def _rejoined(part: MemberRejoined, step: Transition) -> Rejoined:
    return Rejoined(
        seq=part.seq,
        at_ms=part.why.decided_ms,
        why=part.why,
        member=part.member,
        before=step.before.members.get(part.member.member_id),
        connection=_connection(part),
    )


def _came(part: MemberJoined, step: Transition) -> Came:
    registered = part.member.group_instance_id in step.before.registrations
    planned = registered or part.why.cause in _PLANNED_JOINS
    return Came(
        seq=part.seq,
        at_ms=part.why.decided_ms,
        why=part.why,
        member=part.member,
        planned=planned,
        connection=_connection(part),
    )


def _came_back(part: StaticMemberReplaced, step: Transition) -> CameBack:
    return CameBack(
        seq=part.seq,
        at_ms=part.why.decided_ms,
        why=part.why,
        member=part.member,
        before=step.before.members.get(part.replaced_member_id),
        replaced_member_id=part.replaced_member_id,
        replaced_client_host=part.replaced_client_host,
        last_seen_ms=_last_seen_of_replaced(part),
        longest_silence_ms=part.longest_silence_ms,
        heard=None if part.heard is None else part.replaced_last_seen_ms is not None,
        absorbed=part.why.cause is Cause.STATIC_RESTART_ABSORBED,
        connection=_connection(part),
        last_connection=part.replaced_connection,
        last_connection_key=_key(part, part.replaced_connection),
    )


def _connection(event: AnyMemberEvent) -> ConnectionKey | None:
    number = event.why.connection_id
    return None if number is None else (event.owner_epoch, number)


def _key(event: AnyMemberEvent, connection: LastConnection | None) -> ConnectionKey | None:
    return None if connection is None else (event.owner_epoch, connection.connection_id)


def _last_seen_of_replaced(part: StaticMemberReplaced) -> int:
    """Return when the old process was last heard from; if that is not recorded, the start of its longest silence."""
    if part.replaced_last_seen_ms is not None:
        return part.replaced_last_seen_ms
    return part.last_seen_ms - part.longest_silence_ms


_ACT_OF: Final[Mapping[type, Callable[[Any, Transition], AnyAct | None]]] = {
    MemberRemoved: _went,
    MemberJoined: _came,
    MemberRejoined: _rejoined,
    StaticMemberReplaced: _came_back,
    MemberAssigned: _called,
    MemberRoleChanged: _took_over,
    GroupConfigured: _asked_for,
}
"""The functions that read an act from an event within a transition."""
