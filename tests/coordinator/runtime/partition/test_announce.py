"""Counters and log lines of durable events, and of refused joins."""

import asyncio

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.log_throttle import LINE_INTERVAL_MS
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.runtime.partition.announce import announce
from muster.events.causes import Cause
from muster.events.log.memory import MemoryStorage
from tests.coordinator.group.harness import Harness
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

NAMES = (
    "muster_instance_duels_total",
    "muster_instance_fences_total",
    "muster_static_restarts_total",
)


def counted() -> dict[str, float]:
    return {name: REGISTRY.get_sample_value(name) or 0.0 for name in NAMES}


def test_a_duel_is_counted_and_told_with_both_hosts() -> None:
    """The overlap before it is counted apart, and not told: a rolling deployment has it, too."""
    h = Harness()
    first = h.static("a", host="/10.0.0.1")
    h.stable_group(first)
    first.restarted(host="/10.0.0.2").join()
    first.heartbeat()
    first.restarted().join()
    before = counted()
    with structlog.testing.capture_logs() as told:
        announce(h.events)
    grown = {name: value - before[name] for name, value in counted().items()}
    assert grown == dict(zip(NAMES, (1, 1, 2), strict=True))
    (line,) = told
    assert (line["log_level"], line["group_id"], line["group_instance_id"]) == ("warning", "orders", "a")
    assert (line["client_host"], line["other_client_host"]) == ("/10.0.0.1", "/10.0.0.2")


def test_a_fenced_process_alone_is_counted_and_not_told() -> None:
    """As in a rolling deployment, where the old process is heard once more after the new one has joined."""
    h = Harness()
    first = h.static("a")
    h.stable_group(first)
    first.restarted().join()
    first.heartbeat()
    before = counted()
    with structlog.testing.capture_logs() as told:
        announce(h.events)
    assert {name: value - before[name] for name, value in counted().items()} == dict(zip(NAMES, (0, 1, 1), strict=True))
    assert told == []


def test_duels_that_were_not_written_are_counted_with_the_next() -> None:
    """The limit is on what is written, not on what is known."""
    h = Harness()
    first = h.static("a", session_timeout_ms=600_000)
    h.stable_group(first)
    second = first.restarted()
    second.join()
    for _ in range(15):
        first.heartbeat()
        first = first.restarted()
        first.join()
        second.heartbeat()
        second = second.restarted()
        second.join()
    seen = len(h.events)
    h.sleep(60_000)
    first.heartbeat()
    first.restarted().join()
    before = counted()
    announce(h.events[seen:])
    assert counted()["muster_instance_duels_total"] - before["muster_instance_duels_total"] >= 20


def test_joins_that_are_refused_for_their_metadata_are_told_of_once_a_minute() -> None:
    """However often somebody asks: the next line counts those since. One that is refused for something else is none."""

    async def story() -> None:
        settings = GroupSettings(member_metadata_max_bytes=200, min_session_timeout_ms=6_000)
        process = await SimulatedProcess(MemoryStorage(), settings=settings).start()

        async def refused(session_timeout_ms: int = 10_000) -> ErrorCode:
            answer = await process.join("a", metadata=bytes(300), session_timeout_ms=session_timeout_ms)
            return answer.error

        with structlog.testing.capture_logs() as told:
            assert await refused(session_timeout_ms=1) is ErrorCode.invalid_session_timeout
            assert told == []
            for _ in range(100):
                assert await refused() is ErrorCode.unknown_server_error
            await asyncio.sleep(LINE_INTERVAL_MS / 1000)
            await refused()
        assert [(line["client_id"], line["size_bytes"], line["others_since"]) for line in told] == [
            ("client", 305, 0),
            ("client", 305, 99),
        ]
        await process.runtime.stop()

    simulate(story())


def test_joins_that_find_their_group_full_are_counted_and_told_of_once_a_minute() -> None:
    """With the client, and the setting that is to blame."""
    name = "muster_joins_to_full_groups_total"

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(), settings=GroupSettings(max_size=1)).start()
        assert (
            await process.join("a", session_timeout_ms=600_000, rebalance_timeout_ms=600_000)
        ).error is ErrorCode.none
        before = REGISTRY.get_sample_value(name) or 0.0
        with structlog.testing.capture_logs() as told:
            for _ in range(20):
                assert (await process.join("b")).error is ErrorCode.group_max_size_reached
            await asyncio.sleep(LINE_INTERVAL_MS / 1000)
            await process.join("b")
        assert REGISTRY.get_sample_value(name) == before + 21
        lines = [line for line in told if line["event"] == "join refused: the group is full (group.max.size)"]
        assert [(line["client_id"], line["max_size"], line["others_since"]) for line in lines] == [
            ("client", 1, 0),
            ("client", 1, 19),
        ]
        await process.runtime.stop()

    simulate(story())


def test_rebalances_are_counted_by_their_causes() -> None:
    """Once for each that has begun."""

    def rebalances(cause: Cause) -> float:
        return REGISTRY.get_sample_value("muster_rebalances_total", {"cause": cause.value}) or 0.0

    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    before = {cause: rebalances(cause) for cause in (Cause.NEW_STATIC_MEMBER, Cause.MEMBER_LEFT)}
    b.leave()
    h.rejoin_all(a)
    announce(h.events)
    assert {cause: rebalances(cause) - before[cause] for cause in before} == {
        Cause.NEW_STATIC_MEMBER: 1,
        Cause.MEMBER_LEFT: 1,
    }
