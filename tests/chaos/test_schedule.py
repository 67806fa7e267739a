"""Faults are made from a seed: all kinds come before one comes again, and a seed gives the same ones each time."""

import pytest

from tests.chaos.schedule import Kind, schedule
from tests.chaos.service import Mode


@pytest.mark.parametrize("mode", Mode)
def test_a_seed_gives_its_faults_and_all_kinds_come(mode: Mode) -> None:
    ways = {(each.kind, each.whom, each.other) for each in schedule(1, 100, mode)}
    begin = schedule(1, len(ways), mode)
    assert {(each.kind, each.whom, each.other) for each in begin} == ways
    assert {each.kind for each in begin} == set(Kind)
    assert begin == schedule(1, len(ways), mode) != schedule(2, len(ways), mode)


def test_a_run_may_have_some_kinds_alone() -> None:
    assert {each.kind for each in schedule(1, 20, Mode.SIDECAR, frozenset({Kind.KILL}))} == {Kind.KILL}
