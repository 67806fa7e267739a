"""Counters and log lines of durable events."""

import structlog

from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.runtime.partition.announce import announce
from muster.events.causes import Cause
from tests.coordinator.group.harness import Harness

NAMES = (
    "muster_instance_duels_total",
    "muster_instance_fences_total",
    "muster_static_restarts_total",
)


def counted() -> dict[str, float]:
    return {name: REGISTRY.get_sample_value(name) or 0.0 for name in NAMES}


def test_a_duel_is_counted_and_logged_with_both_hosts() -> None:
    """The overlap before it is counted separately, and not logged: rolling deployments have it, too."""
    h = Harness()
    first = h.static("a", host="/10.0.0.1")
    h.stable_group(first)
    first.restarted(host="/10.0.0.2").join()
    first.heartbeat()
    first.restarted().join()
    before = counted()
    with structlog.testing.capture_logs() as reported:
        announce(h.events)
    grown = {name: value - before[name] for name, value in counted().items()}
    assert grown == dict(zip(NAMES, (1, 1, 2), strict=True))
    (line,) = reported
    assert (line["log_level"], line["group_id"], line["group_instance_id"]) == ("warning", "orders", "a")
    assert line["way_out"] == "stop one of them, or give each process a group.instance.id of its own"
    assert (line["client_host"], line["other_client_host"]) == ("/10.0.0.1", "/10.0.0.2")


def test_a_lone_fenced_process_is_counted_and_not_logged() -> None:
    """Rolling deployments cause it: the old process sends one more request after the new one has joined."""
    h = Harness()
    first = h.static("a")
    h.stable_group(first)
    first.restarted().join()
    first.heartbeat()
    before = counted()
    with structlog.testing.capture_logs() as reported:
        announce(h.events)
    assert {name: value - before[name] for name, value in counted().items()} == dict(zip(NAMES, (0, 1, 1), strict=True))
    assert reported == []


def test_duels_that_were_not_written_are_counted_with_the_next() -> None:
    """The limit applies to what is written, not to the count."""
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


def test_fenced_requests_that_were_not_written_are_counted_with_the_next() -> None:
    h = Harness()
    first = h.static("a", session_timeout_ms=600_000)
    h.stable_group(first)
    first.restarted().join()
    for _ in range(25):
        first.heartbeat()
    h.sleep(60_000)
    first.heartbeat()
    before = counted()
    announce(h.events)
    assert counted()["muster_instance_fences_total"] - before["muster_instance_fences_total"] == 26


def test_rebalances_are_counted_by_their_causes() -> None:
    """Once for each rebalance that starts."""

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
