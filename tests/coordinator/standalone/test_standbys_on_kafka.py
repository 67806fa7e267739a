"""Real processes that share a log in a real Kafka: one is killed, and its successor reads no history."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.brokers.broker import Broker
from tests.clients.probe import coordinator_of, described
from tests.conformance.wire import Connection
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
"""The fence record, and the owner's records since the last reading: one second's events of an idle service."""
TOPIC = "orders"
TOPIC_PARTITIONS = 100
SIMPLE_GROUPS = 16
ROUNDS = 3
"""The history: commits of each simple group for all partitions."""
NEWEST = 1_000
NEWEST_MAX = 4 * SIMPLE_GROUPS + 2 * FEW
"""The maximum of records read: the latest commits, some of them twice, and the fence records."""
NOT_AVAILABLE = 15


def form_groups(*processes: MusterProcess) -> list[str]:
    """Form some groups at each of them."""
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


def simple_groups(process: MusterProcess) -> dict[str, str]:
    """Groups without members, which only commit, and the coordinator of each."""
    groups = [f"simple-{number}" for number in range(SIMPLE_GROUPS)]
    return {group_id: coordinator_of(process.bootstrap, group_id) for group_id in groups}


def commit(offset: int, at: Mapping[str, str], *, partitions: int) -> None:
    """Commit the same offset for this many partitions of each of these groups; retried on retriable errors."""
    each = {"committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": TOPIC, "partitions": [{"partition_index": number, **each} for number in range(partitions)]}]
    body = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None, "topics": topics}

    def errors(answer: Any) -> set[int]:
        return {reported["error_code"] for reported in answer["topics"][0]["partitions"]}

    _ask_all("OffsetCommit", 8, at, body, errors)


def committed(at: Mapping[str, str]) -> dict[str, list[int]]:
    """The committed offsets of each of these groups."""
    body = {"topics": [{"name": TOPIC, "partition_indexes": [*range(TOPIC_PARTITIONS)]}]}
    answers = _ask_all("OffsetFetch", 5, at, body, lambda answer: {answer["error_code"]})
    return {
        group_id: [reported["committed_offset"] for reported in answer["topics"][0]["partitions"]]
        for group_id, answer in answers.items()
    }


def _ask_all(
    name: str, version: int, at: Mapping[str, str], body: Mapping[str, Any], errors: Callable[[Any], set[int]]
) -> dict[str, Any]:
    """The response for each of these groups, once it has no error."""
    answers: dict[str, Any] = {}

    async def ask() -> None:
        connections = {address: await Connection.open(address) for address in set(at.values())}
        for group_id in at.keys() - answers.keys():
            answer = await connections[at[group_id]].ask(name, version, group_id=group_id, **body)
            if errors(answer) == {0}:
                answers[group_id] = answer
            else:
                assert errors(answer) == {NOT_AVAILABLE}
        for connection in connections.values():
            connection.close()

    def is_told() -> bool:
        asyncio.run(ask())
        return answers.keys() == at.keys()

    until_so(is_told, lambda: at.keys() - answers.keys())
    return answers


@pytest.mark.parametrize("stands_by", [True, False])
def test_a_successor_of_a_killed_process_reads_no_history(kafka_broker: Broker, *, stands_by: bool) -> None:
    """It followed its partitions; with standbys switched off it reads everything.

    All groups are there, with their last commits.
    """
    log = f"kafka://{kafka_broker.bootstrap}/standby-{uuid4().hex[:8]}"
    more, topics = () if stands_by else ("--no-hot-standbys",), [f"{TOPIC}:{TOPIC_PARTITIONS}"]
    with (
        sharing_process(log, 1, partitions=LOG_PARTITIONS, topics=topics, more=more) as first,
        sharing_process(log, 2, partitions=LOG_PARTITIONS, topics=topics, more=more) as second,
    ):
        until_shared(first, second, partitions=LOG_PARTITIONS)
        until_served(first, second)
        groups = form_groups(first, second)
        simple = simple_groups(first)
        for offset in range(ROUNDS):
            commit(offset, simple, partitions=TOPIC_PARTITIONS)
        if stands_by:
            until_standing_by(second, partitions=LOG_PARTITIONS // 2)
        else:
            assert "muster_standby" not in second.asked("/metrics")
        before = len(second.events("partitions ready"))
        commit(NEWEST, simple, partitions=1)
        first.kill()
        until_shared(second, partitions=LOG_PARTITIONS)
        until_served(second)
        assert [members_of(second, group_id) for group_id in groups] == [list(MEMBERS)] * GROUPS
        newest = [NEWEST, *[ROUNDS - 1] * (TOPIC_PARTITIONS - 1)]
        assert committed(simple_groups(second)) == dict.fromkeys(simple, newest)
        taken_over = second.events("partitions ready")[before:]
        partitions = [number for each in taken_over for number in each["partitions"]]
        assert len(partitions) == LOG_PARTITIONS // 2
        assert sum(each["groups"] for each in taken_over) > 0
        assert (sum(each["events"] for each in taken_over) <= FEW * len(partitions)) is stands_by, taken_over
        assert (sum(each["offsets"] for each in taken_over) <= NEWEST_MAX) is stands_by, taken_over


def test_a_start_reads_its_snapshots_and_what_is_new(kafka_broker: Broker, tmp_path: Path) -> None:
    """After the only process was killed; when the snapshots are deleted it reads everything."""
    log = f"kafka://{kafka_broker.bootstrap}/snapshots-{uuid4().hex[:8]}"
    folder = tmp_path / "snapshots"
    # As a standby it would read everything before it knows its assignment.
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
            assert process.events("snapshot not used, reading the event log instead") == []
            read[has_snapshots] = sum(each["events"] for each in process.events("partitions ready"))
        assert read[True] <= FEW * LOG_PARTITIONS < read[False], read


def _all_saved_since(folder: Path, since_ns: int) -> bool:
    """True if each partition's snapshot was started and completed after that time."""
    files = [file for file in folder.iterdir() if file.suffix == ".snapshot"]
    # One that was started before may be written after it, but the one after that was not.
    return len(files) == LOG_PARTITIONS and all(file.stat().st_mtime_ns > since_ns + 2_000_000_000 for file in files)
