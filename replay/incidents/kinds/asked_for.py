"""A member that asked for a new assignment with the same subscription."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

from muster.events.causes import Cause
from muster.replay.incidents.episode.acts import Rejoined, members_of, topics_text
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.rounds import goes_on, is_soon_after
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import ASKED_NEXT_MS
from muster.replay.rebalances.rebalance import Outcome, PartitionMove, Rebalance
from muster.replay.rebalances.wording import clients_say, is_of_application, says_something
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, instant

ENFORCED = Kind(
    "enforced",
    "A member's application (enforceRebalance), an administrator, or Muster itself, by the group's config, asked for a"
    " rebalance.",
    "the member that asked; else none",
)
ROUND = Kind(
    "cooperative-round",
    "The second round of a cooperative assignor, if its first is not in the log: else it is part of that.",
    "none",
)
PARTITIONS = Kind(
    "partitions-changed",
    "Topics of the group got other partitions, and the leader asked for a new assignment.",
    "none of the members",
)
METADATA = Kind(
    "metadata-changed",
    "The leader's client says that what it knew of its topics changed; the log does not show other partitions.",
    "none of the members",
)

SAYS_METADATA_CHANGED = "cached metadata has changed"
"""The Java leader's reason when the partitions or racks of its topics differ from what it knew (KIP-800).

Since 4.0 also when it has forgotten its topics because it could not reach any broker (KIP-899).
"""

_GROWN_ADVICE = (
    "nothing to do: the new partitions have consumers now. A producer that chooses partitions by key may write a key to"
    " another partition than before"
)
_SHRUNK_ADVICE = (
    "find out who deleted or recreated the topic, if nobody was to: the records of these partitions are gone, and"
    " offsets that were committed for them no longer fit"
)
_METADATA_ADVICE = (
    "nothing to do if it happened once: the leader's client had lost and found its brokers, or their racks changed. If"
    " it happens again, look at the brokers, and at the network between them and the leader"
)

_NUMBER = re.compile(r"\d+")
"""The part of a client's reason that differs from one request to the next."""

_ASKED = frozenset({Cause.METADATA_CHANGED, Cause.LEADER_REJOINED})


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    """Find members that asked for a new assignment with an unchanged subscription; repeated requests are one
    incident.
    """
    enforced: defaultdict[Hashable, list[tuple[Rejoined, IncidentClaim]]] = defaultdict(list)
    for act in view.free(Rejoined):
        rebalance = view.episode.rebalance_of(act) if act.why.cause in _ASKED else None
        if rebalance is None:
            continue
        for claim in _claims(view, act, rebalance):
            if claim.kind is ENFORCED:
                enforced[view.episode.process_of(act.member).key, _NUMBER.sub("", claim.headline)].append((act, claim))
            else:
                yield claim
    for of_member in enforced.values():
        for run in runs(of_member, lambda run, each: each[0].at_ms - run[-1][0].at_ms <= ASKED_NEXT_MS):
            yield run[0][1] if len(run) == 1 else _folded([act for act, _ in run], run[0][1].grade)


def _folded(acts: Sequence[Rejoined], grade: Grade) -> IncidentClaim:
    """Return one claim for a member's repeated requests, whose reasons differ only in numbers."""
    first, last = acts[0], acts[-1]
    words = list(dict.fromkeys(act.why.client_reason for act in acts))
    said = ""
    if all(map(says_something, words)):
        said = f"; {client_word(first)}"
        if len(words) > 1:
            said += f', and the last time "{last.why.client_reason}"'
    what = "a rebalance" if grade is Grade.RECORDED else "a new assignment with the same subscription"
    span = duration(last.at_ms - first.at_ms)
    return IncidentClaim(
        kind=ENFORCED,
        acts=tuple(acts),
        culprits=members_of(acts),
        grade=grade,
        advice=(_advice(last),),
        headline=f"{process_name(first.member)} asked for {what} {len(acts)} times within {span}{said}",
        chain=tuple(
            Statement(
                text=f"{process_name(act.member)} asked the {which} time",
                grade=Grade.RECORDED,
                at=instant(act.at_ms),
                seqs=(act.seq,),
            )
            for which, act in (("first", first), ("last", last))
        ),
    )


def _claims(view: EpisodeView, act: Rejoined, rebalance: Rebalance) -> Iterator[IncidentClaim]:
    """Yield at most one claim."""
    shown = _shown_by(view, rebalance)
    grown = partitions_changed(shown)
    reason = act.why.client_reason
    if is_of_application(reason):
        words = f"a rebalance; {client_word(act)}{f'; {grown}' if grown else ''}"
        yield _asked_claim(act, Grade.RECORDED, words)
        return
    if _goes_on(view, rebalance):
        return
    if _follows_a_gap(view, rebalance):
        text = (
            f"{process_name(act.member)} rejoined to hand over the partitions that it had revoked, as cooperative"
            " assignors do; the round before is not in the log"
        )
        yield IncidentClaim(kind=ROUND, acts=(act,), culprits=(), grade=Grade.INFERRED, headline=text)
        return
    says_so = (reason or "").startswith(SAYS_METADATA_CHANGED)
    if grown is not None:
        yield _grown_claim(act, rebalance, shown, grown, Grade.RECORDED if says_so else Grade.INFERRED)
    elif says_so:
        yield _metadata_claim(act, shown)
    elif says_something(reason):  # its client rejoined on its own
        yield _asked_claim(act, Grade.INFERRED, f"a new assignment with the same subscription; {client_word(act)}")
    else:
        yield _asked_claim(act, Grade.INFERRED, "a new assignment with the same subscription; why is not recorded")


def _asked_claim(act: Rejoined, grade: Grade, what: str) -> IncidentClaim:
    text = f"{process_name(act.member)} asked for {what}"
    return IncidentClaim(
        kind=ENFORCED, acts=(act,), culprits=(act.member,), grade=grade, headline=text, advice=(_advice(act),)
    )


def _advice(act: Rejoined) -> str:
    reason = act.why.client_reason
    if is_of_application(reason):
        return (
            "look at where the application calls enforceRebalance() (Kafka Streams does so by itself), and at its log:"
            " each call makes the whole group rebalance"
        )
    if says_something(reason):
        return "its client rejoined by itself: look at its log before this"
    return (
        "look at the log of the leader before this: a leader rejoins when its metadata changed, or when the application"
        " asks; clients with JoinGroup v8 or later may say why (KIP-800)"
    )


def _shown_by(view: EpisodeView, rebalance: Rebalance) -> Rebalance:
    """Return the rebalance whose assignment shows the result: this one, or the next one with an assignment if it was
    superseded.
    """
    if rebalance.outcome is not Outcome.SUPERSEDED:
        return rebalance
    return view.episode.next_assigned(rebalance) or rebalance


def _metadata_claim(act: Rejoined, shown: Rebalance) -> IncidentClaim:
    """Claim a metadata change that only the client's reason shows."""
    leader = f"the leader {process_name(act.member)}"
    return IncidentClaim(
        kind=METADATA,
        acts=(act,),
        culprits=(),
        grade=Grade.RECORDED,
        headline=f"{leader} asked for a new assignment; {client_word(act)}; {_partitions_text(shown)}",
        advice=(_METADATA_ADVICE,),
    )


def client_word(act: Rejoined) -> str:
    """'the client says: "..."'."""
    return clients_say([act.why.client_reason])


def _partitions_text(shown: Rebalance) -> str:
    movement = shown.movement
    if movement is None or movement.undecodable:
        return "whether its topics have other partitions is not in the log"
    if movement.gained or movement.lost:
        return "no partition was assigned before, so whether its topics have others is not known"
    return "the same partitions were assigned as before"


def _grown_claim(act: Rejoined, rebalance: Rebalance, shown: Rebalance, grown: str, grade: Grade) -> IncidentClaim:
    leader = f"the leader {process_name(act.member)}"
    return IncidentClaim(
        kind=PARTITIONS,
        acts=(act,),
        culprits=(),
        grade=grade,
        headline=f"{grown}: {leader} rejoined with the same subscription for that",
        advice=(_SHRUNK_ADVICE if shown.movement is not None and shown.movement.lost else _GROWN_ADVICE,),
        chain=(
            Statement(
                text=f"{leader} rejoined, still subscribed to {topics_text(act.member)}",
                grade=Grade.RECORDED,
                at=instant(act.at_ms),
                seqs=(act.seq,),
            ),
            Statement(
                text=f"before and after this rebalance: {grown}",
                grade=Grade.RECORDED,
                at=shown.ended_at,
                seqs=(rebalance.first_seq, shown.last_seq),
            ),
        ),
    )


def partitions_changed(rebalance: Rebalance) -> str | None:
    """'orders has 24 partitions instead of 12', if the assignments before and after it show that."""
    movement = rebalance.movement
    if movement is None or not (movement.gained or movement.lost) or movement.undecodable:
        return None
    if rebalance.initial or movement.moved + movement.stayed == 0:
        return None
    gained = _by_topic(move for move in movement.moves if not move.previous)
    lost = _by_topic(move for move in movement.moves if not move.owner)
    return "; ".join(_grown(topic, gained[topic], lost[topic]) for topic in sorted({*gained, *lost}))


def _by_topic(moves: Iterable[PartitionMove]) -> defaultdict[str, set[int]]:
    found: defaultdict[str, set[int]] = defaultdict(set)
    for of in (of for move in moves for of in move.partitions):
        found[of.topic].update(of.partitions)
    return found


def _grown(topic: str, gained: set[int], lost: set[int]) -> str:
    """Describe a topic's change. Partitions are numbered from 0, so the first new number is the former count."""
    if gained and not lost and gained == set(range(min(gained), max(gained) + 1)):
        if min(gained) == 0:
            return f"{topic} is new to the group, with {plural(len(gained), 'partition')}"
        return f"{topic} has {plural(max(gained) + 1, 'partition')} instead of {min(gained)}"
    if lost and not gained and 0 in lost:
        return f"{topic} is gone, with {plural(len(lost), 'partition')}"
    if lost and not gained and lost == set(range(min(lost), max(lost) + 1)):
        return f"{topic} has {plural(min(lost), 'partition')} instead of {max(lost) + 1}"
    return f"{topic} has {len(gained)} partitions more and {len(lost)} fewer"


def _follows_a_gap(view: EpisodeView, rebalance: Rebalance) -> bool:
    """Return whether the missing part may be the first round of a cooperative assignor."""
    return any(
        hole.to_ms <= rebalance.started_ms and is_soon_after(hole.to_ms, rebalance) for hole in view.episode.holes
    )


def _goes_on(view: EpisodeView, rebalance: Rebalance) -> bool:
    position = view.episode.rebalances.index(rebalance)
    return position > 0 and goes_on(view.episode.rebalances[position - 1], rebalance)
