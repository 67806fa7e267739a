"""Some damaged logs in every run, from a seed that is named when one goes wrong; `make damage` tries 2,000."""

import os
from random import SystemRandom

from tests.damage.answers import play

SEED = int(os.environ.get("MUSTER_TEST_SEED", SystemRandom().getrandbits(32)))
"""`MUSTER_TEST_SEED` plays a run again."""

LOGS = 25


def test_damage_is_reported_or_makes_no_difference() -> None:
    print(f"MUSTER_TEST_SEED={SEED}")
    outcomes = play(range(SEED, SEED + LOGS))
    assert outcomes["exit code 3"] > LOGS
    assert outcomes["exit code 0"] > LOGS / 5
