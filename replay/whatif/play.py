"""Simulates a group, its coordinator and its members with other settings, starting from a recorded state.

Members are *alive*: they rejoin and sync at the recorded pace; or *silent*: they send nothing until their process comes
back. Time is wall clock ms and moves only when the caller advances it; deadlines on the way are then decided.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from muster.coordinator.group.commands import (
    AnyCommand,
    EndHold,
    EndRegistration,
    EndRetirement,
    ExpireSession,
    PromoteLearners,
)
from muster.coordinator.group.decide import decide
from muster.coordinator.group.loaded_groups import restore_soft_state
from muster.coordinator.group.settings import INT32_MAX, GroupSettings
from muster.coordinator.group.soft_state import PHASES
from muster.coordinator.group.timeouts import due
from muster.coordinator.group.turn import Now
from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    MemberEvent,
    MemberJoined,
    MemberRemoved,
    RebalanceStarted,
    StaticMemberReplaced,
)
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.state import Group, GroupState, Member
from muster.replay.whatif.awaited import Rejoins, Syncs
from muster.replay.whatif.meter import Meter
from muster.replay.whatif.pace import NEVER, PROMPT, MemberPace
from muster.replay.whatif.renaming import renamed
from muster.replay.whatif.requests import join_of, sync_of
from muster.replay.whatif.verdict import Standstill

_PLANS = (EndRegistration, EndRetirement, PromoteLearners)
_COMES_AT = (Cause.NOT_REJOINED, Cause.SYNC_TIMED_OUT)
DECISIONS_MAX = 100_000
"""Maximum number of decisions in one play, so that every play ends."""
BY_ITSELF_MAX = 20
"""Maximum number of rebalances in one play beyond two per input; if there are more, rebalances cause one another."""


class Started(msgspec.Struct, kw_only=True, eq=False):
    """A rebalance that began in the play. `admitted`: the members whose joins it admitted, delayed or not.

    `cost`: the cost so far; `ended_ms`: when it was over, or the next one began; `is_cost_known`: see `matching.py`;
    `is_over`: whether that cost is final, and not cut off by the end of the log.
    """

    at_ms: int
    cause: Cause
    member_id: MemberId | None
    admitted: frozenset[MemberId] = frozenset()
    is_late: bool  # started by a live member that had been dropped
    is_dead: bool  # started because a dead member did not sync
    cost: Standstill = Standstill()
    ended_ms: float = math.inf
    is_cost_known: bool = True
    is_over: bool = True


class ExpiredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that ended in the play."""

    at_ms: int
    member: Member


class TooLong(Exception):
    """The play was aborted; the text says why."""


TOO_LONG = f"playing it took more than {DECISIONS_MAX} decisions, and was given up"
CIRCLES = "with these settings one rebalance would have led to the next, again and again: playing it was given up"


class Play:
    """See the module. `started`: its rebalances; `kept`: old and new ids of members that came back while still in the
    group.
    """

    def __init__(self, group: Group, settings: GroupSettings, now_ms: int, meter: Meter | None = None) -> None:
        self.group: Group | None = group
        self.now_ms = now_ms
        self.pace: MemberPace = PROMPT
        self.started: list[Started] = []
        self.expired: list[ExpiredSession] = []
        self.kept: set[MemberId] = set()
        self.silent: dict[MemberId, Member] = {}
        self._parts: defaultdict[tuple[MemberId, bool], list[tuple[int, Started]]] = defaultdict(list)
        self._silent_once_admitted: dict[MemberId, Member] = {}
        self.meter = meter or Meter(group)
        self._settings = settings
        self._soft = restore_soft_state(group, now_ms, settings)
        self._rejoins = Rejoins()
        self._syncs = Syncs(self._soft.pending_syncs)
        self._came: list[MemberId] = []  # members that joined or rejoined since `came()` was last called
        self._late: list[tuple[float, Member]] = []  # dropped live members, and when they return
        self._dropped: set[MemberId] = set()
        self._sync_ms = NEVER  # a sync phase that was running when the play began was superseded in the log
        self._decisions = 0
        self._came_in = 0

    @property
    def is_settled(self) -> bool:
        """Whether the group is quiet and nothing is pending."""
        group = self.group
        if group is None:
            return True
        is_quiet = group.state in (GroupState.STABLE, GroupState.EMPTY)
        return is_quiet and not (self.silent or self._late or self._soft.held_joins)

    def closest_end_ms(self, member: Member) -> tuple[MemberId, int] | None:
        """Return the former member id of a returning process, and the ms between the end of that member's session and
        now.

        None: the process was not silent in this play.
        """
        former = self._former(member)
        session = self._soft.sessions.get(former) if former in self.silent else None
        if session is not None:
            is_open = session.deadline_ms == NEVER
            return None if is_open else (former, int(self.now_ms - session.deadline_ms))
        for begun in reversed(self.expired):
            ended = begun.member
            if ended.member_id == member.member_id or ended.group_instance_id == (member.group_instance_id or ""):
                return ended.member_id, self.now_ms - begun.at_ms
        return None

    def rejoins_at_ms(self, member_id: MemberId) -> float:
        """Return when a member that the join phase waits for would rejoin; NEVER if no phase waits for it."""
        is_awaited = self.group is not None and self.group.state is GroupState.PREPARING_REBALANCE
        is_there = member_id in self._soft.parked_joins
        return self._rejoins.at_ms(member_id) if is_awaited and not is_there else NEVER

    def part_of(self, member_id: MemberId, since_ms: int, *, is_loss: bool) -> Started | None:
        """Return the rebalance during which the member first joined (or was lost) since this time, if any."""
        parts = self._parts.get((member_id, is_loss), ())
        return next((started for at_ms, started in parts if at_ms >= since_ms), None)

    def came(self) -> list[MemberId]:
        """Return the members that joined or rejoined since the last call."""
        came, self._came = self._came, []
        return came

    def _former(self, member: Member) -> MemberId:
        instance = member.group_instance_id
        if self.group is None or instance is None:
            return member.member_id
        return self.group.instances.get(instance, member.member_id)

    def silence(self, member: Member, deadline_ms: int, since_ms: int | None = None) -> None:
        """Let a member fall silent; its session ends at the deadline unless its process comes back.

        `since_ms`: when it fell silent, if that was before the play.
        """
        if member.member_id in self._soft.held_joins:
            self._silent_once_admitted[member.member_id] = member
        session = self._soft.sessions.get(member.member_id)
        if session is not None:
            self._soft.sessions[member.member_id] = msgspec.structs.replace(
                session,
                timeout_ms=member.session_timeout_ms,  # restarts at the end of a join phase (see `_pass`)
                deadline_ms=deadline_ms,
                last_seen_ms=min(self.now_ms, deadline_ms),
            )
            self.silent[member.member_id] = member
            self.meter.falls_silent(member, max(0, self.now_ms - since_ms) if since_ms is not None else 0)
            self._came_in += 1

    def arrive(self, member: Member) -> None:
        """Let a process join that has no member id yet."""
        self._feed_join(member, UNKNOWN_MEMBER_ID)

    def go_on(self, silent_id: MemberId, member: Member) -> None:
        """Let a silent member send requests again. In the log it has a new id, since it had been removed there.

        In the what-if it is still a member, and gets the new id, so that the following commands apply to it.
        """
        assert self.group is not None
        self.silent.pop(silent_id)
        self.meter.ends(silent_id)
        self.kept |= {silent_id, member.member_id}
        self.group, self._soft = renamed(self.group, self._soft, silent_id, member.member_id, self.now_ms)
        self._came_in += 1
        self._await(member.member_id)
        if self.group.state is GroupState.PREPARING_REBALANCE and member.member_id not in self._soft.parked_joins:
            self._decide(join_of(self.group, self.group.members[member.member_id], member.member_id, self.now_ms))
        self._go_along()

    def rejoin(self, member: Member) -> None:
        """A member rejoins with its current subscription."""
        self.silent.pop(member.member_id, None)
        self.meter.ends(member.member_id)
        self._rejoins.add(member.member_id)
        self._await(member.member_id)
        self._feed_join(member, member.member_id)

    def _feed_join(self, member: Member, member_id: MemberId) -> None:
        assert self.group is not None
        self.feed(join_of(self.group, member, member_id, self.now_ms))

    def expire(self, member_id: MemberId) -> None:
        """End a silent member's session, which ended in the log at this time, if it has also expired in the play."""
        session = self._soft.sessions.get(member_id)
        if self.group is not None and session is not None and session.deadline_ms <= self.now_ms:
            due_ms = int(session.deadline_ms)
            self.feed(ExpireSession(group_id=self.group.group_id, member_id=member_id, due_ms=due_ms))

    def feed(self, command: AnyCommand) -> None:
        """Decide a command, and let the members react."""
        self._came_in += 1
        self._decide(command)
        self._go_along()

    def end_plan(self, command: AnyCommand) -> None:
        """End a plan at the recorded time: the log does not show when it began."""
        for field, deadline in PHASES.items():
            is_over = isinstance(command, _PLANS) and isinstance(command, deadline)
            if is_over and getattr(self._soft, field) is not None:
                setattr(self._soft, field, self.now_ms)
        self.advance(self.now_ms)

    def let_sync(self) -> None:
        """Let the leader send its assignment now: in the log it waited for an event that did not happen in the play."""
        self._sync_ms = self.now_ms
        self._go_along()

    def come_to(self, at_ms: int) -> None:
        """Let time pass until the next input. In the input's own ms, members act before it, and deadlines are decided
        after it.
        """
        self.advance(at_ms - 1)
        self._pass_until(at_ms)
        self._go_along()

    def _pass_until(self, at_ms: int) -> None:
        if at_ms > self.now_ms:
            cost = self.meter.passes(at_ms - self.now_ms, self.group)
            if self.started:
                self.started[-1].cost += cost
            self.now_ms = at_ms

    def advance(self, until_ms: int) -> None:
        """Let time pass."""
        while self.group is not None:
            next_ms = min(self._next_timer_ms(), self._next_of_members())
            if next_ms > until_ms:
                break
            self._count()
            self._pass_until(math.ceil(next_ms))
            for command in due(self.group.group_id, self._soft, self.now_ms):
                self._pass(command)
            self._go_along()
        self._pass_until(until_ms)

    def take_over(self, alive_ms: int, ready_ms: int) -> bool:
        """Let another coordinator take over. Returns False if the fate of the rebalance is not known.

        Members that waited in a phase send their requests again. Delayed joins are lost, and it is not known when their
        clients retry.
        """
        self.advance(alive_ms)
        if self.group is None:
            return True
        silent = [session.deadline_ms for each in self.silent if (session := self._soft.sessions.get(each)) is not None]
        phases = [at for field in PHASES if (at := getattr(self._soft, field)) is not None]
        if self._soft.held_joins or any(alive_ms < each <= ready_ms for each in (*silent, *phases)):
            return False
        waited = self._soft.parked_joins
        self._pass_until(ready_ms)
        moments = {each: self._rejoins.at_ms(each) for each in self.group.members}
        self._rejoins = Rejoins({each: self.now_ms if each in waited else at for each, at in moments.items()})
        self._soft = restore_soft_state(self.group, self.now_ms, self._settings)
        self._syncs = Syncs(self._soft.pending_syncs)
        self._go_along()
        return True

    # ---- decisions --------------------------------------------------------------------------------------------------

    def _pass(self, command: AnyCommand) -> None:
        """Handle a deadline that has passed. The session of a live member does not expire, and a join whose hold has
        ended is sent again.
        """
        if isinstance(command, ExpireSession) and command.member_id not in self.silent:
            session = self._soft.sessions.get(command.member_id)
            if session is not None and session.deadline_ms <= self.now_ms:
                # Done once, not at each session timeout: `silence` sets the deadline of a member that falls silent.
                session.timeout_ms, session.deadline_ms = INT32_MAX, NEVER
            return
        held = self._soft.held_joins.get(command.member_id) if isinstance(command, EndHold) else None
        self._decide(command)
        if held is not None and held.parked:
            self._decide(held.join)

    def _count(self) -> None:
        self._decisions += 1
        if self._decisions > DECISIONS_MAX:
            raise TooLong(TOO_LONG)

    def _decide(self, command: AnyCommand) -> None:
        self._count()
        incarnation = self.group.incarnation if self.group is not None else 0
        was_joining = self.group is not None and self.group.state is GroupState.PREPARING_REBALANCE
        now = Now(monotonic_ms=self.now_ms, wall_ms=self.now_ms, owner_epoch=0, incarnation=incarnation)
        decision = decide(command, self.group, self._soft, now, self._settings)
        self.group, self._soft = decision.group, decision.soft
        if decision.refreshed_session is not None:
            decision.refreshed_session.refresh(self.now_ms, None)
        for event in decision.events:
            if isinstance(event, RebalanceStarted):
                self._note_start(event, decision.events)
                was_joining = True
        self._note(decision.events)
        self._measure(decision.events)
        if was_joining and self.started:
            for event in decision.events:
                if isinstance(event, MemberEvent):
                    part = event.member.member_id, isinstance(event, MemberRemoved)
                    self._parts[part].append((self.now_ms, self.started[-1]))

    def _measure(self, events: Iterable[AnyEvent]) -> None:
        if any(isinstance(event, RebalanceStarted) for event in events):
            lost = (event.member.member_id for event in events if isinstance(event, MemberRemoved))
            self.started[-1].cost += self.meter.take(lost) + self.meter.fills(self.now_ms)
        if self.started and any(isinstance(event, GroupStabilized | GroupEmptied) for event in events):
            self.started[-1].ended_ms = min(self.started[-1].ended_ms, self.now_ms)
        if any(isinstance(event, GroupStabilized) for event in events):
            self.meter.assigned(self.pace.partitions)
        if any(isinstance(event, GroupEmptied) for event in events):
            self.meter.empties(self.now_ms)

    def _note(self, events: Iterable[AnyEvent]) -> None:
        gone: list[MemberId] = []
        for event in events:
            if isinstance(event, MemberJoined):
                self._await(event.member.member_id)
                if event.member.member_id in self._silent_once_admitted:
                    self.silent[event.member.member_id] = self._silent_once_admitted.pop(event.member.member_id)
            elif isinstance(event, JoinPhaseCompleted):
                self._sync_ms = self.now_ms + self.pace.syncs_after_ms(event.group.leader_id)
                self._syncs = Syncs(self._soft.pending_syncs)
            elif isinstance(event, MemberRemoved):
                self._note_removal(event.member, event.why.cause)
                gone.append(event.member.member_id)
            elif isinstance(event, StaticMemberReplaced):
                self._await(event.member.member_id)
                gone.append(event.replaced_member_id)
                if event.why.cause is Cause.STATIC_RESTART_ABSORBED:
                    self.kept |= {event.member.member_id, event.replaced_member_id}
        self._forget(gone)

    def _await(self, member_id: MemberId) -> None:
        self._came.append(member_id)
        self._syncs.add(member_id)

    def _forget(self, gone: Iterable[MemberId]) -> None:
        if self.group is None:
            self.silent.clear()
            return
        for member_id in gone:
            if member_id not in self.group.members:
                self.silent.pop(member_id, None)
                self.meter.ends(member_id)

    def _begun(self, event: RebalanceStarted, decided: Iterable[AnyEvent]) -> Started:
        member_id = event.why.member_id
        is_late = member_id in self._dropped and event.why.cause is not Cause.SYNC_TIMED_OUT
        is_dead = member_id in self.silent and event.why.cause is Cause.SYNC_TIMED_OUT
        return Started(
            at_ms=self.now_ms,
            cause=event.why.cause,
            member_id=member_id,
            admitted=frozenset(each.member.member_id for each in decided if isinstance(each, MemberJoined)),
            is_late=is_late,
            is_dead=is_dead,
        )

    def _note_removal(self, member: Member, cause: Cause) -> None:
        """Note a removal: a live member that was dropped for being late finds out by its next request, and rejoins."""
        if cause is Cause.SESSION_EXPIRED:
            self.expired.append(ExpiredSession(at_ms=self.now_ms, member=member))
        elif cause in _COMES_AT and self._is_alive(member.member_id):
            at_ms = self._sync_ms if cause is Cause.SYNC_TIMED_OUT else self._rejoins.at_ms(member.member_id)
            if self.now_ms <= at_ms < NEVER:
                self._late.append((at_ms, member))
                self._dropped.add(member.member_id)

    def _note_start(self, event: RebalanceStarted, decided: Iterable[AnyEvent]) -> None:
        if len(self.started) >= BY_ITSELF_MAX + 2 * self._came_in:
            raise TooLong(CIRCLES)
        if self.started:
            self.started[-1].ended_ms = min(self.started[-1].ended_ms, self.now_ms)
        self.started.append(self._begun(event, decided))
        members = self.group.members if self.group is not None else {}
        self._rejoins = Rejoins({each: self.now_ms + self.pace.rejoins_after_ms(each) for each in members})

    # ---- members' requests ------------------------------------------------------------------------------------------

    def _go_along(self) -> None:
        """Let the live members whose time has come rejoin and sync."""
        while True:
            command = next(self._next_commands(), None)
            if command is None:
                return
            self._decide(command)

    def _next_commands(self) -> Iterator[AnyCommand]:
        group = self.group
        if group is None:
            return
        for late in self._late:
            if late[0] <= self.now_ms:
                self._late.remove(late)
                yield join_of(group, late[1], UNKNOWN_MEMBER_ID, self.now_ms)
                return
        if group.state is GroupState.PREPARING_REBALANCE:
            at_ms, next_id = self._rejoins.first(self._is_to_rejoin)
            if next_id is not None and at_ms <= self.now_ms:
                yield join_of(group, group.members[next_id], next_id, self.now_ms)
            return
        follower_id, leader_id = self._syncs.first(self._is_follower_to_sync), group.leader_id
        if follower_id is not None:
            yield sync_of(group, follower_id, self.now_ms)
        elif leader_id in self._soft.pending_syncs and self._is_alive(leader_id) and self._sync_ms <= self.now_ms:
            assert leader_id is not None
            yield sync_of(group, leader_id, self.now_ms)

    def _is_to_rejoin(self, member_id: MemberId) -> bool:
        is_member = self.group is not None and member_id in self.group.members
        return is_member and self._is_alive(member_id) and member_id not in self._soft.parked_joins

    def _is_follower_to_sync(self, member_id: MemberId) -> bool:
        is_leader = self.group is not None and member_id == self.group.leader_id
        return member_id in self._soft.pending_syncs and not is_leader and self._is_alive(member_id)

    def _next_timer_ms(self) -> float:
        """Return when the coordinator next checks deadlines: for the end of a phase, as late as it was in the log."""
        next_ms = self._soft.next_deadline_ms()
        is_phase = next_ms in (self._soft.join_deadline_ms, self._soft.sync_deadline_ms)
        return next_ms + self.pace.late_ms if is_phase else next_ms

    def _next_of_members(self) -> float:
        return min(self._next_of_those_in_phase(), min((at_ms for at_ms, _ in self._late), default=NEVER))

    def _next_of_those_in_phase(self) -> float:
        group = self.group
        assert group is not None
        if group.state is GroupState.PREPARING_REBALANCE:
            return self._rejoins.first(self._is_to_rejoin)[0]
        if group.state is GroupState.COMPLETING_REBALANCE and group.leader_id in self._soft.pending_syncs:
            return self._sync_ms if self._is_alive(group.leader_id) else NEVER
        return NEVER

    def _is_alive(self, member_id: MemberId | None) -> bool:
        return member_id not in self.silent
