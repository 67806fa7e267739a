"""`muster replay diff`: what differs in a group between two moments. A fold; it keeps the group as it stands.

Members are compared by the identity that a restart keeps (`MemberRef.identity`): a static member that came back under
a new member id is the same one.
"""

from collections.abc import Iterable, Iterator

import msgspec

from muster.events.ids import GroupId
from muster.replay.history.items import Item
from muster.replay.history.window import At, AtGeneration
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.rebalances.moves import GroupAssignment, movement
from muster.replay.rebalances.rebalance import MemberRef, Movement, ValueChange, ref
from muster.replay.results.state import MemberState, StateAt, StateFold
from muster.replay.text.times import Instant

_SHOWN = ("state", "generation_id", "protocol_type", "protocol_name", "coordinator")


class GroupAt(msgspec.Struct, frozen=True, kw_only=True):
    """A side of the comparison: the group as of this event, the last one until the time that was asked for."""

    asked_for: Instant | None
    at: Instant
    seq: int
    generation_id: int


class MemberChange(msgspec.Struct, frozen=True, kw_only=True):
    """A member that is there on both sides; `fields` differ, by name."""

    before: MemberRef
    after: MemberRef
    fields: tuple[ValueChange, ...]


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """`movement` is None where the partitions of one side are not known. `group`: what differs of the group itself."""

    group_id: GroupId
    log: str
    before: GroupAt
    after: GroupAt
    same_life: bool  # whether the group was not deleted and made anew in between
    group: tuple[ValueChange, ...]
    configs: tuple[ValueChange, ...]
    came: tuple[MemberRef, ...]
    went: tuple[MemberRef, ...]
    changed: tuple[MemberChange, ...]
    stayed: int  # members in which nothing differs
    movement: Movement | None
    notes: tuple[str, ...]


class DiffFold:
    """The comparison of two moments, as the items of a group pass by. `times`: by which its events are found."""

    def __init__(
        self,
        group_id: GroupId,
        log: str,
        before: At | AtGeneration,
        after: At | AtGeneration,
        times: Times = AS_RECORDED,
    ) -> None:
        self._sides = [StateFold(group_id, log, at, times) for at in (before, after)]
        self._open = list(self._sides)

    def feed(self, item: Item) -> bool:
        """Take in the next item; returns whether a later one may matter."""
        self._open = [side for side in self._open if side.feed(item)]
        return bool(self._open)

    def result(self) -> Diff | StateFold:
        """The comparison; or the first of the two moments that the log does not tell of."""
        before, after = (side.result() for side in self._sides)
        if before is None or after is None:
            return self._sides[0 if before is None else 1]
        return _diff(before, after)


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
        configs=tuple(_changes(one.configs, other.configs)),
        came=tuple(ref(member) for identity, member in after.items() if identity not in before),
        went=tuple(ref(member) for identity, member in before.items() if identity not in after),
        changed=changed,
        stayed=len(both) - len(changed),
        movement=_movement(one, other),
        notes=tuple(dict.fromkeys((*one.notes, *other.notes))),
    )


def _moment(state: StateAt) -> GroupAt:
    return GroupAt(asked_for=state.asked_for, at=state.at, seq=state.seq, generation_id=state.generation_id)


def _member_change(before: MemberState, after: MemberState) -> MemberChange:
    return MemberChange(before=ref(before), after=ref(after), fields=tuple(_changes(_fields(before), _fields(after))))


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
) -> Iterator[ValueChange]:
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one != other:
            yield ValueChange(name=name, before=_text(one), after=_text(other))


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else str(value)


def _movement(one: StateAt, other: StateAt) -> Movement | None:
    before, after = _ownership(one.members), _ownership(other.members)
    return movement(before, after) if before is not None and after is not None else None


def _ownership(members: Iterable[MemberState]) -> GroupAssignment | None:
    """The owners; None if an assignment is that of no consumer, or cannot be decoded."""
    owners = {}
    for member in members:
        if member.assignment is None:
            return None
        owner = ref(member)
        for topic in member.assignment:
            owners.update(dict.fromkeys(((topic.topic, number) for number in topic.partitions), owner))
    return GroupAssignment(owners=owners, undecodable=())
