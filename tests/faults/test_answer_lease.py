"""Two real processes on a real broker: a paused and deposed one accepts no heartbeat when it resumes."""

import asyncio
import os
import signal

import pytest

from tests.brokers.broker import Broker
from tests.conformance.wire import Connection, ms
from tests.events.log.on_broker.proxied import new_topic_name
from tests.muster_process import running_muster

pytestmark = pytest.mark.broker

NONE, NOT_AVAILABLE, NOT_COORDINATOR = 0, 15, 16
SHORT_LEASE_OVER_S = 1.5


@pytest.mark.parametrize(("lease_ms", "accepts"), [(1_000, False), (60_000, True)])
async def test_a_process_that_was_stopped_and_deposed_accepts_no_heartbeat(
    kafka_broker: Broker, lease_ms: int, *, accepts: bool
) -> None:
    """Its lease has ended when it resumes; with a lease of a minute it accepts one, so this test can fail."""
    log = f"kafka://{kafka_broker.bootstrap}/{new_topic_name()}"
    partitions = ("--log-partitions", "2")
    with running_muster(log=log, options=(*partitions, "--answer-lease-ms", str(lease_ms))) as first:
        client = await Connection.open(first.bootstrap)
        identity = {"group_id": "orders", "group_instance_id": "a"}
        joined = await client.ask(
            "JoinGroup",
            5,
            **identity,
            member_id="",
            session_timeout=ms(30_000),
            rebalance_timeout=ms(30_000),
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        identity |= {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        await client.ask("SyncGroup", 3, **identity, assignments=[])
        assert (await client.ask("Heartbeat", 3, **identity))["error_code"] == NONE
        os.kill(first.pid, signal.SIGSTOP)
        try:
            with running_muster(log=log, options=(*partitions, "--answer-lease-ms", "1000")) as second:
                other = await Connection.open(second.bootstrap)
                assert (await other.ask("Heartbeat", 3, **identity))["error_code"] == NONE
                # Wait for time itself: the shorter lease has ended, however fast the other process started.
                await asyncio.sleep(SHORT_LEASE_OVER_S)
                pending = client.send("Heartbeat", 3, **identity)
                os.kill(first.pid, signal.SIGCONT)
                try:
                    error = (await pending.get())["error_code"]
                except ConnectionResetError:
                    error = NOT_COORDINATOR
                assert error == NONE if accepts else error in {NOT_AVAILABLE, NOT_COORDINATOR}
                assert (await other.ask("Heartbeat", 3, **identity))["error_code"] == NONE
                other.close()
        finally:
            client.close()
