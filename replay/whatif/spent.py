"""The cost of a play: the time in which its group is not Stable, and the time in which partitions have no consumer.

As for incidents (`incidents/cost.py`): in a rebalance with an eager assignor no partition has one, with a cooperative
one only those of silent members have none; outside of rebalances those of silent members have none. How partitions are
assigned in a play is not known: their number is that of the log. What was recorded is measured the same way, in the
control, so that the two can be compared.
"""

from muster.events.ids import MemberId
from muster.events.state import Group, GroupState, Member
from muster.replay.incidents.cost import partitions_had
from muster.replay.whatif.verdict import Standstill

_REBALANCING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


class Spent:
    """The cost of one rebalance, so far."""

    def __init__(self) -> None:
        self.not_stable_ms = 0
        self.partition_ms = 0

    def standstill(self, partition_ms: int = 0) -> Standstill:
        """The cost by now, with partition time that came before it."""
        return Standstill(not_stable_ms=self.not_stable_ms, partition_ms=self.partition_ms + partition_ms)


class Meter:
    """Measures one play. `group`: as it is when the play begins."""

    def __init__(self, group: Group) -> None:
        self._partitions = sum(map(partitions_had, group.members.values()))
        self._heard_ms = 0  # the time in which silent members had partitions that would else have been consumed
        self._silent: dict[MemberId, tuple[int, int, int]] = {}
        self._ended: dict[MemberId, int] = {}

    def assigned(self, partitions: int) -> None:
        """Take the number of partitions that were assigned; 0: it is not known, and as before."""
        self._partitions = partitions or self._partitions

    def passes(self, ms: int, group: Group | None, running: Spent | None) -> None:
        """Let time pass in this state of the group, in the rebalance that runs, if one does."""
        is_rebalancing = group is not None and group.state in _REBALANCING
        is_cooperative = group is not None and "cooperative" in (group.image.protocol_name or "")
        if is_rebalancing and running is not None:
            running.not_stable_ms += ms
            running.partition_ms += 0 if is_cooperative else ms * self._partitions
        if not is_rebalancing or is_cooperative:
            self._heard_ms += ms

    def falls_silent(self, member: Member, before_ms: int) -> None:
        """Begin a silence, of which so much was before the play."""
        self._silent[member.member_id] = partitions_had(member), self._heard_ms, before_ms

    def ends(self, member_id: MemberId) -> None:
        """End a silence: the member is gone, or back."""
        if member_id in self._silent:
            partitions, since_ms, before_ms = self._silent.pop(member_id)
            self._ended[member_id] = partitions * (before_ms + self._heard_ms - since_ms)

    def take(self, member_id: MemberId) -> int:
        """Return the partition time of a silence that has ended, once."""
        return self._ended.pop(member_id, 0)
