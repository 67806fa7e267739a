"""Tellers that know the truth, and spoil it: for tests of the judge, and to see what a count looks like."""

from collections.abc import Sequence

import msgspec

from muster.replay.fleet.simulation.world.truth import Knowable, RebalanceId, Truth
from tests.judge.case import Case
from tests.judge.telling import Grade, Telling


def repeated(case: Case) -> list[Telling]:
    """The truth as it should be reported: what cannot be known as unknown."""
    own = {each for truth in case.truths for each in truth.must}
    tellings = []
    for number, truth in enumerate(case.truths):
        nobodys = truth.may - own
        own |= nobodys
        tellings.append(_telling(case, number, truth, truth.must | nobodys))
    return tellings


def _telling(case: Case, number: int, truth: Truth, rebalances: frozenset[RebalanceId]) -> Telling:
    members: dict[str, str] = {name: member_id for member_id, name in case.names.items()}
    grades: dict[Knowable, Grade] = {Knowable.RECORDED: "recorded", Knowable.INFERRED: "inferred"}
    return Telling(
        key=str(number),
        kind=truth.kind,
        culprits=tuple(members.get(name, name) for name in sorted(truth.culprits or ())),
        span=(truth.starts[0][0], truth.ends[0][1]),
        rebalances=rebalances,
        parent=None if truth.parent is None else str(truth.parent),
        grade=grades.get(truth.knowable, "unknown"),
    )


def replaced(tellings: Sequence[Telling], number: int, **fields: object) -> list[Telling]:
    """The same reports, with these fields of one of them replaced."""
    changed = list(tellings)
    changed[number] = msgspec.structs.replace(changed[number], **fields)
    return changed
