"""A pytest plugin that selects tests and orders them.

`--quick` runs the folders in QUICK: the rules, the events, the causes, and the bugs of other coordinators. They need
nothing but the package and the group `quick` of pyproject.toml. Folders named `on_broker` are left out, as are tests
with a marker of MARKERS_LEFT_OUT. A test that starts Java or a container anyway fails.

The longest files run first: one worker runs a whole file, and all would wait for a long one that starts last. `make
test` makes xdist keep this order (`--no-loadscope-reorder`; by default it starts with the files that have most tests).
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.brokers.broker import NO_BROKERS_VARIABLE

ROOT: Final = Path(__file__).parents[1]
MARKERS_LEFT_OUT: Final = ("broker", "clients", "slow", "spark")
ON_BROKER: Final = "on_broker"
"""The name of folders whose tests need a broker, or import what starts one."""
QUICK: Final = (
    "tests/coordinator/group",
    "tests/coordinator/wire",
    "tests/events",
    "tests/known_bugs",
    "tests/model",
    "tests/replay/history",
    "tests/replay/incidents",
    "tests/replay/rebalances",
    "tests/test_packages.py",
    "tests/test_words.py",
)
# By how long they took on two processors, in one run; all above half a minute.
LONGEST: Final = (
    "tests/conformance/fuzz/test_fuzz.py",
    "tests/conformance/test_conformance.py",
    "tests/conformance/fuzz/test_fuzz_through_sidecar.py",
    "tests/simulation/test_simulation.py",
    "tests/judge/real/test_real.py",
    "tests/clients/test_unassigned.py",
    "tests/conformance/test_through_sidecar.py",
    "tests/test_serve.py",
    "tests/model/test_model.py",
    "tests/clients/test_shared_partitions.py",
    "tests/clients/through_sidecar/test_failures.py",
    "tests/faults/test_real_brokers.py",
    "tests/chaos/test_chaos.py",
    "tests/clients/through_sidecar/test_shared_sidecars.py",
    "tests/coordinator/sidecar/groups/test_moving.py",
    "tests/coordinator/sidecar/groups/test_moving_owners.py",
    "tests/replay/fleet/test_build.py",
    "tests/clients/through_sidecar/test_unassigned.py",
    "tests/coordinator/peers/test_sharer.py",
    "tests/clients/through_sidecar/test_processes.py",
    "tests/conformance/test_superseded.py",
    "tests/replay/fleet/archive/test_streaming.py",
    "tests/drills/test_drills.py",
    "tests/drills/test_running_service.py",
    "tests/coordinator/sidecar/security/test_security_sasl.py",
    "tests/replay/report/test_browser.py",
    "tests/test_readme.py",
    "tests/replay/fleet/test_fleet.py",
    "tests/replay/fleet/test_archived.py",
    "tests/replay/fleet/test_week.py",
    "tests/replay/fleet/test_session.py",
    "tests/replay/fleet/test_sql_page.py",
    "tests/clients/test_upgrades.py",
    "tests/coordinator/upstream/test_takeovers.py",
    "tests/clients/test_java_standbys.py",
    "tests/coordinator/standalone/test_hostile_requests.py",
    "tests/clients/test_refused_clients.py",
    "tests/coordinator/sidecar/security/test_security_page.py",
    "tests/clients/test_standbys.py",
    "tests/clients/test_consumers.py",
    "tests/clients/through_sidecar/test_connections.py",
    "tests/coordinator/sidecar/relay/test_hostile_requests.py",
    "tests/brokers/test_brokers.py",
    "tests/demo/test_demo.py",
    "tests/frames/test_frames.py",
    "tests/clients/through_sidecar/test_newer_protocol.py",
    "tests/coordinator/sidecar/apis/test_admin_tools.py",
    "tests/mutants/test_mutants.py",
    "tests/clients/test_java_reliance.py",
    "tests/replay/incidents/test_judged.py",
    "tests/clients/test_java_tools.py",
    "tests/replay/archive/test_crashes.py",
    "tests/test_wheel.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one option."""
    parser.addoption("--quick", action="store_true", help="Run the rules, the events and the causes alone.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leave out by marker what lies among quick tests, and refuse Java."""
    if config.getoption("--quick"):
        config.option.markexpr = " and ".join(f"not {marker}" for marker in MARKERS_LEFT_OUT)
        os.environ[NO_BROKERS_VARIABLE] = "1"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files that are not selected."""
    if config.getoption("--quick") and collection_path.is_relative_to(ROOT):
        return not is_quick(collection_path.relative_to(ROOT)) or None
    return None


def is_quick(path: Path) -> bool:
    """Return whether a quick run looks into this file or folder, named from the top."""
    quick = [Path(each) for each in QUICK]
    return ON_BROKER not in path.parts and any(path.is_relative_to(each) or each.is_relative_to(path) for each in quick)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file; within a file, and among all other files, the order stays."""
    ranks = {ROOT / path: rank for rank, path in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
