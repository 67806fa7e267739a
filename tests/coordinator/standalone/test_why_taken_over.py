"""Real processes that share a log in a real Kafka: the log records the reason of a takeover, and `why` shows it."""

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from muster.events.avro.codec import decode
from muster.events.events import CoordinatorReady
from muster.events.ids import GroupId
from muster.events.log.url import open_log
from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from muster.events.partitioner import partition_for
from muster.replay.cli import app
from tests.brokers.broker import Broker
from tests.coordinator.formed import form_group
from tests.muster_process import MusterProcess
from tests.sharing_processes import sharing_process, until_served, until_shared

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(os.environ.get("MUSTER_TEST_NO_KAFKA") == "1", reason="no Kafka is wanted"),
]

PARTITIONS = 2


def name_of(process: MusterProcess) -> str:
    return f"{socket.gethostname()}:{process.pid}"


def takeovers(url: str, partition: int) -> list[tuple[str, str | None, OwnershipEnd | None]]:
    """Each owner of the partition, the previous one, and why that one lost it."""

    async def read() -> list[tuple[str, str | None, OwnershipEnd | None]]:
        log = open_log(url, read_only=True)
        await log.open()
        values = [record.value async for chunk in log.read(partition) for record in chunk if record.value is not None]
        await log.close()
        events = [decode(value) for value in values]
        return [
            (each.owner, each.owner_before, each.owner_before_end)
            for each in events
            if isinstance(each, CoordinatorReady)
        ]

    return asyncio.run(read())


def headlines(url: str, group_id: str) -> Sequence[str]:
    result = CliRunner().invoke(app, ["why", group_id, "--all", "--format", "jsonl", "--log", url])
    assert result.exit_code == 0, result.output
    return [json.loads(line)["headline"] for line in result.stdout.splitlines()]


def test_why_a_killed_process_lost_its_partition(kafka_broker: Broker) -> None:
    """It refused connections, and the other one removed it; when it returns, that one hands over cleanly."""
    log = f"kafka://{kafka_broker.bootstrap}/why-{uuid4().hex[:8]}"
    with (
        sharing_process(log, 1, partitions=PARTITIONS) as first,
        sharing_process(log, 2, partitions=PARTITIONS) as second,
    ):
        until_shared(first, second, partitions=PARTITIONS)
        until_served(first, second)
        (number,) = first.events("partitions shared")[-1]["ours"]
        group_id = next(f"g{n}" for n in range(99) if partition_for(GroupId(f"g{n}"), PARTITIONS) == number)
        form_group(first.bootstrap, group_id, "a")
        killed, taker = name_of(first), name_of(second)
        first.kill()
        until_shared(second, partitions=PARTITIONS)
        until_served(second)
        owner, owner_before, end = takeovers(log, number)[-1]
        assert (owner, owner_before) == (taker, killed)
        assert end is not None
        assert (end.cause, end.removed_by) == (OwnershipEndCause.GONE, taker)
        assert end.link_lost_ms is not None
        assert end.refused_ms is not None
        assert end.link_lost_ms <= end.refused_ms
        assert second.events("partitions ready")[-1]["former_owners"] == {killed: "gone"}
        reported = headlines(log, group_id)[-1]
        assert reported.startswith(f"{taker} took over from {killed}, which refused connections at ")
        assert f" and was removed by {taker}: the coordinator was unavailable " in reported

        first.start()
        until_shared(first, second, partitions=PARTITIONS)
        until_served(first, second)
        moved = first.events("partitions shared")[-1]["ours"][0]
        assert takeovers(log, moved)[-1] == (
            name_of(first),
            taker,
            OwnershipEnd(cause=OwnershipEndCause.STOPPED),
        )
