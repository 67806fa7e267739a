"""A leader that held the sync phase up."""

from collections.abc import Iterator

from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.incidents.acts import AnyAct, Came, CameBack, Departure, Rejoined, Went
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.kinds.replaced import grade_of
from muster.replay.incidents.naming import process_name
from muster.replay.incidents.windows import HELD_MS
from muster.replay.rebalances.rebalance import Outcome, Rebalance
from muster.replay.rebalances.wording import plural
from muster.replay.times import duration

KIND = Kind(
    "slow-leader",
    "The leader took long to send the assignment, was timed out for it, or died while all waited for it.",
    "the leader",
)


def find(view: View) -> Iterator[Claim]:
    for rebalance in view.rebalances():
        phase = rebalance.sync_phase
        if phase is None or phase.leader is None:
            continue
        went = _leader_lost(view, rebalance)
        slow = phase.duration_ms is not None and phase.duration_ms >= HELD_MS
        if went is None and not slow:
            continue
        leader = _member(view, phase.leader.member_id, went)
        if leader is None:
            continue
        if went is not None and went.how is Departure.EXPIRED:
            what = "was not heard from any more while all waited for its assignment"
        elif went is not None:
            silence = duration(went.at_ms - went.last_seen_ms)
            what = f"did not send the assignment in time, last heard from {silence} before"
        else:
            what = f"took {duration(phase.duration_ms or 0)} to send the assignment"
        others = len(rebalance.members_after) - 1
        own: tuple[AnyAct, ...] = ()
        grade = Grade.RECORDED
        if went is not None and view.is_free(went):
            back = view.returns().get(went.seq)
            own = (went,) if back is None else back.acts
            grade = grade if back is None else grade_of([back])
        yield Claim(
            kind=KIND,
            acts=own,
            culprits=(leader,),
            grade=grade,
            headline=f"the leader {process_name(leader)} {what}; {plural(max(others, 0), 'other member')} had to wait",
            held=(rebalance,),
        )


def _leader_lost(view: View, rebalance: Rebalance) -> Went | None:
    """The leader's removal, if it ended the rebalance before its assignment was there."""
    if rebalance.outcome not in (Outcome.SUPERSEDED, Outcome.EMPTIED, Outcome.UNKNOWN) or rebalance.sync_phase is None:
        return None
    assert rebalance.sync_phase.leader is not None
    for act in view.episode.of(Went):
        if rebalance.last_seq < act.seq and act.member.member_id == rebalance.sync_phase.leader.member_id:
            return act if act.how in (Departure.NOT_SYNCED, Departure.EXPIRED) else None
    return None


def _member(view: View, member_id: MemberId, went: Went | None) -> Member | None:
    if went is not None:
        return went.member
    for act in view.episode.acts:
        if isinstance(act, Came | CameBack | Rejoined) and act.member.member_id == member_id:
            return act.member
    before = view.episode.before
    return before.members.get(member_id) if before is not None else None
