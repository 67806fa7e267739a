"""A member that asked for a new assignment with the subscription that it had."""

from collections.abc import Iterator

from muster.events.causes import Cause
from muster.replay.incidents.acts import Rejoined
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.naming import process_name
from muster.replay.incidents.windows import SECOND_ROUND_MS
from muster.replay.rebalances.rebalance import Rebalance
from muster.replay.rebalances.wording import plural
from muster.replay.times import instant

ENFORCED = Kind(
    "enforced",
    "A member's application (enforceRebalance) or an administrator asked for a rebalance.",
    "the member that asked; none if it was an administrator",
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

_ASKED = frozenset({Cause.METADATA_CHANGED, Cause.LEADER_REJOINED})


def find(view: View) -> Iterator[Claim]:
    """A member asked for a new assignment with the same subscription."""
    for act in view.free(Rejoined):
        if act.why.cause not in _ASKED:
            continue
        rebalance = view.episode.rebalance_of(act)
        if rebalance is None or rebalance.first_seq > act.seq:
            continue
        if act.why.client_reason and "enforce" in act.why.client_reason.lower():
            yield Claim(
                kind=ENFORCED,
                acts=(act,),
                culprits=(act.member,),
                grade=Grade.RECORDED,
                headline=(
                    f'{process_name(act.member)} asked for a rebalance; the client says: "{act.why.client_reason}"'
                ),
            )
            continue
        if _is_second_round(view, rebalance):
            continue
        if _follows_a_gap(view, rebalance):
            yield Claim(
                kind=ROUND,
                acts=(act,),
                culprits=(),
                grade=Grade.INFERRED,
                headline=(
                    f"{process_name(act.member)} rejoined to hand on what it had given up, as cooperative assignors do;"
                    " the round before is not in the log"
                ),
            )
            continue
        grown = _partitions_changed(rebalance)
        if grown is not None:
            yield Claim(
                kind=PARTITIONS,
                acts=(act,),
                culprits=(),
                grade=Grade.INFERRED,
                headline=f"{grown}: the leader {process_name(act.member)} rejoined with the same subscription for them",
                chain=(Statement(text=grown, grade=Grade.RECORDED, at=instant(act.at_ms), seqs=(act.seq,)),),
            )
            continue
        yield Claim(
            kind=ENFORCED,
            acts=(act,),
            culprits=(act.member,),
            grade=Grade.INFERRED,
            headline=(
                f"{process_name(act.member)} asked for a new assignment with the same subscription; why is not recorded"
            ),
        )


def _partitions_changed(rebalance: Rebalance) -> str | None:
    """'orders has 24 partitions instead of 12', if the assignments before and after it tell so."""
    movement = rebalance.movement
    if movement is None or not (movement.gained or movement.lost) or movement.undecodable:
        return None
    if rebalance.initial or movement.moved + movement.stayed == 0:
        return None
    before = movement.moved + movement.stayed + movement.lost
    after = movement.moved + movement.stayed + movement.gained
    changed = [move for move in movement.moves if not move.previous or not move.owner]
    topics = sorted({of.topic for move in changed for of in move.partitions})
    return f"{', '.join(topics)}: the group has {plural(after, 'partition')} instead of {before}"


def _follows_a_gap(view: View, rebalance: Rebalance) -> bool:
    """Whether a cooperative assignor's first round may be what is missing."""
    if "cooperative" not in (rebalance.protocol_name or ""):
        return False
    ages_ms = (_ms(rebalance) - each.position.timestamp_ms for each in view.episode.missing)
    return any(0 <= age_ms <= SECOND_ROUND_MS for age_ms in ages_ms)


def _is_second_round(view: View, rebalance: Rebalance) -> bool:
    """Whether it began right after another one, with a cooperative assignor."""
    position = view.episode.rebalances.index(rebalance)
    if position == 0 or "cooperative" not in (rebalance.protocol_name or ""):
        return False
    return _ms(rebalance) - _ms(view.episode.rebalances[position - 1]) <= SECOND_ROUND_MS


def _ms(rebalance: Rebalance) -> int:
    return rebalance.started_ms
