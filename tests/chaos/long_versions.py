"""Processes of another version, one process alone, and an upgraded log: `pytest tests/chaos/long_versions.py`.

Nothing that was acknowledged is lost, and every member is served again.
"""

from pathlib import Path

import pytest

from tests.chaos.load import Size
from tests.chaos.run import run
from tests.chaos.schedule import Fault, Kind, Party
from tests.chaos.service import Mode

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_800)]

KINDS = (Kind.ROLL, Kind.ROLL, Kind.ALONE, Kind.UPGRADE, Kind.ROLL)


@pytest.mark.parametrize("mode", Mode)
def test_versions_change_under_load_and_nothing_is_lost(mode: Mode, tmp_path: Path) -> None:
    """To this version and back to the older one, to a single process and back, and on an upgraded log."""
    faults = [Fault(number=at, kind=kind, whom=Party.ALL, for_s=3.0) for at, kind in enumerate(KINDS)]
    outcomes = run(faults, seed=0, mode=mode, folder=tmp_path, size=Size(groups=4, members=3), has_libraries=False)
    assert [each.violations for each in outcomes] == [()] * len(KINDS)
    assert all(each.whole_ms is not None for each in outcomes)
