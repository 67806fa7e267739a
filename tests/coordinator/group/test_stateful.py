"""Random sequences of requests, pauses and takeovers keep the invariants, and no request waits for ever.

`pytest --hypothesis-profile=deep tests/coordinator/group/test_stateful.py` searches for longer.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muster.coordinator.group.settings import INT32_MAX
from tests.coordinator.group.harness import DELAY_MS
from tests.coordinator.group.world import STEPS, World

NUMBERS = st.integers(min_value=0, max_value=44)


class GroupMachine(RuleBasedStateMachine):
    """One rule for each step of the world."""

    world: World

    late_ms = 0
    """How long the machine stalls at each deadline after all clients have fallen silent."""

    @initialize(
        max_size=st.sampled_from([INT32_MAX, 3, 2]),
        delay_ms=st.sampled_from([DELAY_MS, 0]),
        late_ms=st.sampled_from([0, 1_500, 100_000]),
    )
    def begin(self, max_size: int, delay_ms: int, late_ms: int) -> None:
        self.world, self.late_ms = World(max_size=max_size, delay_ms=delay_ms), late_ms

    @invariant()
    def nobody_waits_for_too_long(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish(late_ms=self.late_ms)


def _rule(step: Callable[[World, int, int], None]) -> Callable[..., Any]:
    def take(self: GroupMachine, i: int, j: int) -> None:
        step(self.world, i, j)

    take.__name__ = step.__name__
    return rule(i=NUMBERS, j=NUMBERS)(take)


for _step in STEPS:
    setattr(GroupMachine, _step.__name__, _rule(_step))

TestGroup = GroupMachine.TestCase
if settings.get_current_profile_name() != "deep":
    TestGroup.settings = settings(
        max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
