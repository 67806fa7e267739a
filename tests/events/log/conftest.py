"""Fixtures of event logs' tests. The contract is no test module by its name; its assertions are explained too."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    "tests.events.log.contract_reading", "tests.events.log.contract_writing", "tests.events.log.transitions"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path for a log in a file, which does not exist yet."""
    return tmp_path / "muster.db"
