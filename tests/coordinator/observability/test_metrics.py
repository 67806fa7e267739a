"""The metrics page, limits on labels, and metrics that are computed on scrape."""

import asyncio
from collections.abc import Sequence

import pytest
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry, generate_latest

from muster.coordinator.observability.group_metrics import NAMED_GROUPS, NAMED_GROUPS_MAX, GroupMetrics, NamedGroups
from muster.coordinator.observability.metrics import REGISTRY, ServerMetrics
from muster.coordinator.observability.process_metrics import process_collectors
from muster.coordinator.runtime.partition.outbox import kind_of
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.wire.registry import APIS
from muster.events.ids import GroupId
from muster.events.log.base import Deposed, LogDamaged, LogDenied, LogUnavailable
from muster.events.log.memory import MemoryStorage
from tests.coordinator.observability.every_metric import PAGE, TABLE, every_metric, table
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate


def test_the_page_has_every_metric() -> None:
    """`python -m tests.coordinator.observability.every_metric` writes it."""
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert found.group() == table()


def test_every_own_metric_has_help_and_none_has_a_creation_time() -> None:
    for metric in every_metric():
        assert metric.documentation, metric.name
        assert not [sample.name for sample in metric.samples if sample.name.endswith("_created")]
        assert metric.name.startswith(("muster_", "process_", "python_")), metric.name


def test_heartbeats_outside_of_the_fast_path_are_counted() -> None:
    """In all versions, and no other requests."""
    metrics, registry = ServerMetrics(APIS), CollectorRegistry()
    registry.register(metrics)
    for api_key, version in ((12, 4), (12, 3), (11, 9)):
        metrics.count_request(api_key, version)
    metrics.fast_heartbeats = 7
    assert registry.get_sample_value("muster_decoded_heartbeats_total") == 2
    assert registry.get_sample_value("muster_fast_heartbeats_total") == 7


def test_the_process_reports_its_version_and_readiness() -> None:
    ready = [False]
    registry = CollectorRegistry()
    for collector in process_collectors("sidecar", lambda: ready[0]):
        registry.register(collector)
    assert registry.get_sample_value("muster_ready") == 0
    ready[0] = True
    assert registry.get_sample_value("muster_ready") == 1
    text = generate_latest(registry).decode()
    assert 'mode="sidecar"' in text
    assert "process_open_fds" in text
    assert "python_gc_collections_total" in text


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Deposed(0, 1), "deposed"),
        (LogDenied("no right"), "denied"),
        (LogUnavailable("away"), "unavailable"),
        (LogDamaged("torn"), "other"),
    ],
)
def test_a_failed_append_has_a_kind(error: Exception, kind: str) -> None:
    assert kind_of(error).value == kind


def test_a_failed_append_and_the_lost_partition_are_counted() -> None:
    """Each with its reason."""

    def counted() -> Sequence[float]:
        return [
            REGISTRY.get_sample_value(name, labels) or 0.0
            for name, labels in (
                ("muster_append_failures_total", {"kind": "deposed"}),
                ("muster_partitions_lost_total", {"reason": "deposed"}),
            )
        ]

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage).start()
        before = counted()
        second = await SimulatedProcess(storage).start()
        requested = first.join("a")
        assert (await requested).error is ErrorCode.not_coordinator
        assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1]
        await second.runtime.stop()

    simulate(story())


def test_takeovers_are_counted_with_their_phases() -> None:
    """Each phase once, and their total."""

    def counted() -> list[float]:
        phases = ("claim", "read", "offsets", "ready", "resume")
        name = "muster_takeover_phase_seconds_count"
        found = [REGISTRY.get_sample_value(name, {"phase": phase}) for phase in phases]
        return [each or 0.0 for each in (*found, REGISTRY.get_sample_value("muster_takeover_seconds_count"))]

    async def story() -> None:
        before = counted()
        process = await SimulatedProcess(MemoryStorage(partitions=2)).start()
        assert [now - then for now, then in zip(counted(), before, strict=True)] == [2] * 6
        await process.runtime.stop()

    simulate(story())


def test_requests_that_wait_are_counted_with_the_age_of_the_oldest() -> None:
    """Joins in the join phase; none after it."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=2)).start()
        await process.stable_group("a", "b")
        joining = process.join("c")
        await asyncio.sleep(2)
        figures = process.runtime.figures()
        assert figures.parked == {"JoinGroup": 1, "SyncGroup": 0}
        assert 2_000 <= figures.oldest_parked_ms < 2_100
        assert figures.oldest_parked_group == "orders"
        assert figures.groups["PreparingRebalance", "muster"] == 1
        joining.cancel()
        await process.runtime.stop()

    simulate(story())


def test_groups_that_have_labels_have_their_members_and_generation() -> None:
    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=2)).start()
        await process.stable_group("a", "b")
        assert (await process.commit(1, group_id=GroupId("simple"))).error is ErrorCode.none
        registry = CollectorRegistry()
        registry.register(GroupMetrics(process.runtime.figures))
        assert registry.get_sample_value("muster_group_generation", {"group": "orders"}) is None
        NAMED_GROUPS.match(["ord*"])
        try:
            of_group = {"group": "orders", "state": "Stable"}
            assert registry.get_sample_value("muster_group_members", of_group) == 2
            assert (registry.get_sample_value("muster_group_generation", {"group": "orders"}) or 0) >= 1
            assert registry.get_sample_value("muster_group_generation", {"group": "simple"}) is None
        finally:
            NAMED_GROUPS.match([])
        await process.runtime.stop()

    simulate(story())


def test_not_more_groups_than_a_thousand_have_labels() -> None:
    """The first thousand keep theirs."""
    named = NamedGroups()
    named.match(["*"])
    assert all(f"group-{number}" in named for number in range(NAMED_GROUPS_MAX))
    assert "one-more" not in named
    assert "group-0" in named


def test_the_latency_of_the_relay_is_counted_by_api() -> None:
    """In the right bucket; an API that is not named counts as "other"."""
    metrics, registry = RelayMetrics(), CollectorRegistry()
    registry.register(metrics)
    for api_key, took_ms in ((0, 0), (0, 3), (0, 60_000), (42, 7)):
        metrics.answered(api_key, took_ms)

    def below(api: str, limit: str) -> float | None:
        return registry.get_sample_value("muster_relay_seconds_bucket", {"api": api, "le": limit})

    assert [below("Produce", limit) for limit in ("0.001", "0.005", "30.0", "+Inf")] == [1, 2, 2, 3]
    assert registry.get_sample_value("muster_relay_seconds_sum", {"api": "Produce"}) == 60.003
    assert (below("other", "0.005"), below("other", "0.01")) == (0, 1)
