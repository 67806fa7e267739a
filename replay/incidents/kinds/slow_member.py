"""A live member that prolonged the join phase."""

from collections.abc import Iterator

from muster.replay.incidents.episode.acts import AnyAct, Departure, Rejoined, Went
from muster.replay.incidents.episode.episode import JOINERS
from muster.replay.incidents.evidence.naming import process_name, processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import grade_of
from muster.replay.incidents.windows import HELD_MS, HELD_SHARE
from muster.replay.rebalances.rebalance import Rebalance
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, instant, setting

KIND = Kind(
    "slow-member",
    "A live member took long to rejoin and held the join phase up, or was dropped for it.",
    "the slow members",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for rebalance in view.rebalances():
        duration_ms = rebalance.join_phase.duration_ms
        sync = rebalance.sync_phase
        if duration_ms is not None and sync is not None and (sync.duration_ms or 0) > duration_ms:
            continue  # the leader delayed it more
        if duration_ms is None or duration_ms < HELD_MS or rebalance.initial:
            continue
        slow = {act.member.member_id: act for act in _slow(view, rebalance, duration_ms)}
        if not slow:
            continue
        members = tuple(act.member for act in slow.values())
        dropped = [act for act in slow.values() if isinstance(act, Went)]
        back = view.returns()
        own: list[AnyAct] = []
        for act in dropped:
            own += back[act.seq].acts if act.seq in back else [act] * view.is_free(act)
        returned = [back[act.seq] for act in dropped if act.seq in back]
        ended = f"; {len(dropped)} of them dropped" if dropped else ""
        if len(dropped) == len(slow):
            timeout = setting(rebalance.join_phase.timeout_ms)
            were = "it was" if len(dropped) == 1 else "they were"
            ended = f"; {were} dropped when the rebalance timeout of {timeout} had passed"
        others = len(rebalance.members_before) - len(members)
        yield IncidentClaim(
            kind=KIND,
            acts=tuple(own),
            culprits=members,
            grade=grade_of(returned) if returned else Grade.RECORDED,
            headline=(
                f"{processes(members)} {_took(len(slow), len(dropped), duration_ms)}, for which"
                f" {plural(max(others, 0), 'other member')} had to wait{ended}"
            ),
            chain=tuple(_evidence(act, rebalance.started_ms) for act in slow.values()),
            advice=("a member rejoins when it polls: shorten its batches, or lower max.poll.interval.ms (the limit)",),
            held=(rebalance,),
        )


def _evidence(act: Rejoined | Went, began_ms: int) -> Statement:
    name = process_name(act.member)
    if isinstance(act, Rejoined):
        at_ms = act.why.arrived_ms
        text = f"{name} rejoined, {duration(at_ms - began_ms)} after the rebalance had begun"
    else:
        at_ms, heard_ms = act.at_ms, act.at_ms - act.last_seen_ms
        text = f"{name} was alive, last heard from {duration(heard_ms)} before it was dropped, and did not rejoin"
    return Statement(text=text, grade=Grade.RECORDED, at=instant(at_ms), seqs=(act.seq,))


def _took(slow: int, dropped: int, duration_ms: int) -> str:
    if slow == dropped:
        return f"did not rejoin for {duration(duration_ms)}"
    return f"took {duration(duration_ms)} to rejoin"


def _slow(view: EpisodeView, rebalance: Rebalance, duration_ms: int) -> Iterator[Rejoined | Went]:
    """Yield members that rejoined after a long gap without other joins, or were dropped although they were alive."""
    awaited = {member.member_id for member in rebalance.members_before}
    start_ms = rebalance.started_ms
    joins = [
        act
        for act in view.episode.within(rebalance)
        if isinstance(act, JOINERS) and act.at_ms <= start_ms + duration_ms
    ]
    joins.sort(key=lambda act: act.why.arrived_ms)
    before_ms = start_ms
    held = False
    for act in joins:
        gap_ms = act.why.arrived_ms - before_ms
        held = held or (gap_ms > HELD_MS and gap_ms > duration_ms * HELD_SHARE)
        if held and isinstance(act, Rejoined) and act.member.member_id in awaited:
            yield act
        before_ms = max(before_ms, act.why.arrived_ms)
    if not rebalance.join_phase.timed_out:
        return
    for dropped in view.episode.of(Went):
        within = rebalance.first_seq <= dropped.seq <= rebalance.last_seq
        if not within or dropped.how is not Departure.NOT_REJOINED:
            continue
        if dropped.last_seen_ms > start_ms + HELD_MS and view.episode.silence_of(dropped).is_known:
            yield dropped
