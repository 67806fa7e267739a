"""The metrics of several processes as those of one."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from muster.coordinator.processes.summed_metrics import ChildMetrics, SummedMetrics


def told_by(requests: int, waits_s: float, connections: int, late_s: float) -> str:
    """The metrics text of one process."""
    registry = CollectorRegistry()
    counter = Counter("requests", "Requests.", ["api"], registry=registry)
    counter.labels("Heartbeat").inc(requests)
    histogram = Histogram("append_seconds", "Appends.", buckets=(0.1, 1.0), registry=registry)
    histogram.observe(waits_s)
    Gauge("connections", "Connections.", registry=registry).set(connections)
    Gauge("loop_late_seconds", "Lateness.", registry=registry).set(late_s)
    Gauge("build_info", "Build.", ["version"], registry=registry).labels("1").set(1)
    return generate_latest(registry).decode()


def samples(texts: list[str]) -> dict[tuple[str, str], float]:
    """Samples by name and the first label's value."""
    told = [ChildMetrics(f"process-{number}", 1, text) for number, text in enumerate(texts)]
    return sampled(SummedMetrics(lambda: told))


def sampled(summed: SummedMetrics) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    registry.register(summed)
    text = generate_latest(registry).decode()
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_and_histograms_are_summed_and_the_largest_time_is_kept() -> None:
    told = samples([told_by(3, 0.05, 10, 0.2), told_by(4, 0.5, 7, 0.1)])
    assert told["requests_total", "Heartbeat"] == 7
    assert told["append_seconds_bucket", "0.1"] == 1
    assert told["append_seconds_bucket", "1.0"] == 2
    assert told["append_seconds_count", ""] == 2
    assert told["append_seconds_sum", ""] == 0.55
    assert told["connections", ""] == 17
    assert told["loop_late_seconds", ""] == 0.2
    assert told["build_info", "1"] == 1


def gauges(**values: float) -> str:
    registry = CollectorRegistry()
    for name, value in values.items():
        Gauge(name, "Of one.", registry=registry).set(value)
    return generate_latest(registry).decode()


def test_alerts_on_gauges_are_right_of_several_processes() -> None:
    """No partition is missing, as all report the total; files are short if one process has hardly any left."""
    told = samples(
        [
            gauges(
                muster_ready=1, muster_partitions=8, muster_log_partitions=8, process_open_fds=60, process_max_fds=100
            ),
            gauges(
                muster_ready=0, muster_partitions=0, muster_log_partitions=8, process_open_fds=50, process_max_fds=100
            ),
        ]
    )
    assert told["muster_ready", ""] == 0
    assert told["muster_partitions", ""] == told["muster_log_partitions", ""] == 8
    assert told["process_open_fds", ""] / told["process_max_fds", ""] == 0.6


def test_all_are_unready_while_one_process_reports_nothing() -> None:
    """It hangs, or is starting: the others cannot speak for it. The same before any has reported."""
    told = [ChildMetrics("owner", 1, gauges(muster_ready=1)), ChildMetrics("edge-1", 1, gauges(muster_ready=1))]
    for answering, is_ready in ((told, 1), (told[:1], 0), ([], 0)):
        summed = SummedMetrics(lambda these=answering: these, ["owner", "edge-1"])  # type: ignore[misc]
        assert sampled(summed) == {("muster_ready", ""): is_ready}


def test_no_gauge_of_muster_is_summed_that_must_not_be() -> None:
    """A standby's partitions are counted as ready by the process that counts them."""
    text = gauges(muster_standby_partitions=4, muster_standby_partitions_ready=3)
    told = samples([text, text])
    assert (told["muster_standby_partitions", ""], told["muster_standby_partitions_ready", ""]) == (8, 6)


def test_metrics_of_one_process_are_unchanged() -> None:
    alone = samples([told_by(3, 0.05, 10, 0.2)])
    assert alone["requests_total", "Heartbeat"] == 3
    assert alone["loop_late_seconds", ""] == 0.2


def test_without_processes_there_are_no_metrics() -> None:
    assert samples([]) == {}


def test_the_counts_of_a_process_remain_when_it_ends() -> None:
    """A sum never falls, while its successor starts or later; connections and ages only count live processes."""
    told: list[ChildMetrics] = []
    summed = SummedMetrics(lambda: told)
    other = ChildMetrics("other", 1, told_by(100, 0.5, 20, 0.1))
    seen = []
    for texts in (
        [ChildMetrics("process", 1, told_by(3, 0.05, 10, 0.2)), other],
        [other],
        [ChildMetrics("process", 2, told_by(1, 0.05, 1, 0.1)), other],
        [other],
        [ChildMetrics("process", 4, told_by(5, 0.05, 2, 0.1)), other],
    ):
        told[:] = texts
        now = sampled(summed)
        seen.append([now["requests_total", "Heartbeat"], now["append_seconds_count", ""], now["connections", ""]])
    assert seen == [[103, 2, 30], [103, 2, 20], [104, 3, 21], [104, 3, 20], [109, 4, 22]]
