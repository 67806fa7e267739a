"""The metrics of several processes as those of one."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from muster.coordinator.processes.summed_metrics import ChildMetrics, SummedMetrics


def metrics_of(requests: int, waits_s: float, connections: int, late_s: float) -> str:
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
    reported = [ChildMetrics(f"process-{number}", 1, text) for number, text in enumerate(texts)]
    return sampled(SummedMetrics(lambda: reported))


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
    reported = samples([metrics_of(3, 0.05, 10, 0.2), metrics_of(4, 0.5, 7, 0.1)])
    assert reported["requests_total", "Heartbeat"] == 7
    assert reported["append_seconds_bucket", "0.1"] == 1
    assert reported["append_seconds_bucket", "1.0"] == 2
    assert reported["append_seconds_count", ""] == 2
    assert reported["append_seconds_sum", ""] == 0.55
    assert reported["connections", ""] == 17
    assert reported["loop_late_seconds", ""] == 0.2
    assert reported["build_info", "1"] == 1


def gauges(**values: float) -> str:
    registry = CollectorRegistry()
    for name, value in values.items():
        Gauge(name, "Of one.", registry=registry).set(value)
    return generate_latest(registry).decode()


def test_alerts_on_gauges_are_right_of_several_processes() -> None:
    """No partition is missing, as all report the total; files are short if one process has hardly any left."""
    reported = samples(
        [
            gauges(
                muster_ready=1, muster_partitions=8, muster_log_partitions=8, process_open_fds=60, process_max_fds=100
            ),
            gauges(
                muster_ready=0, muster_partitions=0, muster_log_partitions=8, process_open_fds=50, process_max_fds=100
            ),
        ]
    )
    assert reported["muster_ready", ""] == 0
    assert reported["muster_partitions", ""] == reported["muster_log_partitions", ""] == 8
    assert reported["process_open_fds", ""] / reported["process_max_fds", ""] == 0.6


def test_all_are_unready_while_one_process_reports_nothing() -> None:
    """It hangs, or is starting: the others cannot speak for it. The same before any has reported."""
    reported = [ChildMetrics("owner", 1, gauges(muster_ready=1)), ChildMetrics("edge-1", 1, gauges(muster_ready=1))]
    for answering, is_ready in ((reported, 1), (reported[:1], 0), ([], 0)):
        summed = SummedMetrics(lambda these=answering: these, ["owner", "edge-1"])  # type: ignore[misc]
        assert sampled(summed) == {("muster_ready", ""): is_ready}


def test_no_gauge_of_muster_is_summed_that_must_not_be() -> None:
    """A standby's partitions are counted as ready by the process that counts them."""
    text = gauges(muster_standby_partitions=4, muster_standby_partitions_ready=3)
    reported = samples([text, text])
    assert (reported["muster_standby_partitions", ""], reported["muster_standby_partitions_ready", ""]) == (8, 6)


def test_metrics_of_one_process_are_unchanged() -> None:
    alone = samples([metrics_of(3, 0.05, 10, 0.2)])
    assert alone["requests_total", "Heartbeat"] == 3
    assert alone["loop_late_seconds", ""] == 0.2


def test_without_processes_there_are_no_metrics() -> None:
    assert samples([]) == {}


def test_the_counts_of_a_process_remain_when_it_ends() -> None:
    """A sum never falls, while its successor starts or later; connections and ages only count live processes."""
    reported: list[ChildMetrics] = []
    summed = SummedMetrics(lambda: reported)
    other = ChildMetrics("other", 1, metrics_of(100, 0.5, 20, 0.1))
    seen = []
    for texts in (
        [ChildMetrics("process", 1, metrics_of(3, 0.05, 10, 0.2)), other],
        [other],
        [ChildMetrics("process", 2, metrics_of(1, 0.05, 1, 0.1)), other],
        [other],
        [ChildMetrics("process", 4, metrics_of(5, 0.05, 2, 0.1)), other],
    ):
        reported[:] = texts
        now = sampled(summed)
        seen.append([now["requests_total", "Heartbeat"], now["append_seconds_count", ""], now["connections", ""]])
    assert seen == [[103, 2, 30], [103, 2, 20], [104, 3, 21], [104, 3, 20], [109, 4, 22]]
