"""Acts: single things that happened to a member or to the group, read from transitions.

An act interprets nothing: `identity.py` finds out which process joined under a new member id, and `kinds/` decides
which incident an act belongs to.

Times are wall clock ms of the event's decision, durations are in ms; `seq` is that of the event.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum, unique
from typing import Any, Final

import msgspec

from muster.coordinator.group.members import supported_by_all
from muster.coordinator.group.unassigned import shares_of
from muster.events.causes import PLANNED_TRIGGERS, Cause
from muster.events.connection import LastConnection
from muster.events.consumer_protocol import subscribed_topics
from muster.events.events import (
    AnyGroupEvent,
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
    Why,
)
from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.history.transitions import Transition
from muster.replay.rebalances.planned import config_changes
from muster.replay.rebalances.rebalance import ValueChange
from muster.replay.rebalances.wording import is_of_another


@unique
class Departure(StrEnum):
    """How a member left the group."""

    LEFT = "left"
    """It sent a LeaveGroup."""
    REMOVED = "removed"
    """An administrator removed it."""
    EXPIRED = "expired"
    """Its session expired."""
    NOT_REJOINED = "not-rejoined"
    """It did not rejoin within the rebalance timeout."""
    NOT_SYNCED = "not-synced"
    """It joined, but did not sync in time."""
    PLANNED = "planned"
    """It was retired, released, or over a limit."""


SILENT = frozenset({Departure.EXPIRED, Departure.NOT_REJOINED, Departure.NOT_SYNCED})
_DEPARTURES = {
    Cause.SESSION_EXPIRED: Departure.EXPIRED,
    Cause.NOT_REJOINED: Departure.NOT_REJOINED,
    Cause.FIRST_JOIN_TIMED_OUT: Departure.NOT_REJOINED,
    Cause.SYNC_TIMED_OUT: Departure.NOT_SYNCED,
    Cause.MEMBER_REMOVED_BY_ADMIN: Departure.REMOVED,
}


ConnectionKey = tuple[int, int]
"""A connection's owner_epoch and its number, which is unique within the epoch."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """A single thing that happened to a member or the group. `why` is the event's.

    `connection`: the request's connection; None: there was no request (a timer), or it is not recorded.
    """

    seq: int
    at_ms: int
    why: Why
    connection: ConnectionKey | None = None

    @property
    def since_ms(self) -> int:
        """When it began: for a silence, when the member was last heard from."""
        return self.at_ms


class Came(Act, frozen=True, kw_only=True):
    """A new member joined. `planned`: an administrator had registered it, or made it a learner or standby."""

    member: Member
    planned: bool


class CameBack(Act, frozen=True, kw_only=True):
    """A static member rejoined under a new member id; `absorbed`: no rebalance was needed.

    `last_seen_ms`: the earliest time at which the old process may have ended. `heard`: whether it was heard from at
    that time; False: not since a takeover; None: not recorded. `longest_silence_ms`: its longest silence, including
    the last one. `last_connection`: the connection that the old process last used; None: not known.
    """

    member: Member
    before: Member | None  # None: not known
    last_connection: LastConnection | None = None
    last_connection_key: ConnectionKey | None = None
    replaced_member_id: MemberId
    replaced_client_host: str
    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None
    absorbed: bool

    @property
    def since_ms(self) -> int:
        """When the old process was last heard from."""
        return self.last_seen_ms

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that it subscribes to; None if they cannot be decoded."""
        return topics_of(self.member)

    @property
    def changed_topics(self) -> bool:
        """Whether it subscribes to other topics than the old process, as far as they can be decoded."""
        return self.before is not None and topics_of(self.before) != self.topics


class Went(Act, frozen=True, kw_only=True):
    """A member left or was removed.

    `heard`: whether the member was heard from at `last_seen_ms`; False: that is the time of a takeover; None: not
    recorded. `longest_silence_ms`: its longest silence since its previous event. `last_connection`: the connection that
    it last used; None: not known.
    """

    member: Member
    how: Departure
    last_connection: LastConnection | None = None
    last_connection_key: ConnectionKey | None = None
    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None

    @property
    def is_silent(self) -> bool:
        """Whether it was removed because the coordinator waited for it in vain."""
        return self.how in SILENT

    @property
    def since_ms(self) -> int:
        """When it was last heard from if it fell silent, else when it left."""
        return self.last_seen_ms if self.is_silent else self.at_ms


class Rejoined(Act, frozen=True, kw_only=True):
    """A member rejoined under the same member id."""

    member: Member
    before: Member | None  # None: not known

    @property
    def changed_topics(self) -> bool:
        """Whether it subscribes to other topics than before, as far as they can be decoded."""
        if self.before is None or self.before.protocols is self.member.protocols:
            return False
        return topics_of(self.before) != topics_of(self.member)

    @property
    def changed_protocols(self) -> bool:
        """Whether its list of assignors changed."""
        if self.before is None or self.before.protocols is self.member.protocols:
            return False
        return protocols_of(self.before) != protocols_of(self.member)


class Duelled(Act, frozen=True, kw_only=True):
    """A request was fenced because another process has its instance id. `is_duel`: both are alive and alternate."""

    is_duel: bool
    times: int
    event: MemberFenced


class JoinNotLetIn(Act, frozen=True, kw_only=True):
    """A join was refused. `members`: the size of the group; `common`: the protocols that all members support."""

    times: int
    event: JoinRefused
    members: int
    common: tuple[str, ...]


class TopicsUnassigned(Act, frozen=True, kw_only=True):
    """From now on no member is assigned these topics, although members subscribe to them."""

    topics: frozenset[str]


class RebalancedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic for which Muster asked the group to rebalance. `partitions`: their number; 0: not known.

    `partitions_before`: their number when Muster asked before; None: not recorded. `assigned`: the partitions that were
    assigned at that time; None: not known. `is_subscribed`: whether a member subscribes to the topic.
    """

    topic: str
    partitions: int
    partitions_before: int | None
    assigned: range | frozenset[int] | None
    is_subscribed: bool


class AskedFor(Act, frozen=True, kw_only=True):
    """An administrator, a plan of theirs, or Muster by the group's configs asked for a rebalance, or changed the plans.

    `is_upstream`: whether the group's configs leave it to the cluster upstream from now on; None: nothing was set.
    `topics`: the topics for which Muster asked. `configs`: the changes that an administrator made.
    """

    cause: Cause
    is_upstream: bool | None = None
    topics: tuple[RebalancedTopic, ...] = ()
    configs: tuple[ValueChange, ...] = ()


class Called(Act, frozen=True, kw_only=True):
    """A standby got the partitions of a lost member. `lost`: that member; None: its removal is not in the log."""

    member: Member
    lost: MemberId | None


class TookOver(Act, frozen=True, kw_only=True):
    """A called standby has taken over the partitions."""

    member: Member


class Phase(Act, frozen=True, kw_only=True):
    """The group entered another phase. `members`: the group's members at that time."""

    event: AnyGroupEvent
    members: tuple[MemberId, ...]


AnyAct = (
    Came | CameBack | Went | Rejoined | Duelled | JoinNotLetIn | TopicsUnassigned | AskedFor | Called | TookOver | Phase
)

_PLANNED_JOINS = frozenset({Cause.LEARNER_ADMITTED, Cause.STANDBY_ADMITTED, Cause.REGISTRATION_COMPLETE})
_PHASES = frozenset({GroupCreated, RebalanceStarted, JoinPhaseCompleted, GroupStabilized, GroupEmptied, GroupDeleted})


def acts_of(step: Transition) -> list[AnyAct]:
    """Return the acts of one transition, in order, with the one of its phase last."""
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


def topics_of(member: Member) -> frozenset[str] | None:
    """Return the topics of the member's first protocol; None if they cannot be decoded."""
    if not member.protocols:
        return frozenset()
    return subscribed_topics(member.protocols[0].metadata)


def topics_text(member: Member) -> str:
    """Return the topics of the member's first protocol as text."""
    topics = topics_of(member)
    return "topics that cannot be read" if topics is None else ", ".join(sorted(topics)) or "no topic"


def members_of(acts: Iterable[Rejoined]) -> tuple[Member, ...]:
    """Return the members that rejoined, once each, as of their last rejoin."""
    return tuple({act.member.member_id: act.member for act in acts}.values())


def protocols_of(member: Member) -> tuple[str, ...]:
    """Return the names of the member's assignors, in its order of preference."""
    return tuple(protocol.name for protocol in member.protocols)
