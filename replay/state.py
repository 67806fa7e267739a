"""`muster replay state --at`: the group as it was at a moment, by the same `evolve` that the coordinator uses."""

import msgspec

from muster.coordinator.group.configs import values_set
from muster.events.avro.evolve import evolve, first
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.state import Group, GroupState, Member, MemberRole
from muster.replay.history import Coordinated, Happened, History
from muster.replay.rebalances.moves import partitions_of
from muster.replay.rebalances.rebalance import MemberRef, TopicPartitions, ref
from muster.replay.rebalances.wording import missing_text
from muster.replay.times import Instant, instant, read_time


class AtSeq(msgspec.Struct, frozen=True):
    """Right after the event with this number, in the last life of the group."""

    seq: int


class AtTime(msgspec.Struct, frozen=True):
    """At this wall clock, in ms: after everything that had been decided by then."""

    wall_ms: int


At = AtSeq | AtTime


class MemberState(MemberRef, frozen=True, kw_only=True):
    """`assignment` is None when it is not that of a consumer, or cannot be decoded; `assignment_bytes` is its size."""

    principal: str
    is_leader: bool
    joined_at: Instant
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[str, ...]
    assignment: tuple[TopicPartitions, ...] | None
    assignment_bytes: int
    role: MemberRole
    retiring: bool
    subscription: tuple[str, ...] | None = None  # topics; None: not a consumer's, or it cannot be decoded


class RegistrationState(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is expected. Until when is not in the log."""

    group_instance_id: GroupInstanceId
    registered_at: Instant


class StateAt(msgspec.Struct, frozen=True, kw_only=True):
    """`at` and `seq` are those of the last event that counts; `notes` say what is missing of the history before it.

    `asked_for`: the moment, where it was a time.
    """

    group_id: GroupId
    log: str
    asked_for: Instant | None
    at: Instant
    seq: int
    incarnation: int
    state: GroupState
    state_since: Instant
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: MemberId | None
    coordinator: str | None
    members: tuple[MemberState, ...]
    notes: tuple[str, ...]
    registrations: tuple[RegistrationState, ...]
    settings: dict[str, str]  # those that are set for this group, by name


def read_at(text: str, *, now_ms: int) -> At | None:
    """Parse the value of `--at`; None if it has none of the FORMS_OF_AT."""
    if text.isdecimal():
        return AtSeq(int(text))
    wall_ms = read_time(text, now_ms=now_ms)
    return AtTime(wall_ms) if wall_ms is not None else None


def state_at(history: History, at: At) -> StateAt | None:
    """The group at the moment; None if the log has no event of it until then, or not (yet) that number."""
    events: list[Happened] = []
    notes: list[str] = []
    coordinator = None
    for item in history.items:
        if isinstance(item, Happened | Coordinated) and _is_over(item, at, history):
            break
        if isinstance(item, Happened):
            events.append(item)
        elif isinstance(item, Coordinated):
            coordinator = item.event.owner
        else:
            notes.append(missing_text(item))
    if not events or (isinstance(at, AtSeq) and events[-1].event.seq != at.seq):
        return None
    group = evolve(first(events[0].event), [happened.event for happened in events[1:]])
    asked_for = instant(at.wall_ms) if isinstance(at, AtTime) else None
    return msgspec.structs.replace(_state(history, group, events[-1], coordinator, notes), asked_for=asked_for)


def _is_over(item: Happened | Coordinated, at: At, history: History) -> bool:
    """Whether the item comes after the moment."""
    if isinstance(at, AtTime):
        return item.at_ms > at.wall_ms
    if isinstance(item, Coordinated):
        return False
    return item.event.incarnation == last_incarnation(history) and item.event.seq > at.seq


def last_incarnation(history: History) -> int:
    return max((happened.event.incarnation for happened in history.events), default=0)


def _state(history: History, group: Group, last: Happened, coordinator: str | None, notes: list[str]) -> StateAt:
    image = group.image
    members = sorted(group.members.values(), key=lambda member: ref(member).identity)
    return StateAt(
        group_id=history.group_id,
        log=history.log,
        asked_for=None,
        at=instant(last.at_ms),
        seq=group.seq,
        incarnation=group.incarnation,
        state=image.state,
        state_since=instant(image.state_since_ms),
        generation_id=image.generation_id,
        protocol_type=image.protocol_type,
        protocol_name=image.protocol_name,
        leader_id=image.leader_id,
        coordinator=coordinator,
        members=tuple(_member(group, member) for member in members),
        notes=tuple(notes),
        registrations=tuple(
            RegistrationState(group_instance_id=instance, registered_at=instant(each.registered_ms))
            for instance, each in sorted(group.registrations.items())
        ),
        settings=values_set(group.config),
    )


def _member(group: Group, member: Member) -> MemberState:
    is_consumer = group.image.protocol_type == CONSUMER_PROTOCOL_TYPE
    return MemberState(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        principal=member.principal,
        is_leader=member.member_id == group.leader_id,
        joined_at=instant(member.joined_ms),
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=tuple(protocol.name for protocol in member.protocols),
        assignment=partitions_of(group, member) if is_consumer else None,
        assignment_bytes=len(group.assignment_of(member)),
        role=member.role,
        retiring=member.retiring,
        subscription=_subscription(group, member) if is_consumer else None,
    )


def _subscription(group: Group, member: Member) -> tuple[str, ...] | None:
    """The topics of the member's metadata for the chosen protocol, or for its first one."""
    chosen = group.image.protocol_name or next((protocol.name for protocol in member.protocols), None)
    topics = subscribed_topics(member.metadata_for(chosen))
    return None if topics is None else tuple(sorted(topics))
