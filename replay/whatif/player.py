"""Plays all recorded rebalances of a group with one set of settings.

A play begins with a recorded rebalance, from the recorded state. While anything is pending in it (a silent member may
come back, joins are delayed, a phase is running), it is fed the following recorded commands, so that related rebalances
are decided together. When nothing is pending, the play is over: recorded rebalances that did not begin in it would not
have happened, and the next one is played from the recorded state again.
"""

import msgspec

from muster.coordinator.group.commands import Deadline, JoinGroup, SyncGroup
from muster.events.causes import Cause
from muster.events.events import (
    AnyMemberEvent,
    CoordinatorElected,
    CoordinatorReady,
    GroupDeleted,
    MemberEvent,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    StaticMemberReplaced,
)
from muster.events.state import Group, GroupState, Member
from muster.replay.history.items import Coordinated
from muster.replay.incidents.grade import Grade
from muster.replay.rerun.rerun import PERMISSIVE, group_settings
from muster.replay.whatif import telling
from muster.replay.whatif.addresses import address_of
from muster.replay.whatif.alterations import Altered
from muster.replay.whatif.departures import Falling, Fate, FateOf, FellSilent, fell_silent
from muster.replay.whatif.facts import MISSING, Fact, Step
from muster.replay.whatif.lookahead import Lookahead
from muster.replay.whatif.matching import Matching
from muster.replay.whatif.meter import Meter
from muster.replay.whatif.pace import pace_of, partitions_assigned
from muster.replay.whatif.play import Play
from muster.replay.whatif.played import TooLong
from muster.replay.whatif.rebalances import Open, VerdictTeller
from muster.replay.whatif.verdict import Additional

_LEFT = Cause.MEMBER_LEFT
_DROPPED = frozenset({Cause.NOT_REJOINED, Cause.FIRST_JOIN_TIMED_OUT, Cause.SYNC_TIMED_OUT})

BEYOND_MS = 3_600_000
"""How far a play continues beyond the end of the log to finish pending work."""

BEYOND_STEP_MS = 10_000


class Player:
    """See the module. `ahead`: the steps after the current one; each `group` is the recorded one before the step."""

    def __init__(self, altered: Altered, ahead: Lookahead, verdicts: VerdictTeller) -> None:
        self._altered = altered
        self._alterations = altered.alterations
        self._ahead = ahead
        self._matching = Matching(altered, ahead.departures, verdicts)
        self._settings = PERMISSIVE
        self._play: Play | None = None
        self._falling = Falling(ahead.departures, 0)  # of the current play
        self._partitions: int | None = 0  # of the group, as far as earlier plays determined it
        self._emptied_ms: int | None = None  # since when the group had been empty at the end of the previous play
        self._is_settled = True  # whether the recorded group had no rebalance running after the last fact
        self._is_within = False
        self._last_ms = 0
        self._behind = ""  # a doubt about the next rebalance: after a takeover it is not known how the last one ended
        self._dropped: list[Member] = []  # members dropped in the log since the play began that may be alive

    @property
    def is_playing(self) -> bool:
        """True if any verdict is pending."""
        return self._matching.is_pending

    def take(self, step: Step, group: Group) -> None:
        try:
            if isinstance(step, Fact):
                self._last_ms = max(self._last_ms, step.at_ms)
                self._is_within = step.is_within
                self._fact(step, group)
            elif isinstance(step, Coordinated):
                self._coordinated(step)
            else:
                self._abandon(telling.BEHIND_GAP)
        except TooLong as given_up:
            self._give_up(str(given_up), step)

    def end(self) -> None:
        """End the history."""
        try:
            self._end(self._last_ms)
        except TooLong as given_up:
            self._give_up(str(given_up))

    def besides(self, before_ms: float) -> list[tuple[int, Additional]]:
        """Return the play's additional rebalances, with their times, once no recorded one can still match them."""
        return self._matching.besides(before_ms)

    def _end(self, last_ms: int) -> None:
        """End the play at the end of the log: let phases and delays run to their end, but doubt rebalances caused by
        members that were silent at the end of the log, since these may have come back.
        """
        if (play := self._play) is None:
            return
        play.advance(last_ms)
        play.meter.stop()
        self._attribute()
        while not play.is_settled and play.now_ms < last_ms + BEYOND_MS:
            play.advance(play.now_ms + BEYOND_STEP_MS)
        self._matching.log_ends(play, last_ms, is_running=not self._is_settled)
        self._attribute()
        self._settle(play)

    def _coordinated(self, step: Coordinated) -> None:
        if isinstance(step.event, CoordinatorElected):
            self._settings = group_settings(step.event.settings)
        elif isinstance(step.event, CoordinatorReady) and (play := self._play) is not None:
            if play.is_settled and self._is_settled:
                self._settle(play)
                return
            seen_ms = step.event.owner_before_seen_ms or 0
            # If the former owner was last seen after the takeover, its clock was wrong.
            alive_ms = max(self._last_ms, seen_ms if seen_ms <= step.event.ready_ms else 0)
            self._advance(play, alive_ms)
            # A member that was not heard from after the takeover does not send its request again.
            for silent in self._falling.until(step.event.ready_ms + 1):
                self._silence(silent, play)
            is_known = play.take_over(alive_ms, step.event.ready_ms)
            self._attribute()
            if not is_known:
                self._behind = telling.BEHIND_UNKNOWN if self._matching.is_any_undecided else ""
                self._abandon(telling.TAKEN_OVER)

    # ---- facts ------------------------------------------------------------------------------------------------------

    def _fact(self, fact: Fact, group: Group) -> None:
        started = fact.started
        if any(isinstance(event, GroupDeleted) for event in fact.events):
            self._come_to(fact)
            self._abandon(telling.DELETED)
            return
        if fact.command is None:
            self._abandon(fact.unexplained)
            if started is not None:
                self._matching.cannot_tell(started, fact.unexplained or MISSING)
            return
        if started is not None and self._matching.is_second_round(fact, started, group):
            self._matching.follow(started)
            return
        self._come_to(fact)
        one = None if started is None else self._matching.recorded(fact, started)
        if self._play is None and one is not None:
            if one.begun is not None:
                self._matching.began_before(one)
                return
            self._begin(fact, group)
        if self._play is not None:
            self._feed(fact, one, self._play, group)
        else:
            self._is_settled = bool(fact.leaves_settled)

    def _feed(self, fact: Fact, one: Open | None, play: Play, group: Group) -> None:
        """Feed a fact to the play and determine which rebalance begins. `one`: the recorded rebalance that began with
        it.
        """
        if self._is_back_anew(fact, play):
            self._abandon(telling.BACK_ANEW)
            if one is not None:
                self._matching.cannot_tell(one.started, telling.BACK_ANEW)
            return
        if one is not None:
            play.pace = pace_of(fact, group.members, self._ahead.following)
            if not play.meter.partitions:
                play.meter.expects(partitions_assigned(self._ahead.following))
            fate_of = self._ahead.departures.fates_at(fact.at_ms, group)
            self._doubt(one, fact, play, fate_of)
            fates = telling.came_back(fact, play, fate_of)
            one.perhaps_back = frozenset(each for each, fate in fates.items() if fate is Fate.UNKNOWN)
            if len(one.perhaps_back) < len(fates):
                one.grade = Grade.INFERRED
            self._matching.open(one)
        elif not self._is_settled:
            self._matching.fold_in(fact)
        self._apply(fact, play, group)
        self._attribute(one)
        if one is not None and one.begins_ms is None:
            play.let_sync()
        self._is_settled = bool(fact.leaves_settled)

    def _is_back_anew(self, fact: Fact, play: Play) -> bool:
        """Return whether a process rejoined as a new member because it was dropped in the log, but not in the play.

        In the play it would have rejoined under its own id, or not at that time.
        """
        members = play.group.members if play.group is not None else {}
        there = {address_of(each) for each in self._dropped if each.member_id in members}
        came = (self._altered.member(each.member) for each in fact.events if isinstance(each, MemberJoined))
        return any(each.group_instance_id is None and address_of(each) in there for each in came)

    def _come_to(self, fact: Fact) -> None:
        """Advance the play to the time of this fact; the play may be over by then."""
        if self._play is not None:
            self._advance(self._play, fact.at_ms)
            self._attribute()
            if self._play.is_settled and self._is_settled:
                self._settle(self._play)

    def _advance(self, play: Play, until_ms: int) -> None:
        """Let time pass; members fall silent meanwhile."""
        for silent in (*self._falling.again(play.came(), until_ms), *self._falling.until(until_ms)):
            play.come_to(max(play.now_ms, silent.last_seen_ms + 1))
            self._silence(silent, play)
        play.come_to(until_ms)

    def _silence(self, silent: FellSilent, play: Play) -> None:
        """Let a member fall silent, with its session longer or shorter according to the other settings."""
        member_id = silent.member.member_id
        if member_id not in play.silent:
            self._matching.note_silence(silent, play.rejoins_at_ms(member_id))
            member = self._altered.member(silent.member)
            longer_ms = member.session_timeout_ms - silent.member.session_timeout_ms
            # The session ends as long after its deadline as it did in the log.
            play.silence(member, silent.removed_ms + longer_ms, silent.last_seen_ms)

    def _begin(self, fact: Fact, group: Group) -> None:
        settings = self._settings
        started = fact.started
        if started is not None and started.group.previous_state is GroupState.EMPTY:
            settings = msgspec.structs.replace(settings, initial_rebalance_delay_ms=started.timeout_ms)
        emptied_ms = None
        if group.state is GroupState.EMPTY and group.image.generation_id:  # before the first, no member was missing
            emptied_ms = group.image.state_since_ms if self._emptied_ms is None else self._emptied_ms
        meter = Meter(group, self._partitions, emptied_ms)
        self._play = Play(self._altered.group(group), self._alterations.of_settings(settings), fact.at_ms, meter)
        self._matching.begin_play()
        self._falling = Falling(self._ahead.departures, fact.at_ms)
        self._advance(self._play, fact.at_ms)

    def _former(self, came: Member, play: Play, fate_of: FateOf) -> Member | None:
        """Return the dynamic member whose live process now joins under a new id; None if there is none.

        In the play, that member is silent, or its session has expired.
        """
        if came.group_instance_id is not None:
            return None
        silent = (*play.silent.values(), *(each.member for each in reversed(play.played.expired)))
        of_address = (each for each in silent if address_of(each) == address_of(came))
        return next(
            (each for each in of_address if each.group_instance_id is None and fate_of(each, came) is Fate.LIVED), None
        )

    def _apply(self, fact: Fact, play: Play, group: Group) -> None:
        """Feed a fact to the play."""
        members = [event for event in fact.events if isinstance(event, MemberEvent)]
        is_told = False
        for event in members:
            is_told = self._of_member(event, fact, play, group) or is_told
        command = fact.command
        if isinstance(command, Deadline):
            play.end_plan(command)
        if command is not None and not is_told and not isinstance(command, Deadline | JoinGroup | SyncGroup):
            play.feed(self._altered.command(command, play.group))
        if isinstance(command, JoinGroup) and not members and fact.started is not None:
            play.feed(command)

    def _of_member(self, event: AnyMemberEvent, fact: Fact, play: Play, group: Group) -> bool:
        """Apply a member event; returns whether nothing else of the fact needs to be applied."""
        member = self._altered.member(event.member)
        match event:
            case MemberJoined() | StaticMemberReplaced():
                former = self._former(member, play, self._ahead.departures.fates_at(fact.at_ms, group))
                self._matching.doubt_if_close(event.member, member, play, former)
                if former is not None and former.member_id in play.silent:
                    play.go_on(former.member_id, member)
                else:
                    play.arrive(member)
                return True
            case MemberRejoined():
                self._matching.doubt_if_close(event.member, member, play)
                if fact.started is not None:
                    play.rejoin(member)
                return True
            case MemberRemoved():
                return self._removed(event, member, play)
            case _:
                return False

    def _removed(self, event: MemberRemoved, member: Member, play: Play) -> bool:
        why = event.why
        if why.cause in _DROPPED:
            self._dropped.append(event.member)
        if why.cause is Cause.SESSION_EXPIRED:
            self._silence(fell_silent(event), play)
            play.expire(event.member.member_id)
            return True
        is_own = why.client_id in (None, member.client_id)  # an administrator may have removed it
        if why.cause is _LEFT and is_own and event.member.group_instance_id is None and member.group_instance_id:
            # A static member does not leave: its session ends after its last heartbeat.
            play.silence(member, max(why.decided_ms, event.last_seen_ms + member.session_timeout_ms))
            return True
        return False

    # ---- verdicts ---------------------------------------------------------------------------------------------------

    def _doubt(self, one: Open, fact: Fact, play: Play, fate_of: FateOf) -> None:
        behind, self._behind = self._behind, ""
        one.take_doubt(
            telling.doubt(fact, self._altered, play, fate_of, is_static=self._alterations.is_static), fact.at_ms
        )
        self._matching.doubt_if_barely_silent(one, one.subjects)
        one.take_doubt(telling.doubt_of_poll(fact, self._altered, self._ahead.departures), fact.at_ms)
        one.take_doubt(behind, fact.at_ms)

    def _attribute(self, fed: Open | None = None) -> None:
        if self._play is not None:
            self._matching.attribute(self._play, fed, is_within=self._is_within)

    def _settle(self, play: Play) -> None:
        self._emptied_ms = play.meter.emptied_ms
        self._matching.settle(play)
        self._close()

    def _abandon(self, reason: str) -> None:
        """End the play: undecided rebalances get the verdict *cannot tell*."""
        self._matching.abandon(reason)
        self._emptied_ms = None
        self._close()

    def _give_up(self, reason: str, step: Step | None = None) -> None:
        """Abort the play during a step; the rebalance that begins with the step may not have been opened yet."""
        started = step.started if isinstance(step, Fact) else None
        is_open = started is not None and self._matching.is_open(started)
        if self._play is not None and self._is_within:
            self._matching.add_given_up(self._play, reason)
        self._abandon(reason)
        if started is not None and not is_open:
            self._matching.cannot_tell(started, reason)

    def _close(self) -> None:
        if self._play is not None:
            self._partitions = self._play.meter.partitions
        self._play = None
        self._dropped.clear()
