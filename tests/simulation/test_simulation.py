"""Several processes on one log, in simulated time: nothing is lost, and no member is evicted, whatever happens."""

import math
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.simulation.broken_builds import (
    with_another_member_id,
    without_asking_the_owner,
    without_fence,
    without_heartbeat_reports,
    without_lease,
    without_outliving,
    without_taking_grants_back,
    without_waiting_for_durability,
)
from tests.simulation.run import never_happened, play, play_all
from tests.simulation.world import World

pytestmark = pytest.mark.timeout(1_200)  # half a minute each, of which a busy machine gives little

SEEDS = 60
BROKEN_WITHIN = 60
"""The number of schedules within which a broken build is noticed; a schedule in which it was noticed before is tried
first.
"""

_PLAYED = "from tests.simulation.run import play; print(play(9), play(10))"


@pytest.mark.parametrize("first", range(0, SEEDS, 30))
def test_no_schedule_breaks_an_invariant(first: int) -> None:
    """Crashes, pauses, cuts, late and repeated appends and clocks that are set break none of the invariants."""
    bad, counts = play_all(range(first, first + 30))
    assert not bad, bad[0]
    assert not never_happened(counts), counts


@pytest.mark.parametrize(
    ("broken", "seed", "number"),
    [
        (without_fence, 1, "1"),
        (without_waiting_for_durability, 0, "3"),
        (without_lease, 179, "4"),
        (without_outliving, 536, "8"),
        (without_asking_the_owner, 2, "8"),
        (without_taking_grants_back, 0, "10"),
        (without_heartbeat_reports, 4, "4"),
        (with_another_member_id, 41, "11"),
    ],
)
def test_a_build_without_a_safeguard_is_noticed(
    broken: Callable[[], AbstractContextManager[None]], seed: int, number: str
) -> None:
    """The simulation can fail: it finds what each safeguard is for, by the invariant of that number."""
    with broken():
        assert any(
            text.startswith(number) for tried in (seed, *range(BROKEN_WITHIN)) for text in play(tried).violations
        )


def test_a_reclaimed_instance_id_has_its_former_member_id() -> None:
    """The join is sent again to the next owner, under the same member id: meanwhile another process had taken its
    place.
    """
    assert not play(550101).violations


def test_a_seed_is_the_same_schedule_everywhere() -> None:
    """Two Pythons with other hashes play the same schedules to the same end."""
    played = {
        subprocess.run(
            [sys.executable, "-c", _PLAYED], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=60
        ).stdout
        for seed in ("1", "2")
    }
    assert len(played) == 1


def test_time_advances_for_a_timer_that_is_due_slightly_later() -> None:
    """Where clocks differ, a timer's due time may round to the present."""
    world = World(1)
    loop = world.new_loop("p")
    world.now_s = 1_025.0 - 2**-43
    loop.suspended_s = 5.6
    until_s = math.nextafter(loop.time(), math.inf)
    reached: list[float] = []

    def look() -> None:
        reached.append(loop.time())
        if loop.time() < until_s:
            loop.call_at(until_s, look)

    assert until_s + loop.suspended_s == world.now_s
    loop.call_soon(look)
    world.run_until(world.now_s + 1)
    assert reached[-1] >= until_s
    assert len(reached) < 10


def test_a_name_leads_to_the_process_still_listening_on_it() -> None:
    """When the later one of two processes with one node id ends, the other one is reached again."""
    assert not play(511165).violations


def test_a_schedule_ends_when_nothing_is_being_written() -> None:
    """The log then has what is in memory: here an append was in progress when all was first found well."""
    assert not play(512574).violations
