"""The log line and the durations of each rebalance."""

import asyncio
from typing import Any

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.observability.group_metrics import NAMED_GROUPS
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.runtime.partition.announce import announce
from muster.coordinator.runtime.partition.rebalance_log import (
    LINES_MAX,
    LINES_OF_GROUP_MAX,
    RebalanceLines,
    UnderWay,
    follow,
)
from muster.events.log.memory import MemoryStorage
from tests.coordinator.group.harness import Harness
from tests.simulation.process import SETTINGS, SimulatedProcess
from tests.simulation.virtual_time import simulate


def followed(h: Harness, under_way: UnderWay | None = None) -> list[dict[str, Any]]:
    """The log lines for all events of a story, each a second after the one before."""
    lines = RebalanceLines(lambda: 0)
    with structlog.testing.capture_logs() as reported:
        for number, event in enumerate(h.events):
            under_way = follow(under_way, [event], number * 1_000, lines)
    assert under_way is None
    return [{name: value for name, value in line.items() if name != "log_level"} for line in reported]


def observed(name: str, **labels: str) -> tuple[float, float]:
    """A histogram's number of durations, and their sum."""
    count, total = (REGISTRY.get_sample_value(f"{name}_{end}", labels) or 0.0 for end in ("count", "sum"))
    return count, total


def test_each_rebalance_is_one_line_with_its_cause_and_member() -> None:
    """The first rebalance, one for a member that left, and one for the last member's leave."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    b.leave()
    h.rejoin_all(a)
    lines = followed(h)
    assert [line["event"] for line in lines] == ["rebalance"] * len(lines)
    first, *_, last = lines
    assert (first["group_id"], first["generation_id"], first["ended"]) == ("orders", 1, "stable")
    assert (first["cause"], first["member"]) == ("new-static-member", "a")
    assert (last["cause"], last["member"], last["generation_id"]) == ("member-left", "b", 2)
    assert last["took_ms"] == last["join_ms"] + last["sync_ms"] > 0


def test_a_group_that_loses_its_last_member_has_a_log_line() -> None:
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    last = followed(h)[-1]
    assert (last["ended"], last["cause"], "sync_ms" in last) == ("empty", "member-left", False)


def test_a_rebalance_ended_by_another_one_is_logged_too() -> None:
    """Its sync phase never ended: the next member joined before the leader's assignment."""
    h = Harness()
    a = h.static("a")
    a.join()
    h.sleep(SETTINGS.initial_rebalance_delay_ms + 3_000)
    before = observed("muster_rebalance_seconds", ended="superseded")
    h.static("b").join()
    under_way = None
    with structlog.testing.capture_logs() as reported:
        for event in h.events:
            under_way = follow(under_way, [event], 0, RebalanceLines(lambda: 0))
    assert under_way is not None
    assert [line["ended"] for line in reported] == ["superseded"]
    assert observed("muster_rebalance_seconds", ended="superseded")[0] == before[0] + 1


def test_how_long_it_took_is_counted_by_phase() -> None:
    """In the runtime, by its clock: the initial delay is the join phase, the leader's pause the sync phase."""

    async def story() -> None:
        before = {phase: observed("muster_rebalance_phase_seconds", phase=phase) for phase in ("join", "sync")}
        process = await SimulatedProcess(MemoryStorage()).start()
        with structlog.testing.capture_logs() as reported:
            joined = await process.join("a")
            assert joined.error is ErrorCode.none
            await asyncio.sleep(2)
            assert (await process.sync(joined)).error is ErrorCode.none
        (line,) = [line for line in reported if line["event"] == "rebalance"]
        assert 100 <= line["join_ms"] < 200
        assert 2_000 <= line["sync_ms"] < 2_100
        after = {phase: observed("muster_rebalance_phase_seconds", phase=phase) for phase in ("join", "sync")}
        for phase, at_least in (("join", 0.1), ("sync", 2.0)):
            assert after[phase][0] == before[phase][0] + 1
            assert after[phase][1] - before[phase][1] >= at_least
        await process.runtime.stop()

    simulate(story())


def test_a_rebalance_begun_under_a_former_owner_is_logged_without_a_duration() -> None:
    """Its start is unknown here."""

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage).start()
        joined = await first.join("a", session_timeout_ms=60_000)
        second = await SimulatedProcess(storage).start()
        counted = observed("muster_rebalance_seconds", ended="stable")
        with structlog.testing.capture_logs() as reported:
            assert (await second.sync(joined)).error is ErrorCode.none
        (line,) = [line for line in reported if line["event"] == "rebalance"]
        assert (line["cause"], "took_ms" in line) == ("began under a previous owner", False)
        assert observed("muster_rebalance_seconds", ended="stable") == counted
        await second.runtime.stop()

    simulate(story())


def test_groups_with_labels_are_those_that_a_pattern_names() -> None:
    """Only those."""
    h = Harness()
    h.stable_group(h.static("a"))
    labels = {"group": "orders", "cause": "new-static-member"}
    try:
        NAMED_GROUPS.match(["payments-*"])
        announce(h.events)
        assert REGISTRY.get_sample_value("muster_group_rebalances_total", labels) is None
        NAMED_GROUPS.match(["ord*"])
        announce(h.events)
        assert REGISTRY.get_sample_value("muster_group_rebalances_total", labels) == 1
    finally:
        NAMED_GROUPS.match([])


def test_a_group_that_rebalances_without_an_end_fills_no_log() -> None:
    """A limited number of lines per minute, then one with the count of the rest; other groups' lines are still
    written.
    """

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        lines = RebalanceLines(process.clock.monotonic_ms)
        with structlog.testing.capture_logs() as reported:
            for number in range(500):
                lines.write("wild", {"generation_id": number})
            lines.write("quiet", {"generation_id": 1})
            groups = [line["group_id"] for line in reported]
            assert groups == ["wild"] * LINES_OF_GROUP_MAX + ["quiet"]
            await asyncio.sleep(61)
            left_out = 500 - LINES_OF_GROUP_MAX
            assert reported[-1]["event"] == "rebalances without a log line: too many in this minute"
            assert (reported[-1]["lines_of_group_max"], reported[-1]["lines_max"]) == (LINES_OF_GROUP_MAX, LINES_MAX)
            assert (reported[-1]["rebalances"], reported[-1]["groups"], reported[-1]["most"]) == (
                left_out,
                1,
                {"wild": left_out},
            )
            lines.write("wild", {"generation_id": 500})
            assert reported[-1]["generation_id"] == 500
        await process.runtime.stop()

    simulate(story())


def test_many_groups_that_rebalance_once_fill_no_log_either() -> None:
    """One client may create group after group."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        lines = RebalanceLines(process.clock.monotonic_ms)
        with structlog.testing.capture_logs() as reported:
            for number in range(2 * LINES_MAX):
                lines.write(f"group-{number}", {})
            lines.end_minute()
        assert len(reported) == LINES_MAX + 1
        assert (reported[-1]["rebalances"], reported[-1]["groups"], len(reported[-1]["most"])) == (
            LINES_MAX,
            LINES_MAX,
            10,
        )
        await process.runtime.stop()

    simulate(story())
