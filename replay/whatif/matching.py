"""Matches the rebalances of a play with the recorded ones, and gives the verdicts on the recorded ones.

A doubtful verdict also makes the cost of every rebalance of the play doubtful that was not over by then, since it is
not known how long the group would have waited. The same holds if a rebalance is running when the log ends, in the log
or in the play: nothing is measured after that.
"""

import math
from collections.abc import Iterable

import msgspec

from muster.events.causes import PLANNED_TRIGGERS, Cause
from muster.events.events import MemberEvent, MemberJoined, MemberRemoved, RebalanceStarted
from muster.events.ids import MemberId
from muster.events.state import Group, Member
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.windows import SECOND_ROUND_MS
from muster.replay.text.times import instant
from muster.replay.whatif import telling
from muster.replay.whatif.alterations import Altered
from muster.replay.whatif.departures import Departures, FellSilent
from muster.replay.whatif.facts import Fact, is_second_round
from muster.replay.whatif.play import Play
from muster.replay.whatif.played import Started
from muster.replay.whatif.rebalances import Open, VerdictTeller, recorded_as
from muster.replay.whatif.verdict import Additional, Standstill, Verdict

_LEFT = Cause.MEMBER_LEFT
_PLANNED = PLANNED_TRIGGERS - {Cause.EXPANSION_DELAY_ELAPSED}

NOT_YET = -math.inf

CLOSE_MS = 6_000
"""Twice the default heartbeat.interval.ms of clients.

The time of a member's last heartbeat is not known more precisely than this. Nor is the time until other members notice
a rebalance, which decides whether a returning member joins in time to be part of it.
"""


class Matching:
    """See the module."""

    def __init__(self, altered: Altered, departures: Departures, verdicts: VerdictTeller) -> None:
        self._is_static = altered.alterations.is_static
        self._departures = departures
        self._verdicts = verdicts
        self._open: list[Open] = []
        self._besides = 0  # how many rebalances of the play are not recorded
        self._told = 0  # number of rebalances of the play that were processed
        self._early: list[tuple[Started, Additional]] = []  # rebalances that are not in the log, or come later in it
        self._last_avoided_ms = NOT_YET
        self._barely_silent: dict[MemberId, int] = {}  # members that may have rejoined, and when they fell silent
        self._not_over_ms = math.inf  # start of the first rebalance that is still running when the log ends
        self._perhaps_silent: dict[MemberId, FellSilent] = {}
        """Members that may have been alive, waiting for their joins."""

    @property
    def is_pending(self) -> bool:
        """True if any verdict is pending."""
        return bool(self._open or self._early)

    @property
    def is_any_undecided(self) -> bool:
        """True if a recorded rebalance has not begun in the play."""
        return any(one.begins_ms is None for one in self._open)

    def is_open(self, started: RebalanceStarted) -> bool:
        return any(one.started is started for one in self._open)

    def besides(self, before_ms: float) -> list[tuple[int, Additional]]:
        """Return additional rebalances, with their times, that can no longer turn out to be in the log."""
        given: list[tuple[int, Additional]] = []
        while self._early and self._early[0][0].at_ms < before_ms:
            begun, told = self._early.pop(0)
            is_known = told.verdict is Verdict.WOULD and begun.is_cost_known
            cost = begun.cost if is_known else None
            given.append((begun.at_ms, msgspec.structs.replace(told, played=cost, is_cost_final=begun.is_over)))
        return given

    # ---- recorded rebalances ----------------------------------------------------------------------------------------

    def recorded(self, fact: Fact, started: RebalanceStarted) -> Open:
        """Return the recorded rebalance that begins with a fact; it may have begun earlier in the play."""
        members = [event.member for event in fact.events if isinstance(event, MemberEvent)]
        is_assumed = self._is_static and any(each.group_instance_id is None for each in members)
        one = Open(
            started=started,
            subjects=frozenset(each.member_id for each in members),
            grade=Grade.INFERRED if is_assumed else Grade.RECORDED,
            lost=frozenset(each.member.member_id for each in fact.events if isinstance(each, MemberRemoved)),
        )
        for begun, told in self._early:
            if recorded_as(begun, [one]) is not None:
                self._early.remove((begun, told))
                one.begins_ms, one.begun = begun.at_ms, begun
                break
        return one

    def open(self, one: Open) -> None:
        """Wait for the rebalance to begin in the play."""
        self._open.append(one)

    def began_before(self, one: Open) -> None:
        """Give the verdict on a rebalance that has begun in a play that is over."""
        assert one.begun is not None
        one.standstill, one.is_cost_known = one.begun.cost, one.begun.is_cost_known
        self._verdicts.would(one, telling.would_text(one))

    def follow(self, started: RebalanceStarted) -> None:
        """Note a second round of the last recorded rebalance, where that one would not have happened."""
        second = Open(started=started, subjects=frozenset(), grade=Grade.INFERRED)
        if self._open:
            self._open.append(msgspec.structs.replace(second, follows=self._open[-1]))
        else:
            self._verdicts.would_not(second, telling.FOLLOWED)

    def fold_in(self, fact: Fact) -> None:
        """Note the members that joined, or were lost, while the last recorded rebalance was running."""
        if not self._open:
            return
        running = self._open[-1]
        folded = {
            (event.member.member_id, isinstance(event, MemberRemoved))
            for event in fact.events
            if isinstance(event, MemberJoined | MemberRemoved)
        }
        running.folded |= folded
        self.doubt_if_barely_silent(running, {member_id for member_id, _ in folded})

    def cannot_tell(self, started: RebalanceStarted, reason: str) -> None:
        self._verdicts.cannot_tell(started, reason)

    def is_second_round(self, fact: Fact, started: RebalanceStarted, group: Group) -> bool:
        """Return whether a member rejoined with the new partitions of a rebalance that would not have happened."""
        avoided_ms = self._last_avoided_ms
        if self._open:
            avoided_ms = NOT_YET if self._open[-1].begins_ms is not None else self._open[-1].started.why.decided_ms
        return fact.at_ms - avoided_ms <= SECOND_ROUND_MS and is_second_round(fact, started, group.members)

    # ---- doubts -----------------------------------------------------------------------------------------------------

    def note_silence(self, silent: FellSilent, rejoins_at_ms: float) -> None:
        """Note a member that falls silent. `rejoins_at_ms`: when it would otherwise rejoin in the play."""
        member_id = silent.member.member_id
        if silent.lived_until_ms > silent.last_seen_ms:
            self._perhaps_silent[member_id] = silent
        if rejoins_at_ms - silent.lived_until_ms < CLOSE_MS:
            self._barely_silent[member_id] = silent.last_seen_ms

    def doubt_if_barely_silent(self, one: Open, member_ids: Iterable[MemberId]) -> None:
        silent_ms = [ms for each in member_ids if (ms := self._barely_silent.get(each)) is not None]
        if silent_ms:
            one.take_doubt(telling.BARELY_SILENT, min(silent_ms))

    def doubt_if_close(self, recorded: Member, member: Member, play: Play, former: Member | None = None) -> None:
        """Doubt the verdicts on a process that came back so close to the end of its session that the time of one
        heartbeat decides whether it was in time.

        `former`: the member as which its process was silent, if it had another id then.
        """
        close = play.closest_end_ms(former or member)
        if close is None:
            return
        member_id, late_ms = close
        if member.session_timeout_ms != recorded.session_timeout_ms:
            is_close = abs(late_ms) < CLOSE_MS
        else:  # a member that was made static: its last heartbeat is known, but not how fast the others rejoin
            is_close = member.group_instance_id != recorded.group_instance_id and 0 <= late_ms < CLOSE_MS
        if is_close:
            for one in self._open:
                if one.subjects & {member_id, member.member_id}:
                    one.take_doubt(telling.close_text(abs(late_ms)), play.now_ms - abs(late_ms))

    def log_ends(self, play: Play, last_ms: int, *, is_running: bool) -> None:
        """Doubt rebalances that the play began because a session ended after the end of the log: its member may have
        come back.

        `is_running`: whether the last recorded rebalance is running.
        """
        running = [begun.at_ms for begun in play.played.started if begun.ended_ms > last_ms]
        if is_running and self._open:
            running.append(self._open[-1].started.why.decided_ms)
        self._not_over_ms = min(running, default=math.inf)
        for begun in play.played.started[self._told :]:
            one = recorded_as(begun, self._open)
            if one is not None and one.begins_ms is None and begun.cause is Cause.SESSION_EXPIRED:
                one.take_doubt(f"the log ends at {instant(last_ms)}, before the session does", last_ms)

    def _doubt_if_heard_again(self, one: Open, play: Play) -> None:
        """Doubt the verdict if a session ended in the play although its member had been heard from before.

        In the log the member had been removed by then, so the log has no later event of it.
        """
        for expired in play.played.expired:
            member_id = expired.member.member_id
            heard_ms = self._departures.heard_again_ms(member_id)
            if heard_ms is None or heard_ms >= expired.at_ms:
                continue
            if member_id in one.lost or one.started.why.decided_ms >= heard_ms:
                one.take_doubt(telling.NOT_AGAIN, heard_ms)

    def _doubt_what_did_not_begin(self, one: Open, play: Play) -> None:
        decided_ms = one.started.why.decided_ms
        if one.started.why.cause in _PLANNED:
            one.take_doubt(telling.PLANNED, decided_ms)
        elif one.started.why.cause is _LEFT and play.played.has_expired(one.subjects):
            one.take_doubt(telling.WHEN_MISSED, decided_ms)
        elif telling.not_of_its_own_text(one, self._open, play):
            one.standstill = None  # depends on what became of its process
        else:
            one.take_doubt(telling.doubt_of_other(one, self._open, play), decided_ms)

    # ---- the play ---------------------------------------------------------------------------------------------------

    def begin_play(self) -> None:
        self._told, self._besides = 0, 0

    def attribute(self, play: Play, fed: Open | None, *, is_within: bool) -> None:
        """Match each rebalance that the play started since the last call with a recorded one."""
        for begun in play.played.started[self._told :]:
            perhaps = (each for each in self._perhaps_silent.values() if begun.at_ms <= each.lived_until_ms)
            self._barely_silent |= {each.member.member_id: each.last_seen_ms for each in perhaps}
            one = fed or recorded_as(begun, self._open)
            if one is not None and one.begins_ms is None:
                one.begins_ms, one.begun = begun.at_ms, begun
            elif is_within:
                self._early.append((begun, telling.additional(begun, self._open, is_first=self._besides == 0)))
                self._besides += 1
        self._told = len(play.played.started)

    def settle(self, play: Play) -> None:
        """Give the verdicts: the play is over."""
        for one in self._open:
            self._doubt_if_heard_again(one, play)
            one.standstill = _standstill(one, play)
            if one.follows is not None:
                one.begins_ms = one.follows.begins_ms
            if one.begins_ms is None:
                self._doubt_what_did_not_begin(one, play)
        self._doubt_costs(play)
        for one in self._open:
            if one.begins_ms is not None:
                self._verdicts.would(one, telling.would_text(one))
                continue
            reason = telling.not_of_its_own_text(one, self._open, play)
            self._verdicts.would_not(one, reason or telling.would_not_text(one, self._open, play))
            self._last_avoided_ms = one.started.why.decided_ms
        self._clear()

    def _doubt_costs(self, play: Play) -> None:
        """Doubt the costs of the play's rebalances that were not over at the first doubt, or when the log ended."""
        unsure_ms = min((one.doubt_ms for one in self._open if one.doubt), default=math.inf)
        for begun in play.played.started:
            begun.is_over = self._not_over_ms == math.inf or begun.ended_ms < self._not_over_ms
            begun.is_cost_known = begun.ended_ms <= unsure_ms and begun.is_over
        for one in self._open:
            decided_ms = one.started.why.decided_ms
            first = one.follows or one
            within = first.begun or telling.running_for(first, play)
            one.is_over = decided_ms < self._not_over_ms if within is None else within.is_over
            one.is_cost_known = one.begun.is_cost_known if one.begun is not None else decided_ms <= unsure_ms

    def abandon(self, reason: str) -> None:
        """End the play: undecided rebalances get the verdict *cannot tell*."""
        for one in self._open:
            if one.begins_ms is not None:
                self._verdicts.would(one, telling.would_text(one))
            else:
                self._verdicts.cannot_tell(one.started, one.doubt or reason)
        self._clear()

    def add_given_up(self, play: Play, reason: str) -> None:
        """Report only once that there may have been more rebalances, not each possible one."""
        if not play.played.started:
            return
        last = play.played.started[-1]
        more = telling.given_up(last, self._open, reason)
        unknown = {id(each) for each in play.played.started}
        self._early = [
            each for each in self._early if each[1].verdict is not Verdict.CANNOT_TELL or id(each[0]) not in unknown
        ]
        self._early.append((last, more))

    def _clear(self) -> None:
        self._open, self._told = [], 0
        self._barely_silent.clear()
        self._perhaps_silent.clear()


def _standstill(one: Open, play: Play) -> Standstill | None:
    """Return the cost of a recorded rebalance in a play, including the silences of its lost members."""
    if one.follows is not None:
        return None if one.follows.begun is not None else Standstill()
    lost = {*one.lost, *(member_id for member_id, is_lost in one.folded if is_lost and member_id is not None)}
    silences = play.meter.take(lost)
    return silences if one.begun is None else one.begun.cost + silences
