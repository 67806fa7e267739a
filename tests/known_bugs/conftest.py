"""The harness and its like are no test modules by their names; their assertions are to be explained all the same."""

import pytest

pytest.register_assert_rewrite(
    "tests.clients.crew",
    "tests.coordinator.group.client",
    "tests.coordinator.group.harness",
    "tests.coordinator.group.invariants",
    "tests.coordinator.serving",
)
