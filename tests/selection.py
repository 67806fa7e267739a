"""Which tests run, and in which order, as a pytest plugin.

`--quick` is what one runs after each edit: no broker, no client of others, no process that serves. What it leaves out
stands here, in one place. A test that asks for Java or a container all the same fails, in a quick run alone.

The longest files come first: each is one worker's, and all would wait for one that is begun last. `make test` has
xdist keep this order (`--no-loadscope-reorder`; by itself it begins with the files that have most tests).
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.brokers.jars import NO_BROKERS_VARIABLE

ROOT: Final = Path(__file__).parents[1]
MARKERS_LEFT_OUT: Final = ("broker", "clients", "spark")
# Brokers and clients, whole processes, schedules by the hundred, deaths at each step, and requests of their full size.
LEFT_OUT: Final = (
    "tests/brokers",
    "tests/chaos/test_chaos.py",
    "tests/clients",
    "tests/conformance/fuzz",
    "tests/conformance/test_conformance.py",
    "tests/conformance/test_defaults.py",
    "tests/conformance/test_playing.py",
    "tests/conformance/test_reasons.py",
    "tests/conformance/test_restarts.py",
    "tests/conformance/test_through_sidecar.py",
    "tests/coordinator/client/commands",
    "tests/coordinator/group/test_cost.py",
    "tests/coordinator/observability/test_log_lines.py",
    "tests/coordinator/observability/test_loop_watch.py",
    "tests/coordinator/peers/test_sharer.py",
    "tests/coordinator/runtime/partition/test_retention_clock.py",
    "tests/coordinator/sidecar/relay/test_hostile_requests.py",
    "tests/coordinator/standalone/test_hostile_requests.py",
    "tests/coordinator/upstream/test_outages.py",
    "tests/coordinator/wire/test_bounds.py",
    "tests/damage",
    "tests/demo",
    "tests/drills/report/test_browser.py",
    "tests/drills/test_drills.py",
    "tests/drills/test_running_service.py",
    "tests/events/log/sqlite/test_crash.py",
    "tests/events/log/sqlite/test_trim.py",
    "tests/events/log/sqlite/test_trouble.py",
    "tests/events/log/sqlite/test_write_ahead.py",
    "tests/faults",
    "tests/frames",
    "tests/judge",
    "tests/known_bugs",
    "tests/model",
    "tests/mutants",
    "tests/replay/archive",
    "tests/replay/commands/test_views.py",
    "tests/replay/fleet",
    "tests/replay/incidents/test_any_history.py",
    "tests/replay/incidents/test_judged.py",
    "tests/replay/report/test_browser.py",
    "tests/replay/test_rerun.py",
    "tests/replay/whatif/test_scenarios_otherwise.py",
    "tests/replay/whatif/test_whatif_cost.py",
    "tests/simulation",
    "tests/test_commands.py",
    "tests/test_readme.py",
    "tests/test_secured_log.py",
    "tests/test_serve.py",
    "tests/test_wheel.py",
)
# By how long they took on two cores, in one run.
LONGEST: Final = (
    "tests/model/test_model.py",
    "tests/conformance/fuzz/test_fuzz.py",
    "tests/replay/fleet/test_fleet.py",
    "tests/replay/fleet/archive/test_streaming.py",
    "tests/test_wheel.py",
    "tests/conformance/fuzz/test_fuzz_through_sidecar.py",
    "tests/brokers/test_brokers.py",
    "tests/chaos/test_chaos.py",
    "tests/conformance/test_conformance.py",
    "tests/judge/real/test_real.py",
    "tests/demo/test_demo.py",
    "tests/drills/test_drills.py",
    "tests/drills/test_running_service.py",
    "tests/clients/through_sidecar/test_failures.py",
    "tests/test_serve.py",
    "tests/faults/test_real_brokers.py",
    "tests/coordinator/sidecar/groups/test_moving_owners.py",
    "tests/test_readme.py",
    "tests/clients/test_upgrades.py",
    "tests/coordinator/sidecar/relay/test_hostile_requests.py",
    "tests/frames/test_frames.py",
    "tests/conformance/test_through_sidecar.py",
    "tests/coordinator/sidecar/groups/test_moving.py",
    "tests/coordinator/sidecar/security/test_security_sasl.py",
    "tests/coordinator/sidecar/apis/test_admin_tools.py",
    "tests/coordinator/upstream/test_takeovers.py",
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file; within a file, and among all other files, the order stays."""
    ranks = {ROOT / path: rank for rank, path in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
