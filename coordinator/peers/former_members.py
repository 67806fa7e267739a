"""Former owners of partitions, as known from the ownership group: why the ownership of each ended.

Pure. Knows from the decisions which process had which partition, and what processes observed of each other's ends. The
event log takes precedence (runtime/ownership/takeover/ownership_end.py).

A process that observes the end of another reports it in the metadata of its next join, and the leader distributes it
with its decision: that costs no request, and the new owner knows it in time. Nothing is guessed.
"""

from typing import Final

from muster.coordinator.peers.sharing import NOTHING_SHARED, MemberIdentity, ObservedEnd, Sharing, better
from muster.events.ownership import OwnershipEnd, OwnershipEndCause

SEEN_MAX: Final = 64
"""How many ends are remembered; the latest ones are kept."""


class FormerMembers:
    """Remembers why each former owner lost its partitions."""

    def __init__(self) -> None:
        self._newest = NOTHING_SHARED
        self._held: dict[int, MemberIdentity] = {}
        """The ids of each partition's owner, by the last decision that named one."""
        self._held_before: dict[int, MemberIdentity] = {}
        """The ids of the owner before."""
        self._seen: dict[str, ObservedEnd] = {}
        """The observed ends, from here and elsewhere, by member id."""
        self._unreported: dict[str, ObservedEnd] = {}
        """Those observed here, until a decision includes them."""

    @property
    def unreported(self) -> tuple[ObservedEnd, ...]:
        """The ends that this process observed and still has to report to the others."""
        return tuple(self._unreported.values())

    def apply(self, sharing: Sharing) -> None:
        """Apply a decision."""
        self._newest = sharing
        for number, node_id in sharing.owners.items():
            if (member := sharing.members.get(node_id)) is not None:
                self._hold(number, member)
        for each in sharing.ended:
            self._note(each)
            ours = self._unreported.get(each.member_id)
            if ours is not None and (each.removed or not ours.removed):
                del self._unreported[each.member_id]

    def note_end(self, seen: ObservedEnd) -> None:
        """Note an end that this process observed, or whose process it removed from the group."""
        self._note(seen)
        self._unreported[seen.member_id] = seen
        _forget_all_but_the_latest(self._unreported)

    def end_of(self, number: int, process: str, own: MemberIdentity) -> OwnershipEnd | None:
        """Return why the process lost the partition; None if the decisions do not show it as the former owner.

        `own`: this process's current ids.
        """
        member = self._former_member(number, process, own)
        if member is None:
            return None
        now = self._newest.members.values()
        if member.group_instance_id == own.group_instance_id:
            return OwnershipEnd(cause=OwnershipEndCause.REPLACED)
        if member.member_id in {*self._newest.not_understood, *(each.member_id for each in now)}:
            return OwnershipEnd(cause=OwnershipEndCause.STILL_A_MEMBER)
        if (seen := self._seen.get(member.member_id)) is not None:
            return OwnershipEnd(
                cause=OwnershipEndCause.GONE,
                removed_by=seen.by if seen.removed else None,
                link_lost_ms=seen.link_lost_ms,
                refused_ms=seen.refused_ms,
            )
        its_place = (each for each in now if each.group_instance_id == member.group_instance_id)
        if any(each.process not in {"", process} for each in its_place):
            return OwnershipEnd(cause=OwnershipEndCause.REPLACED)
        return OwnershipEnd(cause=OwnershipEndCause.NO_MEMBER)

    def _former_member(self, number: int, process: str, own: MemberIdentity) -> MemberIdentity | None:
        """The ids with which the process owned the partition. In containers, this process may have the same name."""
        for held in (self._held.get(number), self._held_before.get(number)):
            if held is not None and held.process == process and held.member_id != own.member_id:
                return held
        return None

    def _hold(self, number: int, member: MemberIdentity) -> None:
        held = self._held.get(number)
        if held is not None and held.member_id != member.member_id:
            self._held_before[number] = held
        if held is None or held.member_id != member.member_id or not held.process:
            self._held[number] = member

    def _note(self, seen: ObservedEnd) -> None:
        self._seen[seen.member_id] = better(self._seen.pop(seen.member_id, None), seen)
        _forget_all_but_the_latest(self._seen)


def _forget_all_but_the_latest(seen: dict[str, ObservedEnd]) -> None:
    while len(seen) > SEEN_MAX:
        del seen[next(iter(seen))]
