"""Measures the cost of a play: the time in which the group is not Stable, and in which partitions have no consumer.

As for incidents (`incidents/cost.py`): during a rebalance with an eager assignor no partition has a consumer; with a
cooperative one, and outside of rebalances, only the partitions of silent members have none; if the group is empty, no
partition has one. Unlike an incident's cost, this includes the first rebalance of a group, since an initial delay
prolongs it. The assignment in a play is not known, so the number of partitions is taken from the log. The control
measures the recorded history in the same way, so that the two can be compared. Nothing is measured after the end of the
log, where the recorded cost ends, too.
"""

from collections.abc import Iterable

from muster.events.ids import MemberId
from muster.events.state import Group, GroupState, Member
from muster.replay.incidents.cost import partition_time, partitions_had, total
from muster.replay.whatif.verdict import Standstill

_REBALANCING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


class Meter:
    """Measures one play. `group`: the group when the play begins.

    `partitions` and `emptied_ms`: for a group without members, its number of partitions, and since when it has been
    empty. A number of partitions is None if it is not known: an assignment cannot be decoded, or is not in the log.
    """

    def __init__(self, group: Group, partitions: int | None = 0, emptied_ms: int | None = None) -> None:
        had = total([partitions_had(each) for each in group.members.values()])
        self.partitions = partitions if had == 0 else had
        self.emptied_ms = emptied_ms
        """Since when the group has had no member and no rebalance, in wall clock ms; None: it has one."""
        self._is_stopped = False
        self._is_unassigned = not any(each.assignment for each in group.members.values())
        """True if no member has partitions, so that even with a cooperative assignor none are consumed."""
        self._heard_ms = 0  # the time in which the partitions of silent members would otherwise have been consumed
        self._silent: dict[MemberId, tuple[int | None, int, int]] = {}
        self._ended: dict[MemberId, int | None] = {}

    def stop(self) -> None:
        """Stop measuring."""
        self._is_stopped = True

    def assigned(self, partitions: int | None) -> None:
        """Set the number of partitions that were assigned; keep the previous one if it is not known."""
        self.partitions = partitions or self.partitions
        self._is_unassigned = False

    def expects(self, partitions: int | None) -> None:
        """Set the number of partitions that will be assigned, for a group whose number was not known so far."""
        self.partitions = self.partitions or partitions

    def passes(self, ms: int, group: Group | None) -> Standstill:
        """Let time pass in this state of the group; return its cost for the running rebalance, if there is one."""
        if self._is_stopped:
            return Standstill()
        is_rebalancing = group is not None and group.state in _REBALANCING
        has_name = group is not None and "cooperative" in (group.image.protocol_name or "")
        is_cooperative = has_name and not self._is_unassigned
        if not is_rebalancing or is_cooperative:
            self._heard_ms += ms
        if not is_rebalancing:
            return Standstill()
        return Standstill(not_stable_ms=ms, partition_ms=0 if is_cooperative else partition_time(self.partitions, ms))

    def falls_silent(self, member: Member, before_ms: int) -> None:
        """Begin a silence, of which `before_ms` was before the play.

        In the log the member may have got partitions that in the play still belong to another silent member.
        """
        had, others = partitions_had(member), (each for each in self._silent if each != member.member_id)
        taken = total([self._silent[each][0] for each in others])
        if self.partitions and had is not None and taken is not None:
            had = min(had, max(0, self.partitions - taken))
        self._silent[member.member_id] = had, self._heard_ms, before_ms

    def ends(self, member_id: MemberId) -> None:
        """End a silence: the member was removed, or came back."""
        if member_id in self._silent:
            partitions, since_ms, before_ms = self._silent.pop(member_id)
            self._ended[member_id] = partition_time(partitions, before_ms + self._heard_ms - since_ms)

    def take(self, member_ids: Iterable[MemberId]) -> Standstill:
        """Return the cost of the silences of these members that have ended and were not taken before."""
        return Standstill(partition_ms=total([self._ended.pop(each, 0) for each in member_ids]))

    def empties(self, at_ms: int) -> None:
        """Begin the time without members."""
        self.emptied_ms, self._is_unassigned = at_ms, True

    def fills(self, at_ms: int) -> Standstill:
        """End the time without members, if the group had none; return its cost."""
        emptied_ms, self.emptied_ms = self.emptied_ms, None
        if emptied_ms is None or self._is_stopped:
            return Standstill()
        empty_ms = partition_time(self.partitions, max(0, at_ms - emptied_ms))
        return Standstill(partition_ms=empty_ms, empty_partition_ms=empty_ms)
