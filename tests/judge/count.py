"""Scores reports against the ground truth.

Each truth is matched with at most one report, by the rebalances that both have, then by kind, culprits and span. Then:

    right       kind, culprits, span (within 1 s), rebalances and parent match, and it is reported once and alone; a
                rebalance that might belong to either of two truths is in the report of one of them
    abstained   reported as unknown; right only if the log cannot show it
    merged      its report has rebalances of another truth
    split       its rebalances are in further reports, or another report has the same kind and culprits
    missed      not reported
    false       asserted (graded recorded or inferred) and wrong: another kind, or an innocent culprit, or merged; or a
                report of something that was not done
    overclaimed asserted although the log cannot show it, and true by chance; not right
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from muster.events.ids import MemberId
from muster.replay.fleet.simulation.world.truth import Knowable, Range, RebalanceId, Truth
from tests.judge.case import Case
from tests.judge.telling import Telling

SPAN_WITHIN_MS: Final = 1_000

PARTS: Final[dict[str, frozenset[str]]] = {
    "deployment": frozenset({"restart"}),
    "crash-loop": frozenset({"restart"}),
    "blue-green": frozenset({"scale-up", "scale-down"}),
    "shutdown": frozenset({"scale-down"}),
    "assignor-change": frozenset({"restart", "deployment"}),
}
"""Kinds that are true for a part of an incident: reported instead of the whole, the incident is split, not false."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one truth, or (`truth` is None) on a report that matches none. See the module."""

    seed: int
    scenario: str
    truth: int | None
    kind: str
    knowable: Knowable
    counts: bool
    """False if it need not be reported: then only false statements about it count."""
    is_right: bool = False
    kind_is_right: bool = False
    culprits_are_exact: bool = False
    span_is_right: bool = False
    parent_is_right: bool = False
    is_merged: bool = False
    is_split: bool = False
    is_missed: bool = False
    has_abstained: bool = False
    is_overclaimed: bool = False
    is_false: bool = False
    told: str = ""


def count(case: Case, tellings: Sequence[Telling]) -> list[Verdict]:
    """Return the verdicts on a case: one for each truth, and one for each report that matches none."""
    matched = _match(case, tellings)
    verdicts = [_verdict(case, number, matched, tellings) for number in range(len(case.truths))]
    used = {telling.key for telling in matched.values()}
    for telling in tellings:
        is_part = any(_is_part(case, truth, telling) for truth in case.truths)
        if telling.key not in used and not telling.abstains and not is_part:
            verdicts.append(
                Verdict(
                    seed=case.seed,
                    scenario=case.scenario,
                    truth=None,
                    kind=telling.kind,
                    knowable=Knowable.RECORDED,
                    counts=False,
                    is_false=True,
                    told=_described(case, telling),
                )
            )
    return verdicts


# ---- matching ----------------------------------------------------------------------------------


def _match(case: Case, tellings: Sequence[Telling]) -> dict[int, Telling]:
    """Match each truth with its report, if there is one; the likeliest pairs first."""
    pairs = [
        (_likeness(case, truth, telling), number, place)
        for number, truth in enumerate(case.truths)
        for place, telling in enumerate(tellings)
    ]
    matched: dict[int, Telling] = {}
    taken: set[int] = set()
    for likeness, number, place in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if likeness > 0 and number not in matched and place not in taken:
            matched[number] = tellings[place]
            taken.add(place)
    return matched


def _likeness(case: Case, truth: Truth, telling: Telling) -> int:
    """Return 0 if the report cannot be about this truth."""
    own, perhaps = len(telling.rebalances & truth.must), len(telling.rebalances & truth.may)
    is_kind, is_theirs = telling.kind in truth.kinds, _are_exact(case, truth, telling)
    touches = _touches(truth, telling)
    have_none = not truth.must and not telling.rebalances
    has_others = bool(truth.must and telling.rebalances and not own and not perhaps)
    may_be = touches and not has_others and (is_kind or have_none or bool(perhaps and telling.abstains))
    if not own and not may_be:
        return 0
    return 1 + 8 * own + 2 * perhaps + 6 * is_kind + 6 * is_theirs + 3 * _spans(truth, telling)


def _touches(truth: Truth, telling: Telling) -> bool:
    """Return whether the spans overlap, or nearly."""
    began_ms, ended_ms = telling.span
    first_ms, last_ms = truth.extent[0] - SPAN_WITHIN_MS, truth.extent[1] + SPAN_WITHIN_MS
    return began_ms <= last_ms and (ended_ms is None or ended_ms >= first_ms)


def _is_part(case: Case, truth: Truth, telling: Telling) -> bool:
    """Return whether the report is true for a part of what was done."""
    kinds = {*truth.kinds, *PARTS.get(truth.kind, ())}
    if telling.kind not in kinds or not (truth.culprits is None or _names(case, telling) <= truth.culprits):
        return False
    return bool(telling.rebalances & (truth.must | truth.may)) or _touches(truth, telling)


# ---- one truth ---------------------------------------------------------------------------------


def _verdict(case: Case, number: int, matched: dict[int, Telling], tellings: Sequence[Telling]) -> Verdict:
    truth, telling = case.truths[number], matched.get(number)
    verdict = Verdict(
        seed=case.seed,
        scenario=case.scenario,
        truth=number,
        kind=truth.kind,
        knowable=truth.knowable,
        counts=not truth.is_optional,
        is_missed=telling is None,
    )
    if telling is None:
        return verdict
    used = {each.key for each in matched.values()}
    others = [each for each in tellings if each.key != telling.key]
    is_split = any(
        each.rebalances & truth.must or (each.key not in used and _is_part(case, truth, each)) for each in others
    )
    theirs = {each for place, other in enumerate(case.truths) if place != number for each in other.must}
    is_merged = bool(telling.rebalances & (theirs - truth.must - truth.may))
    kind_is_right, are_exact = telling.kind in truth.kinds, _are_exact(case, truth, telling)
    span_is_right, parent_is_right = _spans(truth, telling), _parent_is_right(case, truth, telling, matched)
    reported = frozenset[RebalanceId]().union(*(each.rebalances for each in tellings))
    is_whole = truth.must <= telling.rebalances <= truth.must | truth.may and truth.may <= reported
    is_so = kind_is_right and are_exact and span_is_right and parent_is_right and is_whole
    is_so = is_so and not is_split and not is_merged
    asserts = not telling.abstains
    is_part = _is_part(case, truth, telling)
    unknowable = truth.knowable is Knowable.UNKNOWABLE
    return msgspec.structs.replace(
        verdict,
        is_right=not asserts if unknowable else asserts and is_so,
        kind_is_right=kind_is_right,
        culprits_are_exact=are_exact,
        span_is_right=span_is_right,
        parent_is_right=parent_is_right,
        is_merged=is_merged,
        is_split=is_split or (is_part and not kind_is_right),
        has_abstained=not asserts,
        is_overclaimed=unknowable and asserts,
        is_false=asserts and (not is_part or is_merged),
        told=_described(case, telling),
    )


def _are_exact(case: Case, truth: Truth, telling: Telling) -> bool:
    return truth.culprits is None or _names(case, telling) == truth.culprits


def _names(case: Case, telling: Telling) -> frozenset[str]:
    """Return the processes that are named. An instance id is its process's name; an unknown id is left as it is."""
    return frozenset(case.names.get(MemberId(each), each) for each in telling.culprits)


def _spans(truth: Truth, telling: Telling) -> bool:
    began_ms, ended_ms = telling.span
    return ended_ms is not None and _is_within(began_ms, truth.starts) and _is_within(ended_ms, truth.ends)


def _is_within(at_ms: int, ranges: tuple[Range, ...]) -> bool:
    return any(from_ms - SPAN_WITHIN_MS <= at_ms <= to_ms + SPAN_WITHIN_MS for from_ms, to_ms in ranges)


def _parent_is_right(case: Case, truth: Truth, telling: Telling, matched: dict[int, Telling]) -> bool:
    if truth.parent is None:
        return telling.parent is None or truth.is_optional
    parent = matched.get(truth.parent)
    if parent is None and case.truths[truth.parent].is_optional:
        return telling.parent is None
    return parent is not None and telling.parent == parent.key


def _described(case: Case, telling: Telling) -> str:
    names = ", ".join(sorted(_names(case, telling))) or "nobody"
    generations = ", ".join(str(generation) for _, generation in sorted(telling.rebalances)) or "none"
    began_ms, ended_ms = telling.span
    span = f"{began_ms} to {ended_ms}"
    return f"{telling.kind} ({telling.grade}) by {names}, {span}, rebalances to {generations}"
