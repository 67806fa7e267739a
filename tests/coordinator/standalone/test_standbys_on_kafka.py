"""Real processes that share a log in a real Kafka: one is killed, and who takes over from it reads no history."""

import os
import shutil
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.brokers.broker import Broker
from tests.clients.probe import coordinator_of, described
from tests.coordinator.formed import form_group
from tests.muster_process import MusterProcess
from tests.sharing_processes import sharing_process, until_served, until_shared, until_standing_by
from tests.waiting import until_so

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(os.environ.get("MUSTER_TEST_NO_KAFKA") == "1", reason="no Kafka is wanted"),
]

LOG_PARTITIONS = 4
GROUPS = 32
MEMBERS = ("a",)
FEW = 10
"""The fence record, and what the owner wrote since the last look: a second's events, of a service that is idle."""


def form_groups(*processes: MusterProcess) -> list[str]:
    """Some groups on each of them."""
    groups = [f"group-{number}" for number in range(GROUPS)]
    at = {process.bootstrap for process in processes}
    for group_id in groups:
        coordinator = coordinator_of(processes[0].bootstrap, group_id)
        assert coordinator in at
        form_group(coordinator, group_id, *MEMBERS)
    return groups


def members_of(process: MusterProcess, group_id: str) -> list[object]:
    described_group = described(process.bootstrap, group_id)
    assert described_group["group_state"] == "Stable"
    return sorted(member["group_instance_id"] for member in described_group["members"])


@pytest.mark.parametrize("stands_by", [True, False])
def test_who_takes_over_from_a_killed_process_reads_no_history(kafka_broker: Broker, *, stands_by: bool) -> None:
    """It has followed its partitions; where that is switched off it reads everything. All groups are there."""
    log = f"kafka://{kafka_broker.bootstrap}/standby-{uuid4().hex[:8]}"
    more = () if stands_by else ("--no-hot-standbys",)
    with (
        sharing_process(log, 1, partitions=LOG_PARTITIONS, more=more) as first,
        sharing_process(log, 2, partitions=LOG_PARTITIONS, more=more) as second,
    ):
        until_shared(first, second, partitions=LOG_PARTITIONS)
        until_served(first, second)
        groups = form_groups(first, second)
        if stands_by:
            until_standing_by(second, partitions=LOG_PARTITIONS // 2)
        else:
            assert "muster_standby" not in second.asked("/metrics")
        before = len(second.events("partitions ready"))
        first.kill()
        until_shared(second, partitions=LOG_PARTITIONS)
        until_served(second)
        assert [members_of(second, group_id) for group_id in groups] == [list(MEMBERS)] * GROUPS
        taken_over = second.events("partitions ready")[before:]
        partitions = [number for each in taken_over for number in each["partitions"]]
        assert len(partitions) == LOG_PARTITIONS // 2
        assert sum(each["groups"] for each in taken_over) > 0
        assert (sum(each["events"] for each in taken_over) <= FEW * len(partitions)) is stands_by, taken_over


def test_a_start_reads_its_snapshots_and_what_is_new(kafka_broker: Broker, tmp_path: Path) -> None:
    """After the only process was killed; and after the snapshots are gone it reads everything."""
    log = f"kafka://{kafka_broker.bootstrap}/snapshots-{uuid4().hex[:8]}"
    folder = tmp_path / "snapshots"
    # As a standby it would read everything before it knows what it is to own.
    more = ("--no-hot-standbys", "--snapshots", str(folder), "--snapshot-interval-ms", "1000")
    with sharing_process(log, 1, partitions=LOG_PARTITIONS, more=more) as process:
        until_shared(process, partitions=LOG_PARTITIONS)
        until_served(process)
        groups = form_groups(process)
        formed_ns = time.time_ns()
        until_so(lambda: _all_saved_since(folder, formed_ns), lambda: [*folder.iterdir()])
        read = {}
        for has_snapshots in (True, False):
            process.kill()
            if not has_snapshots:
                shutil.rmtree(folder)
            process.start(until="listening")
            until_shared(process, partitions=LOG_PARTITIONS)
            until_served(process)
            assert [members_of(process, group_id) for group_id in groups] == [list(MEMBERS)] * GROUPS
            assert process.events("a snapshot is not used, the event log is read instead") == []
            read[has_snapshots] = sum(each["events"] for each in process.events("partitions ready"))
        assert read[True] <= FEW * LOG_PARTITIONS < read[False], read


def _all_saved_since(folder: Path, since_ns: int) -> bool:
    """Whether each partition was saved from its beginning after that moment."""
    files = [file for file in folder.iterdir() if file.suffix == ".snapshot"]
    # One that was begun before may be written after it: the one behind it was not.
    return len(files) == LOG_PARTITIONS and all(file.stat().st_mtime_ns > since_ns + 2_000_000_000 for file in files)
