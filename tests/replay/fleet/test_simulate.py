"""`muster fleet simulate`: the same seed gives the same events, wherever they go; and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from muster.events.kafka.security import NOT_SECURED
from muster.events.records import StoredRecord
from muster.replay.fleet.simulation.calendar import HOUR_MS, LONGEST_MS, OUTAGES, RATES, When
from muster.replay.fleet.simulation.scenario import SCENARIOS
from muster.replay.fleet.simulation.told import Group
from muster.replay.logs.opening import open_for_reading
from tests.replay.fleet.simulated import MONDAY_MS, fleet, simulated

DOCS = Path(__file__).parents[3] / "docs" / "fleet-simulation.md"
SMALL = ("--groups", "3", "--days", "1", "--partitions", "2", "--seed", "7")


def simulate(*args: str, hash_seed: int = 0) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "muster", "fleet", "simulate", *args)
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=env)


async def records_in(url: str) -> list[StoredRecord]:
    log = open_for_reading(url, security=NOT_SECURED)
    await log.open()
    found = [each for partition in range(log.partitions) async for chunk in log.read(partition) for each in chunk]
    await log.close()
    return found


async def test_the_same_seed_gives_the_same_events(tmp_path: Path) -> None:
    """Byte by byte, with their times, in an archive and in a file; by one process and by two; the truth, too."""
    archive, file = f"archive:{tmp_path}/archive", f"sqlite:///{tmp_path}/muster.db"
    truth = tmp_path / "truth.jsonl"
    first = simulate(*SMALL, "--to", archive, "--jobs", "1", hash_seed=1)
    assert first.returncode == 0, first.stderr
    second = simulate(*SMALL, "--to", file, "--jobs", "2", "--truth", str(truth), hash_seed=2)
    assert second.returncode == 0, second.stderr
    records = await records_in(archive)
    assert len(records) > 100
    assert records == await records_in(file)
    assert truth.read_bytes() == (tmp_path / "archive.truth.jsonl").read_bytes()
    assert "events a second" in first.stdout


async def test_another_seed_gives_other_events(tmp_path: Path) -> None:
    logs = []
    for seed in (1, 2):
        (folder := tmp_path / str(seed)).mkdir()
        archive, _ = simulated(fleet(2, 1, seed=seed), folder)
        logs.append(await records_in(f"archive:{archive}"))
    assert logs[0] != logs[1]


async def test_records_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    """Those of all groups of a partition: its log has one order."""
    archive, groups = simulated(fleet(4, 1, partitions=1), tmp_path)
    times = [record.timestamp_ms for record in await records_in(f"archive:{archive}")]
    assert times == sorted(times)
    assert times[0] == MONDAY_MS
    assert [group.team for group in groups] == [group.group_id.split("-")[0] for group in groups]


def test_the_truth_names_processes_by_their_member_ids(tmp_path: Path) -> None:
    """Each culprit has some; each incident has a start, and rebalances or acts."""
    _, groups = simulated(fleet(3, 1), tmp_path)
    for group in groups:
        assert group.incidents[0].kind == "start"
        for incident in group.incidents:
            assert set(incident.culprits or ()) <= set(group.processes)
            assert incident.starts
            assert incident.kind in incident.kinds
    assert [msgspec.json.decode(msgspec.json.encode(group), type=Group) for group in groups] == groups


def test_a_log_with_events_is_refused(tmp_path: Path) -> None:
    """Whether it is an archive or a file; nothing is changed."""
    for url in (f"archive:{tmp_path}/archive", f"sqlite:///{tmp_path}/muster.db"):
        assert simulate("--groups", "1", "--days", "1", "--to", url).returncode == 0
        again = simulate("--groups", "1", "--days", "1", "--to", url)
        assert again.returncode == 2
        assert again.stderr.count("\n") == 1
        assert "a simulation goes into" in again.stderr


def test_every_rate_is_a_scenarios_and_none_is_longer_than_it_may_be() -> None:
    """Deeds fit between outages."""
    assert {rate.scenario for rate in RATES} <= set(SCENARIOS)
    assert max(rate.longest_ms for rate in OUTAGES) < LONGEST_MS
    assert LONGEST_MS < 24 * HOUR_MS


@pytest.mark.parametrize("rate", RATES, ids=lambda rate: rate.scenario)
def test_the_page_has_each_rate(rate: object) -> None:
    """docs/fleet-simulation.md, in its table."""
    when = rate.when if rate.when is not When.ANY else "at any hour"  # type: ignore[attr-defined]
    once = ", once" if rate.once else ""  # type: ignore[attr-defined]
    row = f"| `{rate.scenario}` | {rate.a_week:g} | {when}{once} |"  # type: ignore[attr-defined]
    assert row in DOCS.read_text(encoding="utf-8")
