"""Divides an episode into incidents; each act belongs to at most one, each rebalance to exactly one.

claims       the kinds claim acts in order of precedence; a kind may hold a rebalance that an incident of another kind
             started
rebalances   a rebalance belongs to the incident that holds it, else to the one that claimed its trigger, unless that
             one was an orderly end and another incident emptied the group. The next round of a cooperative assignor,
             and a rebalance that a leader requests right after another, belong to the previous rebalance's incident.
             Any other rebalance belongs to the first incident that claimed one of its acts, or else to one of kind
             unknown
parents      an incident within a longer one that affects many processes has the longer one as its parent
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from muster.events.causes import Cause
from muster.events.ids import GroupId
from muster.events.state import Member
from muster.replay.history.items import Broken, Gap
from muster.replay.history.wording import missing_text
from muster.replay.incidents.cost import cost_of, empty_ms, outside, partition_time, partitions_had
from muster.replay.incidents.episode.acts import AnyAct, AskedFor, CameBack, Departure, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.episode.holes import Hole, is_within_events, may_hide_other_half
from muster.replay.incidents.evidence.naming import refs
from muster.replay.incidents.evidence.standbys import call_for, calls
from muster.replay.incidents.evidence.subscriptions import given_up as gave_up
from muster.replay.incidents.evidence.waiting import awaited_in_vain, died_assigning, held_ms, sync_held_ms, waits
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Cost, Incident, Statement
from muster.replay.incidents.kinds import PRECEDENCE, UNKNOWN, coordinator_outage, duel, group_end, scale_down
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim
from muster.replay.incidents.rounds import goes_on
from muster.replay.incidents.windows import ACTS_MAX, QUIET_MS, SAME_MOMENT_MS
from muster.replay.rebalances.rebalance import MemberRef, Outcome, Rebalance
from muster.replay.text.times import duration, instant

CHILDREN: Final = {
    "crash": frozenset({"deployment", "blue-green"}),
    "stopped": frozenset({"deployment", "blue-green"}),
    "slow-member": frozenset({"deployment"}),
}
"""Kinds that can be part of an incident of these other kinds: a process died, or was slow, while others were being
replaced.
"""
PARENTS: Final[frozenset[str]] = frozenset().union(*CHILDREN.values())

ORDERLY_ENDS: Final = frozenset(
    kind.name for kind in (scale_down.DOWN, scale_down.SHUTDOWN, group_end.DELETED, group_end.EXPIRED)
)
"""Kinds after which a group is intentionally empty."""

OF_COORDINATOR: Final = frozenset({coordinator_outage.OUTAGE.name, coordinator_outage.CHANGE.name})
"""Kinds in which members rejoin because the coordinator was unavailable; their processes were not restarted."""

SPLIT: Final = (
    f"within less than {duration(QUIET_MS)} of each other there was more than is looked at together ({ACTS_MAX:,} acts"
    " of members): it is told in parts, and what belongs together may be in two of them"
)
"""The note on each incident of an episode that was split."""


class _Draft:
    """An incident under construction."""

    def __init__(self, claim: IncidentClaim, number: int) -> None:
        self.name = claim.kind.name
        self.claim = claim
        self.number = number
        self.rebalances: list[Rebalance] = list(claim.held)
        self.emptied: list[Rebalance] = []
        """The rebalances in which this incident emptied the group, including those of other incidents."""

    @property
    def seqs(self) -> list[int]:
        return [*(act.seq for act in self.claim.acts), *(each.first_seq for each in self.rebalances)]

    @property
    def begin_ms(self) -> int:
        if self.claim.began_ms is not None:
            return self.claim.began_ms
        if self.rebalances:
            return min(each.started_ms for each in self.rebalances)
        if self.claim.at_ms is not None:
            return self.claim.at_ms
        return min((act.since_ms for act in self.claim.acts), default=0)

    @property
    def since_ms(self) -> int:
        """The earliest time that belongs to the incident: for a silence, when the member was last heard from."""
        return min((act.since_ms for act in self.claim.acts), default=self.begin_ms)

    @property
    def end_ms(self) -> int | None:
        """The end of its last rebalance, or of its last act if it has none; None while a rebalance is running."""
        if not self.rebalances:
            ends = [act.at_ms for act in self.claim.acts]
            return max([*ends, self.claim.until_ms] if self.claim.until_ms else ends, default=self.claim.at_ms)
        if any(each.outcome is Outcome.RUNNING for each in self.rebalances):
            return None
        return max(each.ended_ms for each in self.rebalances)

    @property
    def last_ms(self) -> float:
        """When its last act or rebalance ended, even if that act is in another incident's rebalance."""
        if self.end_ms is None:
            return math.inf
        return max(self.end_ms, *(act.at_ms for act in self.claim.acts))


def incidents_of(episode: Episode, group_id: GroupId, *, chained: bool = True) -> list[Incident]:
    """Return an episode's incidents, in the order in which they began. `chained`: with their chains of statements."""
    drafts = _claimed(episode)
    if episode.holes:
        drafts.append(_Draft(_missed([hole.part for hole in episode.holes]), len(drafts)))
    _share_out(episode, drafts)
    _blame_for_emptiness(episode, drafts)
    drafts.sort(key=lambda draft: (draft.begin_ms, draft.number))
    ids = _ids(drafts, episode)
    parents = [draft for draft in drafts if draft.name in PARENTS]
    told = [_incident(draft, ids, _parent(draft, parents), episode, group_id) for draft in drafts]
    if not chained:
        return told
    return [
        msgspec.structs.replace(incident, chain=_chain(draft, episode))
        for incident, draft in zip(told, drafts, strict=True)
    ]


def _ids(drafts: Iterable[_Draft], episode: Episode) -> dict[int, str]:
    """Return ids made of incarnation, first seq and kind; incidents with the same first event are numbered."""
    ids: dict[int, str] = {}
    times: Counter[str] = Counter()
    for draft in drafts:
        own = f"{_incarnation(draft, episode)}-{min(draft.seqs, default=draft.begin_ms)}-{draft.name}"
        times[own] += 1
        ids[id(draft)] = own if times[own] == 1 else f"{own}-{times[own]}"
    return ids


def _claimed(episode: Episode) -> list[_Draft]:
    view = EpisodeView(episode)
    drafts: list[_Draft] = []
    for find, _ in PRECEDENCE:
        for found in find(view):
            claim = _with_unfit_standbys(found, view)
            view.take(claim)
            drafts.append(_Draft(claim, len(drafts)))
    return drafts


def _with_unfit_standbys(claim: IncidentClaim, view: EpisodeView) -> IncidentClaim:
    """Add the rebalances that standbys began which were called for a lost leader, but whose clients are too old."""
    lost = [act for act in claim.acts if isinstance(act, Went)]
    called = {call.member.member_id for act in lost if (call := call_for(view.episode, act)) is not None}
    if not called:
        return claim
    unfit = [act for act in view.free(AskedFor) if act.cause is Cause.STANDBY_UNFIT and act.why.member_id in called]
    return msgspec.structs.replace(claim, acts=tuple(sorted((*claim.acts, *unfit), key=lambda act: act.seq)))


def _share_out(episode: Episode, drafts: list[_Draft]) -> None:
    """Assign each rebalance to an incident."""
    by_seq = {act.seq: draft for draft in drafts for act in draft.claim.acts}
    held = {id(each) for draft in drafts for each in draft.claim.held}
    previous: tuple[Rebalance, _Draft] | None = None
    for rebalance in episode.rebalances:
        if id(rebalance) in held:
            previous = rebalance, next(draft for draft in drafts if any(each is rebalance for each in draft.rebalances))
            continue
        draft = _holder(rebalance, episode, by_seq) or by_seq.get(rebalance.trigger.seq)
        if draft is None and previous is not None and goes_on(previous[0], rebalance):
            draft = previous[1]
        draft = draft or _first_within(rebalance, by_seq)
        if draft is None and previous is not None and previous[0].outcome is Outcome.SUPERSEDED:
            draft = previous[1]
        if draft is None:
            draft = _Draft(_unexplained(rebalance), len(drafts))
            drafts.append(draft)
        draft.rebalances.append(rebalance)
        previous = rebalance, draft


def _blame_for_emptiness(episode: Episode, drafts: Sequence[_Draft]) -> None:
    """Charge each rebalance that ended in an empty group to the incident that emptied the group.

    That is the last incident, other than an orderly end, whose members left during the rebalance, no matter which
    incident started it. A rebalance that an orderly end started moves to that incident, unless a claim holds it.
    """
    by_seq = {act.seq: draft for draft in drafts for act in draft.claim.acts}
    owners = {id(each): draft for draft in drafts for each in draft.rebalances}
    for rebalance in episode.rebalances:
        if rebalance.outcome is not Outcome.EMPTIED:
            continue
        went = [act.seq for act in episode.within(rebalance) if isinstance(act, Went)]
        owner = owners[id(rebalance)]
        theirs = [by_seq[seq] for seq in reversed(went) if seq in by_seq] or [owner]
        blamed = next((draft for draft in theirs if draft.name not in ORDERLY_ENDS), None)
        if blamed is None:
            continue
        blamed.emptied.append(rebalance)
        if owner.name in ORDERLY_ENDS and not any(each is rebalance for each in owner.claim.held):
            owner.rebalances = [each for each in owner.rebalances if each is not rebalance]
            blamed.rebalances.append(rebalance)


def _first_within(rebalance: Rebalance, by_seq: dict[int, _Draft]) -> _Draft | None:
    return next((by_seq[seq] for seq in range(rebalance.first_seq, rebalance.last_seq + 1) if seq in by_seq), None)


def _holder(rebalance: Rebalance, episode: Episode, by_seq: dict[int, _Draft]) -> _Draft | None:
    """Return the incident of the member that prolonged the join phase, or the leader that prolonged the sync phase.

    The phase waited for that member in vain. If a deployment began the rebalance, the rebalance stays with it even if a
    leader crashed meanwhile.
    """
    began = by_seq.get(rebalance.trigger.seq)
    died = None if sync_held_ms(rebalance) is None else died_assigning(episode, rebalance)
    if died is not None:
        holders = [] if began is not None and began.name in PARENTS else [died]
    else:
        holders = [] if held_ms(rebalance) is None else awaited_in_vain(rebalance, episode)
    drafts = [by_seq[act.seq] for act in holders if act.seq in by_seq]
    return began if began in drafts else next(iter(drafts), None)


def _unexplained(rebalance: Rebalance) -> IncidentClaim:
    text = rebalance.trigger.text
    return IncidentClaim(
        kind=UNKNOWN, acts=(), culprits=(), grade=Grade.UNKNOWN, headline=text, at_ms=rebalance.started_ms
    )


def _missed(missing: Sequence[Gap | Broken]) -> IncidentClaim:
    count = sum(1 + each.more if isinstance(each, Broken) else 1 for each in missing)
    others = f", and {count - 1} more" if count > 1 else ""
    text = f"what happened is not known: {missing_text(missing[0])}{others}"
    at_ms = missing[0].position.timestamp_ms
    return IncidentClaim(kind=UNKNOWN, acts=(), culprits=(), grade=Grade.UNKNOWN, headline=text, at_ms=at_ms)


def _parent(draft: _Draft, parents: Sequence[_Draft]) -> _Draft | None:
    """Return the incident within which this one happened: the first that began before it and lasted longer."""
    names = CHILDREN.get(draft.name, ())
    for other in (each for each in parents if each.name in names):
        last_ms = other.last_ms
        if _were_replaced(draft, other):  # each may have lived up to a heartbeat interval longer, past the other's end
            last_ms -= SAME_MOMENT_MS
        if other.since_ms <= draft.begin_ms and draft.since_ms <= last_ms:
            return other
    return None


def _were_replaced(draft: _Draft, other: _Draft) -> bool:
    """Return whether all culprits are also culprits of the other incident."""
    members = {each.member_id for each in other.claim.culprits}
    return all(each.member_id in members for each in draft.claim.culprits)


def _incident(
    draft: _Draft, ids: dict[int, str], parent: _Draft | None, episode: Episode, group_id: GroupId
) -> Incident:
    claim = draft.claim
    rebalances = sorted(draft.rebalances, key=lambda each: each.first_seq)
    end_ms = draft.end_ms
    return Incident(
        id=ids[id(draft)],
        group_id=group_id,
        kind=draft.name,
        grade=claim.grade,
        headline=claim.headline,
        culprits=refs(_distinct(claim)),
        affected=refs(claim.affected),
        started_at=instant(draft.begin_ms),
        ended_at=None if end_ms is None else instant(end_ms),
        rebalances=tuple(rebalances),
        parent=None if parent is None else ids[id(parent)],
        chain=(),
        cost=_cost(draft, rebalances, episode),
        advice=claim.advice,
        notes=_notes(draft, episode),
    )


def _cost(draft: _Draft, rebalances: Sequence[Rebalance], episode: Episode) -> Cost:
    # In a duel, taking over the instance id is not a restart, and its holder is alive.
    acts = () if draft.name == duel.KIND.name else draft.claim.acts
    return cost_of(
        rebalances,
        silent_ms=(_silent_ms(act, episode) for act in acts),
        empty_partition_ms=sum(empty_ms(each, episode) for each in draft.emptied),
        unassigned_partition_ms=draft.claim.unassigned_partition_ms,
        restarts_absorbed=0 if draft.name in OF_COORDINATOR else sum(_is_restart(act, episode) for act in acts),
    )


def _is_restart(act: AnyAct, episode: Episode) -> bool:
    """Return whether a static member came back without a rebalance, and not on its former connection."""
    if not isinstance(act, CameBack) or not act.absorbed:
        return False
    return not episode.connections.are_same_process(act.replaced_member_id, act.member.member_id)


def _silent_ms(act: AnyAct, episode: Episode) -> int | None:
    """Return the partition time (ms) during which members were silent outside of rebalances; None if not known."""
    if isinstance(act, Went) and act.is_silent and not episode.silence_of(act).is_known:
        return 0 if partitions_had(act.member) == 0 else None
    member = _silent_member(act, episode)
    if not isinstance(act, Went | CameBack) or member is None:
        return 0
    from_ms, until_ms = act.last_seen_ms, act.at_ms
    if episode.was_away(from_ms, until_ms):
        return 0 if partitions_had(member) == 0 else None  # no coordinator could have heard it then
    return partition_time(
        partitions_had(member), outside(from_ms, until_ms, episode.rebalances_between(from_ms, until_ms))
    )


def _silent_member(act: AnyAct, episode: Episode) -> Member | None:
    """Return the member whose silence ended with the act; None if it was alive, or the start of its silence is not
    known.
    """
    if isinstance(act, CameBack):
        return act.before if act.heard and not episode.fenced_after(act) else None
    if not isinstance(act, Went) or not episode.silence_of(act).is_known:
        return None
    return act.member if act.is_silent or _had_ended(act) else None


def _had_ended(went: Went) -> bool:
    """Return whether a member that was removed for another reason had been silent for longer than ever before."""
    is_removed = went.how in (Departure.REMOVED, Departure.PLANNED)
    return is_removed and went.at_ms - went.last_seen_ms > max(SAME_MOMENT_MS, went.longest_silence_ms)


def _chain(draft: _Draft, episode: Episode) -> tuple[Statement, ...]:
    """Return the incident's statements in order of time."""
    claim = draft.claim
    rebalances = sorted(draft.rebalances, key=lambda each: each.first_seq)
    told = (*claim.chain, *calls(episode, claim.acts), *_told(rebalances, episode))
    return tuple(sorted(told, key=lambda each: each.at or ""))


def _notes(draft: _Draft, episode: Episode) -> tuple[str, ...]:
    """Return notes, once each: the episode was split, missing parts that may affect it, its rebalances' notes."""
    missing = (missing_text(hole.part) for hole in episode.holes if _can_touch(hole, draft, episode))
    split = (SPLIT,) if episode.is_split else ()
    return tuple(dict.fromkeys((*split, *missing, *(note for each in draft.rebalances for note in each.notes))))


def _can_touch(hole: Hole, draft: _Draft, episode: Episode) -> bool:
    """Return whether the missing part may affect the incident."""
    acts = draft.claim.acts
    if not draft.seqs:
        return draft.name == UNKNOWN.name or hole.is_within(draft.begin_ms, draft.end_ms)
    alone = (act for act in acts if act.seq not in episode.paired_seqs)
    return is_within_events(hole, acts, draft.rebalances) or any(may_hide_other_half(hole, act) for act in alone)


def _distinct(claim: IncidentClaim) -> Iterable[Member | MemberRef]:
    """Return the distinct culprits. A refused client has no member id yet, so its names identify it."""
    return {
        each.member_id or (each.group_instance_id, each.client_id, each.client_host): each for each in claim.culprits
    }.values()


def _told(rebalances: Iterable[Rebalance], episode: Episode) -> Iterator[Statement]:
    """Yield statements about the rebalances: the trigger of each, and the members that it waited for."""
    for each in rebalances:
        yield Statement(
            text=f"generation {each.from_generation} -> {each.to_generation or '?'}: {each.trigger.text}",
            grade=Grade.RECORDED,
            at=each.started_at,
            seqs=(each.first_seq, each.last_seq),
        )
        yield from waits(each, episode)
        if "cooperative" in (each.protocol_name or ""):
            yield from gave_up(each, episode)


def _incarnation(draft: _Draft, episode: Episode) -> int:
    if draft.rebalances:
        return draft.rebalances[0].incarnation
    return episode.after.incarnation if episode.after is not None else 0
