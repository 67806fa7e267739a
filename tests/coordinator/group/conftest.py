"""Rewrite the harness's assertions, although its files are not named like test modules."""

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite(
    "tests.coordinator.group.client",
    "tests.coordinator.group.harness",
    "tests.coordinator.group.invariants",
    "tests.coordinator.group.world",
)

# `pytest --hypothesis-profile=deep` searches for longer than CI has time for.
settings.register_profile(
    "deep",
    max_examples=2_000,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
