"""`muster replay diff`: the differences in a group between two times. A fold; it keeps the group's current state.

Members are compared by the identity that survives a restart (`MemberRef.identity`): a static member that returned with
a new member id is the same member.
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
    """One side of the comparison: the group after this event, the last one up to the requested time."""

    asked_for: Instant | None
    at: Instant
    seq: int
    generation_id: int


class MemberChange(msgspec.Struct, frozen=True, kw_only=True):
    """A member that exists on both sides; `fields` are those that differ, by name."""

    before: MemberRef
    after: MemberRef
    fields: tuple[ValueChange, ...]


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """`movement` is None if the partitions of one side are not known. `group`: the differences in the group itself."""

    group_id: GroupId
    log: str
    before: GroupAt
    after: GroupAt
    same_life: bool  # False if the group was deleted and recreated in between
    group: tuple[ValueChange, ...]
    configs: tuple[ValueChange, ...]
    came: tuple[MemberRef, ...]
    went: tuple[MemberRef, ...]
    changed: tuple[MemberChange, ...]
    stayed: int  # members without differences
    movement: Movement | None
    notes: tuple[str, ...]


class DiffFold:
    """Compares a group at two times, as its items are fed. `times`: the corrected event times to look events up by."""

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
        """Process the next item; return whether a later one may matter."""
        self._open = [side for side in self._open if side.feed(item)]
        return bool(self._open)

    def result(self) -> Diff | StateFold:
        """Return the comparison; if the log does not cover both times, the fold of the first one that it does not
        cover.
        """
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
    """Return the owners; None if an assignment is not a consumer's, or cannot be decoded."""
    owners = {}
    for member in members:
        if member.assignment is None:
            return None
        owner = ref(member)
        for topic in member.assignment:
            owners.update(dict.fromkeys(((topic.topic, number) for number in topic.partitions), owner))
    return GroupAssignment(owners=owners, undecodable=())
