"""Three faults done to sidecars and an edge in front of a real cluster: no invariant is broken, and all clients are
served.

The long form has all kinds, a hundred faults, and groups of client libraries: `python -m tests.chaos`, `make chaos`.
"""

from pathlib import Path

import pytest

from tests.chaos.load import Size
from tests.chaos.run import run
from tests.chaos.schedule import Fault, Kind, Party
from tests.chaos.service import Mode

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

FAULTS = (
    Fault(number=1, kind=Kind.KILL, whom=Party.OWNER, for_s=0.0),
    Fault(number=2, kind=Kind.PAUSE, whom=Party.OWNER, for_s=9.0),
    Fault(number=3, kind=Kind.KILL, whom=Party.COORDINATOR, for_s=2.0),
)


def test_nothing_is_lost_by_a_kill_a_pause_and_the_end_of_a_broker(tmp_path: Path) -> None:
    """The owner is killed, the next one stopped beyond its session and its lease, and their broker is killed."""
    size = Size(groups=4, members=3)
    outcomes = run(FAULTS, seed=0, mode=Mode.SIDECAR, folder=tmp_path, size=size, has_libraries=False)
    assert [each.violations for each in outcomes] == [(), (), ()]
    assert all(each.whole_ms is not None for each in outcomes)
