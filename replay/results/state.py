"""`muster replay state --at`: the group as it was at a given time, by the same `evolve` that the coordinator uses."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from muster.coordinator.group.configs import values_set
from muster.coordinator.group.unassigned import shares_of
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from muster.events.events import AnyEvent, GroupEmptied, GroupStabilized, JoinPhaseCompleted
from muster.events.evolve import apply
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.state import Group, GroupState, Member, MemberRole, new_group
from muster.replay.history.items import Coordinated, Happened, Item
from muster.replay.history.window import At, AtGeneration, AtSeq, AtTime
from muster.replay.history.wording import missing_text
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.rebalances.moves import partitions_of
from muster.replay.rebalances.rebalance import MemberRef, TopicPartitions, ref
from muster.replay.text.times import Instant, instant

NOTES_MAX: Final = 100


class MemberState(MemberRef, frozen=True, kw_only=True):
    """`assignment` is None if it is not a consumer's, or cannot be decoded; `assignment_bytes` is its size."""

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
    subscription: tuple[str, ...] | None = None  # topics; None: not a consumer's, or undecodable


class RegistrationState(msgspec.Struct, frozen=True, kw_only=True):
    """An expected instance. The log does not record its deadline."""

    group_instance_id: GroupInstanceId
    registered_at: Instant


class StateAt(msgspec.Struct, frozen=True, kw_only=True):
    """`at` and `seq` are those of the last event that counts; `notes` describe what is missing from the history before
    that event.

    `asked_for`: the requested time, unless an event or a generation was requested.
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
    configs: dict[str, str]  # those set for this group, by name


class StateFold:
    """Computes the state of a group at a given time from its items. A number refers to the group's last incarnation.

    `times`: the corrected event times to look events up by.
    """

    def __init__(self, group_id: GroupId, log: str, at: At | AtGeneration, times: Times = AS_RECORDED) -> None:
        self._times = times
        self._group_id = group_id
        self._log = log
        self.at = at
        self._group: Group | None = None
        self._last: Happened | None = None
        self._coordinator: str | None = None
        self._notes: list[str] = times.texts
        self._notes_left_out = 0
        self._reached: StateAt | None = None
        """The group right after the requested event or generation; reset when a later incarnation begins."""
        self.lives = ""
        """The text to append to `generations`: empty unless there was an earlier incarnation."""
        self.generations: tuple[int | None, int | None] = (None, None)
        """The first and the last generation of the last incarnation, among the items so far."""

    def feed(self, item: Item) -> bool:
        """Process the next item; return whether a later one may matter."""
        at_ms = self._times.at_ms(item) if isinstance(item, Happened | Coordinated) else 0
        if isinstance(self.at, AtTime) and at_ms > self.at.wall_ms:
            return isinstance(item, Coordinated)  # an owner may have started with a fast clock
        if isinstance(item, Happened):
            self._apply(item)
        elif isinstance(item, Coordinated):
            self._coordinator = item.event.owner
        elif len(self._notes) < NOTES_MAX:
            self._notes.append(missing_text(item))
        else:
            self._notes_left_out += 1
        return True

    def _apply(self, item: Happened) -> None:
        event = item.event
        if self._group is None:
            self._group = new_group(self._group_id, incarnation=event.incarnation, wall_ms=0)
        if event.incarnation > self._group.incarnation:
            self._reached, self.lives, self.generations = None, " of its last life", (None, None)
        apply(self._group, event)
        self._last = item
        if event.incarnation != self._group.incarnation:
            return
        if isinstance(event, JoinPhaseCompleted | GroupEmptied):
            first, _ = self.generations
            now = event.group.generation_id
            self.generations = (now if first is None else first, now)
        if self._is_reached_by(event):
            self._reached = self._now()

    def _is_reached_by(self, event: AnyEvent) -> bool:
        at = self.at
        if isinstance(at, AtGeneration):
            if not isinstance(event, JoinPhaseCompleted | GroupStabilized | GroupEmptied):
                return False
            return event.group.generation_id == at.generation_id
        return isinstance(at, AtSeq) and event.seq == at.seq

    def result(self) -> StateAt | None:
        """Return the state; None if the log has no event of the group up to the requested time, or does not have the
        requested number (yet).
        """
        return self._now() if isinstance(self.at, AtTime) else self._reached

    def _now(self) -> StateAt | None:
        if self._group is None or self._last is None:
            return None
        left_out = [f"and {self._notes_left_out} more"] if self._notes_left_out else []
        state = state_of(self._group, self._log, self._last.at_ms, self._coordinator, (*self._notes, *left_out))
        asked_for = instant(self.at.wall_ms) if isinstance(self.at, AtTime) else None
        return msgspec.structs.replace(state, asked_for=asked_for)


def state_of(group: Group, log: str, at_ms: int, coordinator: str | None, notes: Sequence[str]) -> StateAt:
    """Return the group as a result. `at_ms`: the decision time of the last event that counts (wall clock)."""
    image = group.image
    members = sorted(group.members.values(), key=lambda member: ref(member).identity)
    return StateAt(
        group_id=group.group_id,
        log=log,
        asked_for=None,
        at=instant(at_ms),
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
        notes=(*notes, *_unassigned(group)),
        registrations=tuple(
            RegistrationState(group_instance_id=instance, registered_at=instant(each.registered_ms))
            for instance, each in sorted(group.registrations.items())
        ),
        configs=values_set(group.config),
    )


def _unassigned(group: Group) -> Iterator[str]:
    """Yield a note on topics that members subscribe to and no member is assigned."""
    shares = shares_of(group)
    if shares is not None and (topics := sorted(shares.unassigned_topics)):
        yield f"subscribed by members and assigned to no member: {', '.join(topics)}"


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
    """Return the topics in the member's metadata for the chosen protocol, or for its first one."""
    chosen = group.image.protocol_name or next((protocol.name for protocol in member.protocols), None)
    topics = subscribed_topics(member.metadata_for(chosen))
    return None if topics is None else tuple(sorted(topics))
