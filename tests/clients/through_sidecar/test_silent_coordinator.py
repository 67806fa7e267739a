"""A broker that coordinates a group hangs for longer than its members' sessions: no member expires for that."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from muster.coordinator.upstream.reachability import BACK, WAIT
from tests.brokers.cluster import running_cluster
from tests.clients.probe import coordinator_of
from tests.clients.through_sidecar.member import Member, settle
from tests.clients.through_sidecar.sidecar import new_topic, running_sidecar
from tests.conformance.wire import Connection

pytestmark = pytest.mark.broker

SESSION_MS = 2_000
WITHIN_S = 60


async def test_no_member_expires_while_the_broker_behind_it_hangs(tmp_path: Path) -> None:
    """A heartbeat has arrived, but the broker does not answer whether its sender is authorized."""
    options = ["--log", f"sqlite:///{tmp_path / 'events.db'}", "--authorization-cache-ms", "0"]
    with running_cluster(1) as cluster, running_sidecar(cluster.bootstrap, nodes=[1], options=options) as muster:
        topic = await asyncio.to_thread(new_topic, cluster.bootstrap)
        await asyncio.to_thread(coordinator_of, muster.bootstrap, "any")
        connection = await Connection.open(muster.bootstrap)
        member = Member(connection, uuid4().hex, topic, session_ms=SESSION_MS)
        await settle(member)
        generation_id = member.generation_id

        cluster.pause(1)
        try:
            pending = member.send_heartbeat()
            await asyncio.to_thread(muster.wait_for_event, WAIT, within_s=WITHIN_S)
        finally:
            cluster.resume(1)
        assert (await pending.get())["error_code"] == 0
        await asyncio.to_thread(muster.wait_for_event, BACK, within_s=WITHIN_S)
        assert await member.heartbeat() == 0
        assert member.generation_id == generation_id
        connection.close()
