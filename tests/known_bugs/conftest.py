"""Assertions of the harness are rewritten, although its files do not have the names of test modules."""

import pytest

pytest.register_assert_rewrite(
    "tests.clients.crew",
    "tests.coordinator.group.client",
    "tests.coordinator.group.harness",
    "tests.coordinator.group.invariants",
    "tests.coordinator.serving",
)
