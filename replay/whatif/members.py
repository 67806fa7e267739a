"""The simulated members of a play: which are silent, and which live member sends the next request, and when."""

from collections.abc import Container, Iterable

from muster.coordinator.group.commands import AnyCommand
from muster.coordinator.group.soft_state import SoftState
from muster.events.causes import Cause
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.state import Group, GroupState, Member
from muster.replay.whatif.awaited import Rejoins, Syncs
from muster.replay.whatif.pace import NEVER, MemberPace
from muster.replay.whatif.requests import join_of, sync_of

_COMES_AT = (Cause.NOT_REJOINED, Cause.SYNC_TIMED_OUT)


class SimulatedMembers:
    """See the module. Parameters `group` and `soft` are always the play's current ones.

    `silent`: members that send nothing until their process comes back. `silent_once_admitted`: those that fell silent
    while their joins were delayed. `dropped`: live members that were removed.
    """

    def __init__(self, pending_syncs: Iterable[MemberId]) -> None:
        self.silent: dict[MemberId, Member] = {}
        self.silent_once_admitted: dict[MemberId, Member] = {}
        self.dropped: set[MemberId] = set()
        self._late: list[tuple[float, Member]] = []  # dropped live members, and when they return
        self._rejoins = Rejoins()
        self._syncs = Syncs(pending_syncs)
        self._sync_ms = NEVER  # a sync phase that was running when the play began was superseded in the log

    @property
    def is_any_away(self) -> bool:
        """True if any member is silent, or has yet to find out that it was dropped."""
        return bool(self.silent or self._late)

    def is_alive(self, member_id: MemberId | None) -> bool:
        return member_id not in self.silent

    # ---- what happens to them ---------------------------------------------------------------------------------------

    def come(self, member_id: MemberId) -> None:
        """Note that a member joined, or is heard from again: its sync is awaited."""
        self._syncs.add(member_id)

    def admit(self, member_id: MemberId) -> None:
        """Note that a member was admitted, perhaps after it had fallen silent."""
        if member_id in self.silent_once_admitted:
            self.silent[member_id] = self.silent_once_admitted.pop(member_id)

    def rejoin(self, member_id: MemberId) -> None:
        """Let a member rejoin that may have been silent."""
        self.silent.pop(member_id, None)
        self._rejoins.add(member_id)

    def begin_rebalance(self, members: Iterable[MemberId], now_ms: int, pace: MemberPace) -> None:
        """Make all members rejoin, at their pace."""
        self._rejoins = Rejoins({each: now_ms + pace.rejoins_after_ms(each) for each in members})

    def begin_sync_phase(self, pending_syncs: Iterable[MemberId], leader_ms: float) -> None:
        """Make all members sync; the leader at this time."""
        self._sync_ms = leader_ms
        self._syncs = Syncs(pending_syncs)

    def let_leader_sync(self, now_ms: int) -> None:
        self._sync_ms = now_ms

    def drop(self, member: Member, cause: Cause, now_ms: int) -> None:
        """Drop a live member for being late: it finds out by its next request, and rejoins."""
        if cause not in _COMES_AT or not self.is_alive(member.member_id):
            return
        at_ms = self._sync_ms if cause is Cause.SYNC_TIMED_OUT else self._rejoins.at_ms(member.member_id)
        if now_ms <= at_ms < NEVER:
            self._late.append((at_ms, member))
            self.dropped.add(member.member_id)

    def go_to_new_coordinator(
        self, group: Group, waited: Container[MemberId], pending_syncs: Iterable[MemberId], now_ms: int
    ) -> None:
        """After a takeover, members that had `waited` in the join phase send their requests again."""
        moments = {each: self._rejoins.at_ms(each) for each in group.members}
        self._rejoins = Rejoins({each: now_ms if each in waited else at_ms for each, at_ms in moments.items()})
        self._syncs = Syncs(pending_syncs)

    # ---- their requests ---------------------------------------------------------------------------------------------

    def rejoins_at_ms(self, group: Group, soft: SoftState, member_id: MemberId) -> float:
        """Return when a member that the join phase waits for would rejoin; NEVER if no phase waits for it."""
        is_awaited = group.state is GroupState.PREPARING_REBALANCE and member_id not in soft.parked_joins
        return self._rejoins.at_ms(member_id) if is_awaited else NEVER

    def next_ms(self, group: Group, soft: SoftState) -> float:
        """Return when a live member sends its next request."""
        return min(self._next_in_phase_ms(group, soft), min((at_ms for at_ms, _ in self._late), default=NEVER))

    def next_request(self, group: Group, soft: SoftState, now_ms: int) -> AnyCommand | None:
        """Return the next request of a live member that is due; None if there is none."""
        for late in self._late:
            if late[0] <= now_ms:
                self._late.remove(late)
                return join_of(group, late[1], UNKNOWN_MEMBER_ID, now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            at_ms, next_id = self._first_to_rejoin(group, soft)
            if next_id is not None and at_ms <= now_ms:
                return join_of(group, group.members[next_id], next_id, now_ms)
            return None
        next_id = self._syncs.first(lambda each: self._is_to_sync(each, soft) and each != group.leader_id)
        if next_id is None and self._is_to_sync(group.leader_id, soft) and self._sync_ms <= now_ms:
            next_id = group.leader_id
        return None if next_id is None else sync_of(group, next_id, now_ms)

    def _next_in_phase_ms(self, group: Group, soft: SoftState) -> float:
        if group.state is GroupState.PREPARING_REBALANCE:
            return self._first_to_rejoin(group, soft)[0]
        is_leader_awaited = group.state is GroupState.COMPLETING_REBALANCE and self._is_to_sync(group.leader_id, soft)
        return self._sync_ms if is_leader_awaited else NEVER

    def _first_to_rejoin(self, group: Group, soft: SoftState) -> tuple[float, MemberId | None]:
        return self._rejoins.first(
            lambda each: each in group.members and self.is_alive(each) and each not in soft.parked_joins
        )

    def _is_to_sync(self, member_id: MemberId | None, soft: SoftState) -> bool:
        return member_id in soft.pending_syncs and self.is_alive(member_id)
