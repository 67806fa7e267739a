"""Tellers that know the truth, and spoil it: for tests of the judge, and to see what a count looks like."""

from collections.abc import Sequence

import msgspec

from tests.judge.case import Case
from tests.judge.telling import Grade, Telling
from tests.judge.truth import Knowable, Truth


def repeated(case: Case) -> list[Telling]:
    """The truth as it should be told: what cannot be known as unknown."""
    return [_telling(case, number, truth) for number, truth in enumerate(case.truths)]


def _telling(case: Case, number: int, truth: Truth) -> Telling:
    members: dict[str, str] = {name: member_id for member_id, name in case.names.items()}
    grades: dict[Knowable, Grade] = {Knowable.RECORDED: "recorded", Knowable.INFERRED: "inferred"}
    return Telling(
        key=str(number),
        kind=truth.kind,
        culprits=tuple(members.get(name, name) for name in sorted(truth.culprits or ())),
        span=(truth.starts[0][0], truth.ends[0][1]),
        rebalances=truth.must,
        parent=None if truth.parent is None else str(truth.parent),
        grade=grades.get(truth.knowable, "unknown"),
    )


def replaced(tellings: Sequence[Telling], number: int, **fields: object) -> list[Telling]:
    """The same, but for these fields of one of them."""
    changed = list(tellings)
    changed[number] = msgspec.structs.replace(changed[number], **fields)
    return changed
