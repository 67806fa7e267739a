"""A static member that returns with another subscription causes no rebalance; a log line reports it."""

import asyncio
from typing import Any

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.log_throttle import LINE_INTERVAL_MS
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.runtime.partition.kept_assignments import EVENT
from muster.events.consumer_protocol import encode_subscription
from muster.events.log.memory import MemoryStorage
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

METRIC = "muster_subscriptions_not_assigned_total"
PATIENT: dict[str, Any] = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 600_000}
ORDERS = encode_subscription(["orders"])
BOTH = encode_subscription(["orders", "payments"])


def test_it_is_named_with_its_new_topics_once_a_minute() -> None:
    """A restart with an unchanged subscription is not reported."""

    async def story() -> None:
        settings = GroupSettings(initial_rebalance_delay_ms=0)
        process = await SimulatedProcess(MemoryStorage(), settings=settings).start()
        joined = await process.join("a", metadata=ORDERS, **PATIENT)
        assert (await process.sync(joined)).error is ErrorCode.none
        before = REGISTRY.get_sample_value(METRIC) or 0.0
        with structlog.testing.capture_logs() as reported:
            await process.join("a", metadata=ORDERS, **PATIENT)
            await process.join("a", metadata=BOTH, **PATIENT)
            await process.join("a", metadata=ORDERS, **PATIENT)
            await asyncio.sleep(LINE_INTERVAL_MS / 1000)
            await process.join("a", metadata=BOTH, **PATIENT)
        assert REGISTRY.get_sample_value(METRIC) == before + 3
        lines = [line for line in reported if line["event"] == EVENT]
        assert [(line["new_topics"], line["others_since"]) for line in lines] == [(["payments"], 0), (["payments"], 1)]
        assert lines[0]["group_instance_id"] == "a"
        assert not any("former_topics" in line for line in lines)  # it has dropped none
        assert "muster members rebalance orders" in lines[0]["way_out"]
        await process.runtime.stop()

    simulate(story())


def test_each_member_of_a_group_is_named() -> None:
    """All members return with a new subscription within a minute, as in a deployment."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(), settings=GroupSettings(initial_rebalance_delay_ms=0)).start()
        joined = await process.join("a", metadata=ORDERS, **PATIENT)
        assert (await process.sync(joined)).error is ErrorCode.none
        second = asyncio.ensure_future(process.join("b", metadata=ORDERS, **PATIENT))
        await asyncio.sleep(1)
        first = await process.join("a", member_id=joined.member_id, metadata=ORDERS, **PATIENT)
        leader, other = (first, await second) if first.leader_id == first.member_id else (await second, first)
        synced = await asyncio.gather(process.sync(leader), process.sync(other))
        assert {each.error for each in synced} == {ErrorCode.none}
        with structlog.testing.capture_logs() as reported:
            for name in "ab":
                await process.join(name, metadata=BOTH, **PATIENT)
        assert [line["group_instance_id"] for line in reported if line["event"] == EVENT] == ["a", "b"]
        await process.runtime.stop()

    simulate(story())
