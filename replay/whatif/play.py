"""Simulates a group, its coordinator and its members with other settings, starting from a recorded state.

Members are *alive*: they rejoin and sync at the recorded pace; or *silent*: they send nothing until their process comes
back. Time is wall clock ms and moves only when the caller advances it; deadlines that pass meanwhile are then decided.
"""

import math
from collections.abc import Iterable, Mapping

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
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.state import Group, GroupState, Member
from muster.replay.whatif.members import SimulatedMembers
from muster.replay.whatif.meter import Meter
from muster.replay.whatif.pace import NEVER, PROMPT, MemberPace
from muster.replay.whatif.played import ExpiredSession, Played, Started, TooLong
from muster.replay.whatif.renaming import renamed
from muster.replay.whatif.requests import join_of

_PLANS = (EndRegistration, EndRetirement, PromoteLearners)
DECISIONS_MAX = 100_000
"""Maximum number of decisions in one play, so that every play ends."""

TOO_LONG = f"playing it took more than {DECISIONS_MAX} decisions, and was given up"


class Play:
    """See the module. `kept`: old and new ids of members that came back while still in the group."""

    def __init__(self, group: Group, settings: GroupSettings, now_ms: int, meter: Meter | None = None) -> None:
        self.group: Group | None = group
        self.now_ms = now_ms
        self.pace: MemberPace = PROMPT
        self.played = Played()
        self.kept: set[MemberId] = set()
        self.meter = meter or Meter(group)
        self._settings = settings
        self._soft = restore_soft_state(group, now_ms, settings)
        self._members = SimulatedMembers(self._soft.pending_syncs)
        self._came: list[MemberId] = []  # members that joined or rejoined since `came()` was last called
        self._decisions = 0
        self._came_in = 0

    @property
    def silent(self) -> Mapping[MemberId, Member]:
        """The members that send nothing until their process comes back."""
        return self._members.silent

    @property
    def is_settled(self) -> bool:
        """True if the group is quiet and nothing is pending."""
        group = self.group
        if group is None:
            return True
        is_quiet = group.state in (GroupState.STABLE, GroupState.EMPTY)
        return is_quiet and not (self._members.is_any_away or self._soft.held_joins)

    def closest_end_ms(self, member: Member) -> tuple[MemberId, int] | None:
        """Return a returning process's former member id, and the ms between the end of that member's session and now.

        None: the process was not silent in this play.
        """
        instances = self.group.instances if self.group is not None else {}
        former = instances.get(member.group_instance_id or GroupInstanceId(""), member.member_id)
        session = self._soft.sessions.get(former) if former in self.silent else None
        if session is not None:
            is_open = session.deadline_ms == NEVER
            return None if is_open else (former, int(self.now_ms - session.deadline_ms))
        expired = self.played.last_expiry(member)
        return None if expired is None else (expired.member.member_id, self.now_ms - expired.at_ms)

    def rejoins_at_ms(self, member_id: MemberId) -> float:
        """Return when a member that the join phase waits for would rejoin; NEVER if no phase waits for it."""
        return NEVER if self.group is None else self._members.rejoins_at_ms(self.group, self._soft, member_id)

    def came(self) -> list[MemberId]:
        """Return the members that joined or rejoined since the last call."""
        came, self._came = self._came, []
        return came

    def silence(self, member: Member, deadline_ms: int, since_ms: int | None = None) -> None:
        """Let a member fall silent; its session ends at the deadline unless its process comes back.

        `since_ms`: when it fell silent, if that was before the play.
        """
        if member.member_id in self._soft.held_joins:
            self._members.silent_once_admitted[member.member_id] = member
        session = self._soft.sessions.get(member.member_id)
        if session is not None:
            self._soft.sessions[member.member_id] = msgspec.structs.replace(
                session,
                timeout_ms=member.session_timeout_ms,  # restarts at the end of a join phase (see `_pass`)
                deadline_ms=deadline_ms,
                last_seen_ms=min(self.now_ms, deadline_ms),
            )
            self._members.silent[member.member_id] = member
            self.meter.falls_silent(member, max(0, self.now_ms - since_ms) if since_ms is not None else 0)
            self._came_in += 1

    def arrive(self, member: Member) -> None:
        """Let a process join that has no member id yet."""
        self._feed_join(member, UNKNOWN_MEMBER_ID)

    def go_on(self, silent_id: MemberId, member: Member) -> None:
        """Let a silent member send requests again. In the log it was removed and came back under a new id.

        In the what-if it is still a member, and is given that id, so that the following commands apply to it.
        """
        assert self.group is not None
        self._members.silent.pop(silent_id)
        self.meter.ends(silent_id)
        self.kept |= {silent_id, member.member_id}
        self.group, self._soft = renamed(self.group, self._soft, silent_id, member.member_id, self.now_ms)
        self._came_in += 1
        self._await(member.member_id)
        if self.group.state is GroupState.PREPARING_REBALANCE and member.member_id not in self._soft.parked_joins:
            self._decide(join_of(self.group, self.group.members[member.member_id], member.member_id, self.now_ms))
        self._go_along()

    def rejoin(self, member: Member) -> None:
        """Let a member rejoin with its current subscription."""
        self._members.rejoin(member.member_id)
        self.meter.ends(member.member_id)
        self._await(member.member_id)
        self._feed_join(member, member.member_id)

    def _feed_join(self, member: Member, member_id: MemberId) -> None:
        assert self.group is not None
        self.feed(join_of(self.group, member, member_id, self.now_ms))

    def expire(self, member_id: MemberId) -> None:
        """Expire a silent member whose session ended in the log at this time, if it has ended in the play, too."""
        session = self._soft.sessions.get(member_id)
        if self.group is not None and session is not None and session.deadline_ms <= self.now_ms:
            due_ms = int(session.deadline_ms)
            self.feed(ExpireSession(group_id=self.group.group_id, member_id=member_id, due_ms=due_ms))

    def feed(self, command: AnyCommand) -> None:
        """Let the rules decide a command, and the members react."""
        self._came_in += 1
        self._decide(command)
        self._go_along()

    def end_plan(self, command: AnyCommand) -> None:
        """End a plan at the recorded time, since the log does not show when it began."""
        for field, deadline in PHASES.items():
            is_over = isinstance(command, _PLANS) and isinstance(command, deadline)
            if is_over and getattr(self._soft, field) is not None:
                setattr(self._soft, field, self.now_ms)
        self.advance(self.now_ms)

    def let_sync(self) -> None:
        """Let the leader send its assignment now: in the log it waited for an event that did not happen in the play."""
        self._members.let_leader_sync(self.now_ms)
        self._go_along()

    def come_to(self, at_ms: int) -> None:
        """Let time pass until the next input. Within the same ms, members act before the input, and deadlines are
        decided after it.
        """
        self.advance(at_ms - 1)
        self._pass_until(at_ms)
        self._go_along()

    def _pass_until(self, at_ms: int) -> None:
        if at_ms > self.now_ms:
            self.played.add_cost(self.meter.passes(at_ms - self.now_ms, self.group))
            self.now_ms = at_ms

    def advance(self, until_ms: int) -> None:
        """Let time pass."""
        while self.group is not None:
            next_ms = min(self._next_timer_ms(), self._members.next_ms(self.group, self._soft))
            if next_ms > until_ms:
                break
            self._count()
            self._pass_until(math.ceil(next_ms))
            for command in due(self.group.group_id, self._soft, self.now_ms):
                self._pass(command)
            self._go_along()
        self._pass_until(until_ms)

    def take_over(self, alive_ms: int, ready_ms: int) -> bool:
        """Let another coordinator take over. Returns False if it is not known how the rebalance would continue.

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
        self._soft = restore_soft_state(self.group, self.now_ms, self._settings)
        self._members.go_to_new_coordinator(self.group, waited, self._soft.pending_syncs, self.now_ms)
        self._go_along()
        return True

    # ---- decisions --------------------------------------------------------------------------------------------------

    def _pass(self, command: AnyCommand) -> None:
        """Handle a deadline that has passed. The session of a live member does not expire, and a join that is no longer
        delayed is sent again.
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
        if was_joining:
            for event in decision.events:
                if isinstance(event, MemberEvent):
                    is_loss = isinstance(event, MemberRemoved)
                    self.played.add_part(event.member.member_id, self.now_ms, is_loss=is_loss)

    def _measure(self, events: Iterable[AnyEvent]) -> None:
        if any(isinstance(event, RebalanceStarted) for event in events):
            lost = (event.member.member_id for event in events if isinstance(event, MemberRemoved))
            self.played.add_cost(self.meter.take(lost) + self.meter.fills(self.now_ms))
        if any(isinstance(event, GroupStabilized | GroupEmptied) for event in events):
            self.played.end(self.now_ms)
        if any(isinstance(event, GroupStabilized) for event in events):
            self.meter.assigned(self.pace.partitions)
        if any(isinstance(event, GroupEmptied) for event in events):
            self.meter.empties(self.now_ms)

    def _note(self, events: Iterable[AnyEvent]) -> None:
        gone: list[MemberId] = []
        for event in events:
            if isinstance(event, MemberJoined):
                self._await(event.member.member_id)
                self._members.admit(event.member.member_id)
            elif isinstance(event, JoinPhaseCompleted):
                leader_ms = self.now_ms + self.pace.syncs_after_ms(event.group.leader_id)
                self._members.begin_sync_phase(self._soft.pending_syncs, leader_ms)
            elif isinstance(event, MemberRemoved):
                if event.why.cause is Cause.SESSION_EXPIRED:
                    self.played.expired.append(ExpiredSession(at_ms=self.now_ms, member=event.member))
                self._members.drop(event.member, event.why.cause, self.now_ms)
                gone.append(event.member.member_id)
            elif isinstance(event, StaticMemberReplaced):
                self._await(event.member.member_id)
                gone.append(event.replaced_member_id)
                if event.why.cause is Cause.STATIC_RESTART_ABSORBED:
                    self.kept |= {event.member.member_id, event.replaced_member_id}
        self._forget(gone)

    def _await(self, member_id: MemberId) -> None:
        self._came.append(member_id)
        self._members.come(member_id)

    def _forget(self, gone: Iterable[MemberId]) -> None:
        if self.group is None:
            self._members.silent.clear()
            return
        for member_id in gone:
            if member_id not in self.group.members:
                self._members.silent.pop(member_id, None)
                self.meter.ends(member_id)

    def _note_start(self, event: RebalanceStarted, decided: Iterable[AnyEvent]) -> None:
        member_id = event.why.member_id
        is_late = member_id in self._members.dropped and event.why.cause is not Cause.SYNC_TIMED_OUT
        is_dead = member_id in self.silent and event.why.cause is Cause.SYNC_TIMED_OUT
        started = Started(
            at_ms=self.now_ms,
            cause=event.why.cause,
            member_id=member_id,
            admitted=frozenset(each.member.member_id for each in decided if isinstance(each, MemberJoined)),
            is_late=is_late,
            is_dead=is_dead,
        )
        self.played.begin(started, inputs=self._came_in)
        members = self.group.members if self.group is not None else ()
        self._members.begin_rebalance(members, self.now_ms, self.pace)

    def _go_along(self) -> None:
        """Let live members rejoin and sync when they are due."""
        while self.group is not None:
            request = self._members.next_request(self.group, self._soft, self.now_ms)
            if request is None:
                return
            self._decide(request)

    def _next_timer_ms(self) -> float:
        """Return when the coordinator next checks deadlines; it is as late for the end of a phase as it was in the
        log.
        """
        next_ms = self._soft.next_deadline_ms()
        is_phase = next_ms in (self._soft.join_deadline_ms, self._soft.sync_deadline_ms)
        return next_ms + self.pace.late_ms if is_phase else next_ms
