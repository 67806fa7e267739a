"""`--quick`: what one runs after each edit, as a pytest plugin. No broker, no client of others, no process that serves.

What belongs here: which tests are left out, in one place. A test that asks for Java or a container all the same fails,
in a quick run alone.
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.brokers.jars import NO_BROKERS_VARIABLE

ROOT: Final = Path(__file__).parents[1]
MARKERS_LEFT_OUT: Final = ("broker", "clients", "spark")
# Brokers and clients, whole processes, schedules by the hundred, and requests of their full size.
LEFT_OUT: Final = (
    "tests/brokers",
    "tests/clients",
    "tests/conformance",
    "tests/coordinator/commands",
    "tests/coordinator/group/test_cost.py",
    "tests/coordinator/observability/test_log_lines.py",
    "tests/coordinator/sidecar/test_hostile_requests.py",
    "tests/coordinator/standalone/test_hostile_requests.py",
    "tests/coordinator/wire/test_bounds.py",
    "tests/demo",
    "tests/faults",
    "tests/frames",
    "tests/known_bugs",
    "tests/model",
    "tests/replay/fleet",
    "tests/simulation",
    "tests/test_commands.py",
    "tests/test_readme.py",
    "tests/test_secured_log.py",
    "tests/test_serve.py",
    "tests/test_wheel.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option."""
    parser.addoption("--quick", action="store_true", help="Leave out whatever needs a broker, a client or long.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leave out by marker what lies among quick tests, and refuse Java."""
    if config.getoption("--quick"):
        config.option.markexpr = " and ".join(f"not {marker}" for marker in MARKERS_LEFT_OUT)
        os.environ[NO_BROKERS_VARIABLE] = "1"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what is left out."""
    if config.getoption("--quick") and collection_path.is_relative_to(ROOT):
        return collection_path.relative_to(ROOT).as_posix() in LEFT_OUT or None
    return None
