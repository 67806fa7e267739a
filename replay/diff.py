"""`muster replay diff`: what differs in a group between two moments.

Members are compared by the identity that a restart keeps (`MemberRef.identity`): a static member that came back under
a new member id is the same one.
"""

from collections.abc import Iterable, Iterator

import msgspec

from muster.events.events import GroupStabilized, JoinPhaseCompleted
from muster.events.ids import GroupId
from muster.replay.history import History
from muster.replay.rebalances.moves import Ownership, movement
from muster.replay.rebalances.rebalance import MemberRef, Movement, SettingChange
from muster.replay.state import At, AtSeq, MemberState, StateAt, last_incarnation, state_at
from muster.replay.times import Instant

_SHOWN = ("state", "generation_id", "protocol_type", "protocol_name", "coordinator")


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A side of the comparison: the group as of this event."""

    at: Instant
    seq: int
    generation_id: int


class MemberChange(msgspec.Struct, frozen=True, kw_only=True):
    """A member that is there on both sides; `fields` differ, by name."""

    before: MemberRef
    after: MemberRef
    fields: tuple[SettingChange, ...]


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """`movement` is None where the partitions of one side are not known. `group`: what differs of the group itself."""

    group_id: GroupId
    log: str
    before: Moment
    after: Moment
    same_life: bool  # whether the group was not deleted and made anew in between
    group: tuple[SettingChange, ...]
    settings: tuple[SettingChange, ...]
    came: tuple[MemberRef, ...]
    went: tuple[MemberRef, ...]
    changed: tuple[MemberChange, ...]
    stayed: int  # members in which nothing differs
    movement: Movement | None
    notes: tuple[str, ...]


def diff(history: History, before: At, after: At) -> Diff | None:
    """Compare two moments; None if the log does not tell of one of them."""
    one, other = state_at(history, before), state_at(history, after)
    if one is None or other is None:
        return None
    return _diff(one, other)


def at_generation(history: History, generation_id: int) -> AtSeq | None:
    """The moment when a generation of the last life had its assignment, or had begun; None: the log has neither."""
    incarnation = last_incarnation(history)
    found: AtSeq | None = None
    for happened in history.events:
        event = happened.event
        if event.incarnation != incarnation or not isinstance(event, JoinPhaseCompleted | GroupStabilized):
            continue
        if event.group.generation_id == generation_id:
            found = AtSeq(event.seq)
    return found


def _diff(one: StateAt, other: StateAt) -> Diff:
    before = {member.identity: member for member in one.members}
    after = {member.identity: member for member in other.members}
    both = [(before[identity], after[identity]) for identity in before if identity in after]
    changed = tuple(change for change in (_member_change(*pair) for pair in both) if change.fields)
    return Diff(
        group_id=one.group_id,
        log=one.log,
        before=_moment(one),
        after=_moment(other),
        same_life=one.incarnation == other.incarnation,
        group=tuple(_changes({f: getattr(one, f) for f in _SHOWN}, {f: getattr(other, f) for f in _SHOWN})),
        settings=tuple(_changes(one.settings, other.settings)),
        came=tuple(_ref(member) for identity, member in after.items() if identity not in before),
        went=tuple(_ref(member) for identity, member in before.items() if identity not in after),
        changed=changed,
        stayed=len(both) - len(changed),
        movement=_movement(one, other),
        notes=tuple(dict.fromkeys((*one.notes, *other.notes))),
    )


def _moment(state: StateAt) -> Moment:
    return Moment(at=state.at, seq=state.seq, generation_id=state.generation_id)


def _member_change(before: MemberState, after: MemberState) -> MemberChange:
    return MemberChange(before=_ref(before), after=_ref(after), fields=tuple(_changes(_fields(before), _fields(after))))


def _fields(member: MemberState) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "principal": member.principal,
        "is_leader": member.is_leader,
        "role": member.role,
        "retiring": member.retiring,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": ", ".join(member.protocols),
        "subscription": None if member.subscription is None else ", ".join(member.subscription),
    }


def _changes(
    before: dict[str, object] | dict[str, str], after: dict[str, object] | dict[str, str]
) -> Iterator[SettingChange]:
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one != other:
            yield SettingChange(name=name, before=_text(one), after=_text(other))


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else str(value)


def _ref(member: MemberRef) -> MemberRef:
    return MemberRef(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )


def _movement(one: StateAt, other: StateAt) -> Movement | None:
    before, after = _ownership(one.members), _ownership(other.members)
    return movement(before, after) if before is not None and after is not None else None


def _ownership(members: Iterable[MemberState]) -> Ownership | None:
    """The owners; None if an assignment is that of no consumer, or cannot be decoded."""
    owners = {}
    for member in members:
        if member.assignment is None:
            return None
        owner = _ref(member)
        for topic in member.assignment:
            owners.update(dict.fromkeys(((topic.topic, number) for number in topic.partitions), owner))
    return Ownership(owners=owners, undecodable=())
