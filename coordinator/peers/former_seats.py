"""Former owners of partitions, as known from the ownership group: why the ownership of each ended.

Pure. Knows from the decisions which process had which partition, and what processes observed of each other's ends. The
event log takes precedence (runtime/ownership/takeover/ownership_end.py).

A process that observes the end of another reports it in the metadata of its next join, and the leader distributes it
with its decision: that costs no request, and the new owner knows it in time. Nothing is guessed.
"""

from typing import Final

from muster.coordinator.peers.sharing import NOTHING_SHARED, Seat, SeenGone, Sharing, better
from muster.events.ownership import OwnershipEnd, OwnershipEndCause

SEEN_MAX: Final = 64
"""How many ends are remembered; the latest ones are kept."""


class FormerSeats:
    """Why each former owner lost its partitions."""

    def __init__(self) -> None:
        self._newest = NOTHING_SHARED
        self._held: dict[int, Seat] = {}
        """The seat of each partition's owner, by the last decision that named one."""
        self._held_before: dict[int, Seat] = {}
        """The seat of the owner before."""
        self._seen: dict[str, SeenGone] = {}
        """The observed ends, from here and elsewhere, by member id."""
        self._to_tell: dict[str, SeenGone] = {}
        """Those observed here, until a decision includes them."""

    @property
    def to_tell(self) -> tuple[SeenGone, ...]:
        """The ends that this process observed and still has to report to the others."""
        return tuple(self._to_tell.values())

    def told(self, sharing: Sharing) -> None:
        """Apply a decision."""
        self._newest = sharing
        for number, node_id in sharing.owners.items():
            if (seat := sharing.seats.get(node_id)) is not None:
                self._hold(number, seat)
        for each in sharing.gone:
            self._note(each)
            ours = self._to_tell.get(each.member_id)
            if ours is not None and (each.removed or not ours.removed):
                del self._to_tell[each.member_id]

    def saw(self, seen: SeenGone) -> None:
        """Note an end that this process observed, or that it removed the member."""
        self._note(seen)
        self._to_tell[seen.member_id] = seen
        _forget_all_but_the_latest(self._to_tell)

    def end_of(self, number: int, process: str, own: Seat) -> OwnershipEnd | None:
        """Return why the process lost the partition; None if the decisions do not show it as the former owner.

        `own`: this process's current seat.
        """
        seat = self._seat_of(number, process, own)
        if seat is None:
            return None
        now = self._newest.seats.values()
        if seat.group_instance_id == own.group_instance_id:
            return OwnershipEnd(cause=OwnershipEndCause.REPLACED)
        if seat.member_id in {*self._newest.not_understood, *(each.member_id for each in now)}:
            return OwnershipEnd(cause=OwnershipEndCause.STILL_A_MEMBER)
        if (seen := self._seen.get(seat.member_id)) is not None:
            return OwnershipEnd(
                cause=OwnershipEndCause.GONE,
                removed_by=seen.by if seen.removed else None,
                link_lost_ms=seen.link_lost_ms,
                refused_ms=seen.refused_ms,
            )
        its_place = (each for each in now if each.group_instance_id == seat.group_instance_id)
        if any(each.process not in {"", process} for each in its_place):
            return OwnershipEnd(cause=OwnershipEndCause.REPLACED)
        return OwnershipEnd(cause=OwnershipEndCause.NO_MEMBER)

    def _seat_of(self, number: int, process: str, own: Seat) -> Seat | None:
        """The seat from which the process owned the partition. In containers, this process may have the same name."""
        for held in (self._held.get(number), self._held_before.get(number)):
            if held is not None and held.process == process and held.member_id != own.member_id:
                return held
        return None

    def _hold(self, number: int, seat: Seat) -> None:
        held = self._held.get(number)
        if held is not None and held.member_id != seat.member_id:
            self._held_before[number] = held
        if held is None or held.member_id != seat.member_id or not held.process:
            self._held[number] = seat

    def _note(self, seen: SeenGone) -> None:
        self._seen[seen.member_id] = better(self._seen.pop(seen.member_id, None), seen)
        _forget_all_but_the_latest(self._seen)


def _forget_all_but_the_latest(seen: dict[str, SeenGone]) -> None:
    while len(seen) > SEEN_MAX:
        del seen[next(iter(seen))]
