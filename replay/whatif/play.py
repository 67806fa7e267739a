"""A group, its rules and its members, played on from a recorded state under other settings.

Members are *alive*, and rejoin and sync at the recorded pace; or *silent*, and nothing is heard from them until their
process comes back. Time is wall clock ms, and moves when it is told to: what is due on the way is decided.
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
from muster.coordinator.group.turn import Moment
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
"""Decisions of one play, so that none goes on for ever."""
BY_ITSELF_MAX = 20
"""The rebalances of one play beyond two for each thing that came in: with more, they lead to one another."""


class Started(msgspec.Struct, kw_only=True, eq=False):
    """A rebalance that began in the play. `admitted`: the members whose joins it let in, held until then or not.

    `cost`: so far; it alone changes.
    """

    at_ms: int
    cause: Cause
    member_id: MemberId | None
    admitted: frozenset[MemberId] = frozenset()
    is_late: bool  # by somebody alive, who was dropped before
    is_dead: bool  # for somebody dead, whose sync did not come
    cost: Standstill = Standstill()


class ExpiredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that ended in the play."""

    at_ms: int
    member: Member


class TooLong(Exception):
    """The play was given up; the text says why."""


TOO_LONG = f"playing it took more than {DECISIONS_MAX} decisions, and was given up"
CIRCLES = "with these settings one rebalance would have led to the next, again and again: playing it was given up"


class Play:
    """See the module. `started`: its rebalances; `kept`: ids, old and new, of who came back and kept its place."""

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
        self._came: list[MemberId] = []  # that may have been silent under their ids before
        self._late: list[tuple[float, Member]] = []  # alive, dropped, and when each comes back
        self._dropped: set[MemberId] = set()
        self._sync_ms = NEVER  # a sync phase that was running when the play began was recorded to be superseded
        self._decisions = 0
        self._came_in = 0

    @property
    def is_settled(self) -> bool:
        """Whether nothing is awaited any more."""
        group = self.group
        if group is None:
            return True
        is_quiet = group.state in (GroupState.STABLE, GroupState.EMPTY)
        return is_quiet and not (self.silent or self._late or self._soft.held_joins)

    def closest_end_ms(self, member: Member) -> tuple[MemberId, int] | None:
        """How far from now, before or after it, the session of a process ends that comes back, and whose it is.

        None: it was not silent in this play.
        """
        former = self._former(member)
        session = self._soft.sessions.get(former) if former in self.silent else None
        if session is not None:
            return former, int(abs(session.deadline_ms - self.now_ms))
        for begun in reversed(self.expired):
            ended = begun.member
            if ended.member_id == member.member_id or ended.group_instance_id == (member.group_instance_id or ""):
                return ended.member_id, self.now_ms - begun.at_ms
        return None

    def rejoins_at_ms(self, member_id: MemberId) -> float:
        """When a member that the join phase waits for comes, if it is alive then; NEVER if none waits for it."""
        is_awaited = self.group is not None and self.group.state is GroupState.PREPARING_REBALANCE
        is_there = member_id in self._soft.parked_joins
        return self._rejoins.at_ms(member_id) if is_awaited and not is_there else NEVER

    def part_of(self, member_id: MemberId, since_ms: int, *, is_loss: bool) -> Started | None:
        """The rebalance that was running when, from a moment on, the member first came, or was lost; None: none was."""
        parts = self._parts.get((member_id, is_loss), ())
        return next((started for at_ms, started in parts if at_ms >= since_ms), None)

    def came(self) -> list[MemberId]:
        """Return the members who joined, or rejoined, since the last call."""
        came, self._came = self._came, []
        return came

    def _former(self, member: Member) -> MemberId:
        instance = member.group_instance_id
        if self.group is None or instance is None:
            return member.member_id
        return self.group.instances.get(instance, member.member_id)

    def silence(self, member: Member, deadline_ms: int, since_ms: int | None = None) -> None:
        """Let a member fall silent; its session ends at the deadline unless its process comes back.

        `since_ms`: since when it was, if that was before the play.
        """
        if member.member_id in self._soft.held_joins:
            self._silent_once_admitted[member.member_id] = member
        session = self._soft.sessions.get(member.member_id)
        if session is not None:
            self._soft.sessions[member.member_id] = msgspec.structs.replace(
                session,
                timeout_ms=member.session_timeout_ms,  # it begins again at the end of a join phase (see `_pass`)
                deadline_ms=deadline_ms,
                last_seen_ms=min(self.now_ms, deadline_ms),
            )
            self.silent[member.member_id] = member
            self.meter.falls_silent(member, max(0, self.now_ms - since_ms) if since_ms is not None else 0)
            self._came_in += 1

    def arrive(self, member: Member) -> None:
        """A process joins, and knows of no member id."""
        self._feed_join(member, UNKNOWN_MEMBER_ID)

    def go_on(self, silent_id: MemberId, member: Member) -> None:
        """A silent member is heard from again, under another id in the log, since it had lost its place there.

        Here it has kept its place; from now on it has that id here, too, so that what comes next is about it.
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
        """A member joins again, as it is now."""
        self.silent.pop(member.member_id, None)
        self.meter.ends(member.member_id)
        self._rejoins.add(member.member_id)
        self._await(member.member_id)
        self._feed_join(member, member.member_id)

    def _feed_join(self, member: Member, member_id: MemberId) -> None:
        assert self.group is not None
        self.feed(join_of(self.group, member, member_id, self.now_ms))

    def expire(self, member_id: MemberId) -> None:
        """End the session of a silent member, now that it was recorded, if that is the time for it here."""
        session = self._soft.sessions.get(member_id)
        if self.group is not None and session is not None and session.deadline_ms <= self.now_ms:
            due_ms = int(session.deadline_ms)
            self.feed(ExpireSession(group_id=self.group.group_id, member_id=member_id, due_ms=due_ms))

    def feed(self, command: AnyCommand) -> None:
        """Decide a command, and let the members go along with it."""
        self._came_in += 1
        self._decide(command)
        self._go_along()

    def end_plan(self, command: AnyCommand) -> None:
        """The time of a plan is up, as it was recorded: since when it ran is not in the log."""
        for field, deadline in PHASES.items():
            is_over = isinstance(command, _PLANS) and isinstance(command, deadline)
            if is_over and getattr(self._soft, field) is not None:
                setattr(self._soft, field, self.now_ms)
        self.advance(self.now_ms)

    def let_sync(self) -> None:
        """The leader sends its assignment now: what was recorded to come before it did not happen here."""
        self._sync_ms = self.now_ms
        self._go_along()

    def come_to(self, at_ms: int) -> None:
        """Let time pass until something comes in: what members do at that very moment comes before, deadlines after."""
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
        """Let another coordinator take over. Returns False if what became of the rebalance is not known.

        Whoever waited in a phase asks again. Joins that were held are forgotten, and come again nobody knows how.
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
        """A deadline has come; who is alive was heard from in time, and retries what is sent back."""
        if isinstance(command, ExpireSession) and command.member_id not in self.silent:
            session = self._soft.sessions.get(command.member_id)
            if session is not None and session.deadline_ms <= self.now_ms:
                # Once and for all, not at each session timeout: `silence` sets the deadline of who falls silent.
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
        moment = Moment(now_ms=self.now_ms, wall_ms=self.now_ms, owner_epoch=0, incarnation=incarnation)
        decision = decide(command, self.group, self._soft, moment, self._settings)
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
            silences = Standstill(partition_ms=sum(map(self.meter.take, lost)))
            self.started[-1].cost += silences + self.meter.fills(self.now_ms)
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
        """Note a removal: a live member that was dropped for being late learns it by its next request, and rejoins."""
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
        self.started.append(self._begun(event, decided))
        members = self.group.members if self.group is not None else {}
        self._rejoins = Rejoins({each: self.now_ms + self.pace.rejoins_after_ms(each) for each in members})

    # ---- what members do --------------------------------------------------------------------------------------------

    def _go_along(self) -> None:
        """Let who is alive rejoin and sync, as far as it is time."""
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
        """When the coordinator next looks for what is due: after the end of a phase as late as it did in the log."""
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
