"""Rewrite the harness's assertions, although its files are not named like test modules."""

import pytest

pytest.register_assert_rewrite(
    "tests.clients.crew",
    "tests.coordinator.group.client",
    "tests.coordinator.group.harness",
    "tests.coordinator.group.invariants",
    "tests.coordinator.serving",
)
