"""A live leader that prolonged the sync phase.

A leader that died meanwhile, or that nothing shows to have been alive, was not slow: it is a crash, a restart or
another kind of incident, which the rebalance then belongs to (`grouping.py`).
"""

from collections.abc import Iterator

from muster.events.state import Member
from muster.replay.incidents.episode.acts import AnyAct, Departure, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.evidence.waiting import died_assigning
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.deployment import deployments
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import grade_of
from muster.replay.incidents.windows import HELD_MS
from muster.replay.rebalances.rebalance import Outcome, Rebalance, SyncPhase
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, setting, wall_ms_of

KIND = Kind(
    "slow-leader",
    "A live leader took long to send the assignment, or was timed out for it.",
    "the leader",
)

_ADVICE = ("check how long its assignor takes: the rebalance timeout (max.poll.interval.ms in Java) limits it",)
_ADVICE_IF_SILENT = ("look at its own log: its assignor or a pause kept it from sending heartbeats, too",)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for rebalance in view.rebalances():
        phase, went = rebalance.sync_phase, _leader_lost(view, rebalance)
        slow_ms = 0 if phase is None or phase.duration_ms is None else phase.duration_ms
        if went is None and slow_ms < HELD_MS:  # most rebalances
            continue
        leader = went.member if went is not None else _leader(view, phase)
        if leader is None or died_assigning(view.episode, rebalance) or _ended_in_deployment(view, rebalance, leader):
            continue
        yield _claim(view, rebalance, leader, went, slow_ms)


def _ended_in_deployment(view: EpisodeView, rebalance: Rebalance, leader: Member) -> bool:
    """Return whether a deployment replaced the leader and its process ended before it sent an assignment."""
    if leader.member_id in view.episode.heard_again:
        return False
    replaced = (each for run, _ in deployments(view) for each in run if each.former_id == leader.member_id)
    return any(each.gone_ms <= rebalance.ended_ms for each in replaced)


def _claim(view: EpisodeView, rebalance: Rebalance, leader: Member, went: Went | None, slow_ms: int) -> IncidentClaim:
    own: tuple[AnyAct, ...] = ()
    grade = Grade.RECORDED
    if went is not None and view.is_free(went):
        back = view.returns().get(went.seq)
        own = (went,) if back is None else back.acts
        grade = grade if back is None else grade_of([back])
    others = len(rebalance.members_after) - 1
    what = _what(view, rebalance, leader, went, slow_ms)
    return IncidentClaim(
        kind=KIND,
        acts=own,
        culprits=(leader,),
        grade=grade,
        headline=f"the leader {process_name(leader)} {what}; {plural(max(others, 0), 'other member')} had to wait",
        chain=_evidence(rebalance, leader, went, view.episode),
        advice=_ADVICE_IF_SILENT if went is not None and went.how is Departure.EXPIRED else _ADVICE,
        held=(rebalance,),
    )


def _what(view: EpisodeView, rebalance: Rebalance, leader: Member, went: Went | None, slow_ms: int) -> str:
    assigning = f"the assignment ({rebalance.protocol_name}, {plural(len(rebalance.members_after), 'member')})"
    if went is not None and went.how is Departure.EXPIRED:
        session = setting(leader.session_timeout_ms)
        return f"sent no heartbeat for its session timeout of {session} while all waited for {assigning}; it lives"
    if went is not None and went.how is Departure.NOT_REJOINED:
        timeout = setting(leader.rebalance_timeout_ms)
        return (
            f"had not sent {assigning} when another rebalance began, and did not rejoin within the rebalance timeout of"
            f" {timeout}"
        )
    if went is not None:
        what = f"did not send {assigning} within the rebalance timeout of {setting(leader.rebalance_timeout_ms)}"
        is_known = view.episode.silence_of(went).is_known
        return f"{what}, last heard from {duration(went.at_ms - went.last_seen_ms)} before" if is_known else what
    if rebalance.outcome is Outcome.STABLE:
        return f"took {duration(slow_ms)} to send {assigning}"
    return f"had not sent {assigning} after {duration(slow_ms)}, when another rebalance began"


def _evidence(rebalance: Rebalance, leader: Member, went: Went | None, episode: Episode) -> tuple[Statement, ...]:
    phase = rebalance.sync_phase
    assert phase is not None
    name = process_name(leader)
    got = Statement(
        text=f"the leader {name} got the list of members, to compute the assignment",
        grade=Grade.RECORDED,
        at=phase.started_at,
        seqs=(rebalance.last_seq,),
    )
    if went is not None:
        return (got, *silences(episode, [went]))
    if phase.duration_ms is None or rebalance.outcome is not Outcome.STABLE:
        return (got,)
    sent = f"the leader {name} sent it, {duration(phase.duration_ms)} later"
    return (got, Statement(text=sent, grade=Grade.RECORDED, at=phase.ended_at, seqs=(rebalance.last_seq,)))


def _leader_lost(view: EpisodeView, rebalance: Rebalance) -> Went | None:
    """Return the leader's removal, if that ended the rebalance before there was an assignment.

    The next rebalance began with the removal, or waited for the leader.
    """
    sync = rebalance.sync_phase
    if rebalance.outcome is not Outcome.SUPERSEDED or sync is None or sync.leader is None:
        return None
    after = next((each for each in view.episode.rebalances if each.first_seq > rebalance.last_seq), None)
    if after is None:
        return None
    gone = (act for act in view.episode.within(after) if isinstance(act, Went))
    found = next((act for act in gone if act.member.member_id == sync.leader.member_id), None)
    if found is None:
        return None
    if found.how is Departure.NOT_REJOINED:
        return found if _is_busy_still(view.episode, found, sync) else None
    ended_it = sync.leader.member_id in {each.member_id for each in after.trigger.who}
    return found if ended_it and found.how in (Departure.NOT_SYNCED, Departure.EXPIRED) else None


def _is_busy_still(episode: Episode, went: Went, sync: SyncPhase) -> bool:
    """Return whether the leader missed the next rebalance because it was still computing the assignment.

    It had sent nothing since it got the list of members, and had not died.
    """
    is_silent_since = went.last_seen_ms <= wall_ms_of(sync.started_at) + HELD_MS
    return is_silent_since and went.member.member_id in episode.heard_again


def _leader(view: EpisodeView, phase: SyncPhase | None) -> Member | None:
    return None if phase is None or phase.leader is None else view.episode.member(phase.leader.member_id)
