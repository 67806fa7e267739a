"""`muster fleet simulate`: the same seed gives the same events in all outputs; and what it refuses."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from typer.testing import CliRunner

from muster.events.ids import GroupId
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.records import StoredRecord
from muster.replay.fleet.cli import app
from muster.replay.fleet.simulation.fleet import HOUR_MS, LONGEST_MS, OUTAGES, RATES, SimulatedDays, When, outages
from muster.replay.fleet.simulation.sinks import KEPT_MS
from muster.replay.fleet.simulation.stage import SCENARIOS
from muster.replay.fleet.simulation.week import TruthOfGroup, live
from muster.replay.logs.opening import open_for_reading
from tests.brokers.broker import Broker
from tests.events.log.on_broker.proxied import new_topic_name
from tests.forked import run_muster
from tests.replay.fleet.simulated import MONDAY_MS, fleet, simulated

DOCS = Path(__file__).parents[3] / "docs" / "fleet-simulation.md"
SMALL = ("--groups", "3", "--days", "1", "--partitions", "2", "--seed", "7")


def simulate(*args: str, hash_seed: int | None = None) -> subprocess.CompletedProcess[str]:
    variables = {} if hash_seed is None else {"PYTHONHASHSEED": str(hash_seed)}
    return run_muster("fleet", "simulate", *args, variables=variables, within_s=200)


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
    """This includes all groups of a partition, since its log has one order."""
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
    assert [msgspec.json.decode(msgspec.json.encode(group), type=TruthOfGroup) for group in groups] == groups


def test_a_log_with_events_is_refused(tmp_path: Path) -> None:
    """Both an archive and a file; nothing is changed."""
    for url in (f"archive:{tmp_path}/archive", f"sqlite:///{tmp_path}/muster.db"):
        assert simulate("--groups", "1", "--days", "1", "--to", url).returncode == 0
        again = simulate("--groups", "1", "--days", "1", "--to", url)
        assert again.returncode == 2
        assert again.stderr.count("\n") == 1
        assert "a simulation goes into" in again.stderr


def test_every_rate_is_a_scenarios_and_none_is_longer_than_it_may_be() -> None:
    """Actions fit between outages. All scenarios in the wheel are played by a fleet."""
    assert {rate.scenario for rate in RATES} == set(SCENARIOS)
    assert max(rate.longest_ms for rate in OUTAGES) < LONGEST_MS
    assert LONGEST_MS < 24 * HOUR_MS


@pytest.mark.parametrize("rate", RATES, ids=lambda rate: rate.scenario)
def test_the_page_has_each_rate(rate: object) -> None:
    """docs/fleet-simulation.md, in its table."""
    when = rate.when if rate.when is not When.ANY else "at any hour"  # type: ignore[attr-defined]
    once = ", once" if rate.once else ""  # type: ignore[attr-defined]
    row = f"| `{rate.scenario}` | {rate.a_week:g} | {when}{once} |"  # type: ignore[attr-defined]
    assert row in DOCS.read_text(encoding="utf-8")


# ---- what is refused before anything is played ---------------------------------------------------------------------


def refused(to: str, *options: str) -> str:
    """Return the single error line of a simulation that would take hours."""
    command = ["simulate", "--groups", "100000", "--days", "300", "--to", to, *options]
    with ThreadPoolExecutor() as elsewhere:  # where no loop runs
        done = elsewhere.submit(CliRunner().invoke, app, command).result()
    assert done.exit_code == 2, done.exception
    assert done.stderr.count("\n") == 1, done.stderr
    assert not done.stdout
    return done.stderr


def test_an_unwritable_output_is_refused_before_the_simulation(tmp_path: Path) -> None:
    """A path that is no folder, or another user's; an existing file, or a missing folder; unreachable brokers."""
    (file := tmp_path / "file").write_text("not a folder")
    (other := tmp_path / "other").mkdir()
    (other / "readme").write_text("somebody's")
    assert "Not a directory" in refused(f"archive:{file}/archive", "--truth", str(tmp_path / "truth"))
    assert "is no archive" in refused(f"archive:{other}")
    assert "is there already" in refused(f"sqlite:///{file}")
    assert "No such file" in refused(f"sqlite:///{tmp_path}/none/muster.db", "--truth", str(tmp_path / "truth"))
    assert "127.0.0.1:1" in refused("kafka://127.0.0.1:1/events", "--truth", str(tmp_path / "truth"))
    assert "has no scheme" in refused("events", "--truth", str(tmp_path / "truth"))
    assert "gone with this process" in refused("memory:", "--truth", str(tmp_path / "truth"))
    assert "from the future" in refused("kafka://127.0.0.1:1/events", "--begin", "2990-01-01")


def test_existing_ground_truth_is_kept_if_the_log_is_refused(tmp_path: Path) -> None:
    """It belongs to the existing log."""
    to = f"sqlite:///{tmp_path}/muster.db"
    assert simulate("--groups", "1", "--days", "1", "--to", to).returncode == 0
    truth = (tmp_path / "muster.db.truth.jsonl").read_bytes()
    assert "is there already" in refused(to)
    assert (tmp_path / "muster.db.truth.jsonl").read_bytes() == truth


# ---- a topic -------------------------------------------------------------------------------------------------------


@pytest.mark.broker
async def test_a_topic_keeps_the_times_and_the_history_of_the_simulation(kafka_broker: Broker, tmp_path: Path) -> None:
    """It has the settings of Muster's own log except for that; it is refused once it has events."""
    topic, truth = new_topic_name(), ("--truth", str(tmp_path / "truth.jsonl"))
    url = f"kafka://{kafka_broker.bootstrap}/{topic}"
    done = simulate(*SMALL, "--to", url, *truth)
    assert done.returncode == 0, done.stderr
    assert simulate(*SMALL, "--to", f"archive:{tmp_path}/archive", *truth).returncode == 0
    of_topic, of_archive = await records_in(url), await records_in(f"archive:{tmp_path}/archive")
    assert [(record.timestamp_ms, record.key, record.value) for record in of_topic] == [
        (record.timestamp_ms, record.key, record.value) for record in of_archive
    ]
    assert {record.partition for record in of_topic} == {record.partition for record in of_archive}
    configs = await topic_configs(kafka_broker, topic)
    assert configs["cleanup.policy"] == "compact"
    assert configs["message.timestamp.type"] == "CreateTime"
    assert int(configs["min.compaction.lag.ms"]) == KEPT_MS
    assert "has events already" in refused(url, "--partitions", "2")


@pytest.mark.broker
async def test_a_topic_that_would_give_records_other_times_is_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    """Such as one that `muster serve` creates; the message says what to change."""
    topic = new_topic_name()
    log = KafkaEventLog([kafka_broker.bootstrap], topic, partitions=8)
    await log.open()
    await log.close()
    line = refused(f"kafka://{kafka_broker.bootstrap}/{topic}", "--truth", str(tmp_path / "truth"))
    assert "message.timestamp.type=LogAppendTime" in line
    assert "message.timestamp.type=CreateTime" in line


async def topic_configs(broker: Broker, topic: str) -> dict[str, str]:
    """Return a topic's configs from the broker."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    finally:
        await admin.close()
    return {name: value for name, value, *_ in answer.resources[0][4]}


def test_a_rebalance_is_one_storys_though_both_its_phases_were_held() -> None:
    """One process prolonged its join phase for a while, the leader its sync phase: a group of 10,000 groups, seed 1."""
    span = SimulatedDays(began_ms=MONDAY_MS, days=7)
    lived = live(1, GroupId("loyalty7-notify-03476"), 3476, span, list(outages(Random("1 partition 0"), span)))
    reported = [rebalance for truth in lived.truths for rebalance in truth.must]
    assert len(reported) == len(set(reported)) > 10
