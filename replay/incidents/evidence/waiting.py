"""Phases that were prolonged, and the members that they waited for.

A join phase ends when the last expected member has joined or was removed, or when the rebalance timeout has passed. It
waited for members that were removed at its end, for handed-out ids that were not used (format level 4), and for static
members without which it ended. If the log has none of these, it is not known what it waited for. In a sync phase all
members wait for the leader's assignment.
"""

from collections.abc import Iterator, Sequence

from muster.events.causes import Cause
from muster.events.events import GroupEmptied, JoinPhaseCompleted
from muster.events.ids import MemberId
from muster.events.state import HandedOutId
from muster.replay.incidents.episode.acts import CameBack, Departure, Phase, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.connection_ends import SLACK_MS, Ending, ended_ms, ending, heartbeat_ms
from muster.replay.incidents.evidence.former_process import FormerProcess, former_process
from muster.replay.incidents.evidence.naming import process_name, processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.windows import HELD_MS, HELD_SHARE
from muster.replay.rebalances.rebalance import Outcome, Rebalance
from muster.replay.rebalances.wording import host, short_member_id
from muster.replay.text.grammar import listed
from muster.replay.text.times import duration, instant, moment, setting

_LATE = "did not join within the rebalance timeout"


def held_ms(rebalance: Rebalance) -> int | None:
    """Return how long (ms) the join phase lasted after the last member had joined; None if that was not long."""
    phase = rebalance.join_phase
    if phase.duration_ms is None or rebalance.initial:
        return None
    waited_ms = phase.duration_ms - max((each.after_ms for each in phase.arrivals), default=0)
    return waited_ms if waited_ms > HELD_MS and waited_ms > phase.duration_ms * HELD_SHARE else None


def sync_held_ms(rebalance: Rebalance) -> int | None:
    """Return how long (ms) the members waited for the leader's assignment; None if that was not long."""
    phase, sync = rebalance.join_phase, rebalance.sync_phase
    if sync is None or sync.duration_ms is None:
        return None
    is_long = sync.duration_ms > HELD_MS and sync.duration_ms > (phase.duration_ms or 0)
    return sync.duration_ms if is_long else None


def given_up(rebalance: Rebalance, episode: Episode) -> list[Went]:
    """Return the members that were removed as silent at the end of the join phase."""
    phase = rebalance.join_phase
    if phase.duration_ms is None or rebalance.initial:
        return []
    end_ms = rebalance.started_ms + phase.duration_ms
    gone = (act for act in episode.within(rebalance) if isinstance(act, Went))
    return [act for act in gone if act.at_ms == end_ms and act.is_silent]


def _lost_while_waiting(rebalance: Rebalance, end: Phase, episode: Episode) -> list[Went]:
    """Return the members that were removed as silent while the join phase waited for them, or at its end."""
    gone = (act for act in episode.within(rebalance) if isinstance(act, Went) and act.is_silent)
    return [act for act in gone if rebalance.started_ms < act.at_ms <= end.at_ms]


def awaited_in_vain(rebalance: Rebalance, episode: Episode) -> list[Went | CameBack]:
    """Return the acts of members that the join phase waited for in vain.

    They were removed at its end, or kept their places as static members until they were dropped or came back.
    """
    end = end_of_join_phase(rebalance, episode)
    absent = set() if end is None else set(_absent_ids(end))
    later: list[Went | CameBack] = []
    if absent:
        later += [act for act in episode.of(Went) if act.member.member_id in absent and act.seq > rebalance.first_seq]
        later += [act for act in episode.of(CameBack) if act.replaced_member_id in absent]
    return [*given_up(rebalance, episode), *sorted(later, key=lambda act: act.seq)]


def died_assigning(episode: Episode, rebalance: Rebalance) -> Went | CameBack | None:
    """Return the act by which the group lost a leader that died before it sent the assignment.

    None if the leader did not die, or that is not known. It died if it closed its connection, or if its session expired
    and nothing shows that it was still alive: it was not heard from again, did not reuse its connection, and sent
    nothing until its session expired.
    """
    sync = rebalance.sync_phase
    if sync is None or sync.leader is None or rebalance.outcome in (Outcome.STABLE, Outcome.RUNNING):
        return None
    leader_id = sync.leader.member_id
    if leader_id in episode.heard_again:
        return None
    act = episode.lost.get(leader_id)
    if act is None or ended_ms(episode, act) > rebalance.ended_ms:
        return None
    has_died = _had_ended(episode, act) if isinstance(act, CameBack) else _has_vanished(episode, act)
    return act if has_died else None


def _had_ended(episode: Episode, came: CameBack) -> bool:
    return former_process(episode, came) not in (FormerProcess.ALIVE, FormerProcess.UNKNOWN)


def _has_vanished(episode: Episode, act: Went) -> bool:
    """Return whether the member closed its connection, or was silent for too long and did not reuse the connection."""
    if ending(episode, act) is Ending.ENDED:
        return True
    if act.at_ms - act.last_seen_ms <= heartbeat_ms(act) + SLACK_MS:
        return False
    returns = (each for each in episode.replacements if each.former_id == act.member.member_id)
    return not any(each.on_same_connection for each in returns)


def end_of_join_phase(rebalance: Rebalance, episode: Episode) -> Phase | None:
    """Return the act that ended the join phase; None if it is not in the log."""
    for act in episode.within(rebalance):
        if isinstance(act, Phase) and isinstance(act.event, JoinPhaseCompleted | GroupEmptied):
            return act
    return None


def unused_ids(end: Phase) -> list[HandedOutId]:
    """Return the handed-out ids that had been unused for a long time when the phase ended."""
    event = end.event
    assert isinstance(event, JoinPhaseCompleted | GroupEmptied)
    return [each for each in event.handed_out_ids if each.age_ms > HELD_MS]


def waits(rebalance: Rebalance, episode: Episode) -> Iterator[Statement]:
    """State which members the rebalance waited for, and which static members did not rejoin."""
    if rebalance.outcome is Outcome.RUNNING:
        yield from _running(rebalance, episode)
    end = end_of_join_phase(rebalance, episode)
    if end is None:
        return
    died = died_assigning(episode, rebalance)
    if died is not None:
        yield _waited_for_assignment(episode, rebalance, died)
    waited_ms = held_ms(rebalance)
    if waited_ms is not None:
        yield _waited(rebalance, episode, end, waited_ms)
    yield from _absent(end, episode)


def _running(rebalance: Rebalance, episode: Episode) -> Iterator[Statement]:
    """State which members a running rebalance waits for."""
    sync = rebalance.sync_phase
    if sync is None:
        awaited = [member for each in rebalance.join_phase.awaited if (member := episode.member(each.member_id))]
        if awaited:
            have = "has" if len(awaited) == 1 else "have"
            text = f"the join phase goes on: {processes(awaited)} {have} not joined so far"
            yield Statement(text=text, grade=Grade.RECORDED, at=rebalance.started_at, seqs=(rebalance.last_seq,))
        else:
            yield from _waits_for_nobody(rebalance, episode)
    elif sync.leader is not None and (leader := episode.member(sync.leader.member_id)) is not None:
        text = f"the sync phase goes on: the leader {process_name(leader)} has not sent the assignment so far"
        yield Statement(text=text, grade=Grade.RECORDED, at=sync.started_at, seqs=(rebalance.last_seq,))


def _waits_for_nobody(rebalance: Rebalance, episode: Episode) -> Iterator[Statement]:
    """State why the join phase continues although all members have joined, if one was refused in it.

    Removing that member does not end the phase, as in Kafka's Java group coordinator (the Scala one checks whether the
    phase is over). A takeover does: the members send their joins again, and the last one ends it.
    """
    phase = rebalance.join_phase
    refused = [each for each in phase.dropped if each.cause is Cause.GROUP_FULL]
    members = [member for each in refused for who in each.who if (member := episode.member(who.member_id))]
    takeovers = (each for each in episode.aways if not each.paused and each.until_ms > rebalance.started_ms)
    if not members or rebalance.initial or any(takeovers):
        return
    were = "was" if len(members) == 1 else "were"
    until = moment(rebalance.started_ms + phase.timeout_ms)
    text = (
        f"the join phase goes on although all members have joined: {processes(members)} {were} refused and removed"
        " because of group.max.size, which does not end the phase; it ends when a member rejoins or leaves, or after"
        f" its timeout of {setting(phase.timeout_ms)}, at {until} unless the coordinator changes before: to end it now,"
        " restart one of its members"
    )
    yield Statement(text=text, grade=Grade.RECORDED, at=rebalance.started_at, seqs=(rebalance.last_seq,))


def _waited(rebalance: Rebalance, episode: Episode, end: Phase, waited_ms: int) -> Statement:
    phase_ms = rebalance.join_phase.duration_ms or 0
    gone = _lost_while_waiting(rebalance, end, episode)
    missing = _missing(gone, end, episode)
    ids = unused_ids(end)
    took = f"the join phase took {duration(phase_ms)}, {duration(waited_ms)} of it after all others had joined"
    others = f"{took}: it waited for"
    if missing:
        return Statement(
            text=f"{others} {listed(missing)}",
            grade=Grade.RECORDED,
            at=instant(end.at_ms),
            seqs=(*(act.seq for act in gone), end.seq),
        )
    if ids:
        whom = listed([f"'{each.client_id}' ({host(each.client_host)})" for each in ids])
        ages = duration(max(each.age_ms for each in ids))
        text = f"{others} {whom}, which had been given a member id up to {ages} before and had not joined with it"
        return Statement(text=text, grade=Grade.RECORDED, at=instant(end.at_ms), seqs=(end.seq,))
    return Statement(
        text=f"{others} a client that is not recorded", grade=Grade.UNKNOWN, at=instant(end.at_ms), seqs=(end.seq,)
    )


def _waited_for_assignment(episode: Episode, rebalance: Rebalance, died: Went | CameBack) -> Statement:
    sync = rebalance.sync_phase
    assert sync is not None
    became = "ended before it sent it" if ending(episode, died) is Ending.ENDED else "was not heard from again"
    waited = f"all waited {duration(sync.duration_ms or 0)} for the assignment"
    return Statement(
        text=f"{waited}: the leader {process_name(died.member)} {became}",
        grade=Grade.INFERRED,
        at=sync.ended_at or rebalance.started_at,
        seqs=(rebalance.last_seq, died.seq),
    )


def _missing(gone: Sequence[Went], end: Phase, episode: Episode) -> list[str]:
    """Return phrases that name the members that did not join, and why.

    Only a few are named, since a group may lose all its members.
    """
    silent = [act.member for act in gone if act.how is Departure.EXPIRED]
    late = [act.member for act in gone if act.how is not Departure.EXPIRED]
    absent = [(member_id, episode.member(member_id)) for member_id in _absent_ids(end)]
    late += [member for _, member in absent if member is not None]
    words = [f"'{short_member_id(member_id)}', which {_LATE}" for member_id, member in absent if member is None]
    if late:
        words.insert(0, f"{processes(late)}, which {_LATE}")
    if silent:
        words.insert(0, f"{processes(silent)}, which {'was' if len(silent) == 1 else 'were'} not heard from again")
    return words


def _absent_ids(end: Phase) -> Sequence[MemberId]:
    """Return the static members that were kept although they did not rejoin before the join phase timed out."""
    return end.event.absent if isinstance(end.event, JoinPhaseCompleted) else ()


def _name(member_id: MemberId, episode: Episode) -> str:
    member = episode.member(member_id)
    return process_name(member) if member is not None else f"'{short_member_id(member_id)}'"


def _absent(end: Phase, episode: Episode) -> Iterator[Statement]:
    """State which static members were kept although they did not rejoin, and when they were last heard from."""
    event = end.event
    if not isinstance(event, JoinPhaseCompleted):
        return
    seen: dict[MemberId, int | None] = dict(zip(event.absent, event.absent_seen_ms, strict=False))
    for member_id in event.absent:
        if member_id not in seen:
            text, grade = "when it was last heard from is not recorded", Grade.UNKNOWN
        elif (seen_ms := seen[member_id]) is None:
            text, grade = "it had not been heard from since the coordinator changed", Grade.RECORDED
        else:
            text, grade = f"it was last heard from at {moment(seen_ms)}", Grade.RECORDED
        yield Statement(
            text=f"{_name(member_id, episode)} did not rejoin and kept its place, as a static member; {text}",
            grade=grade,
            at=instant(end.at_ms),
            seqs=(end.seq,),
        )
