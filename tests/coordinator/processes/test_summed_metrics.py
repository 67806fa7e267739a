"""The metrics of several processes as those of one."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from muster.coordinator.processes.summed_metrics import SummedMetrics, ToldMetrics


def told_by(requests: int, waits_s: float, connections: int, late_s: float) -> str:
    """The text of one process."""
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
    told = [ToldMetrics(f"process-{number}", 1, text) for number, text in enumerate(texts)]
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


def test_counters_and_histograms_add_up_and_of_times_the_largest_is_told() -> None:
    told = samples([told_by(3, 0.05, 10, 0.2), told_by(4, 0.5, 7, 0.1)])
    assert told["requests_total", "Heartbeat"] == 7
    assert told["append_seconds_bucket", "0.1"] == 1
    assert told["append_seconds_bucket", "1.0"] == 2
    assert told["append_seconds_count", ""] == 2
    assert told["append_seconds_sum", ""] == 0.55
    assert told["connections", ""] == 17
    assert told["loop_late_seconds", ""] == 0.2
    assert told["build_info", "1"] == 1


def test_of_one_process_all_is_told_as_it_is() -> None:
    alone = samples([told_by(3, 0.05, 10, 0.2)])
    assert alone["requests_total", "Heartbeat"] == 3
    assert alone["loop_late_seconds", ""] == 0.2


def test_of_none_nothing_is_told() -> None:
    assert samples([]) == {}


def test_what_a_process_has_counted_stays_when_it_ends() -> None:
    """A sum never falls, while its successor is being started and after; connections and ages are of the living."""
    told: list[ToldMetrics] = []
    summed = SummedMetrics(lambda: told)
    other = ToldMetrics("other", 1, told_by(100, 0.5, 20, 0.1))
    seen = []
    for texts in (
        [ToldMetrics("process", 1, told_by(3, 0.05, 10, 0.2)), other],
        [other],
        [ToldMetrics("process", 2, told_by(1, 0.05, 1, 0.1)), other],
        [other],
        [ToldMetrics("process", 4, told_by(5, 0.05, 2, 0.1)), other],
    ):
        told[:] = texts
        now = sampled(summed)
        seen.append([now["requests_total", "Heartbeat"], now["append_seconds_count", ""], now["connections", ""]])
    assert seen == [[103, 2, 30], [103, 2, 20], [104, 3, 21], [104, 3, 20], [109, 4, 22]]
