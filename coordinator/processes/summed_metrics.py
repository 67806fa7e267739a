"""Combines the metrics of several processes as if of one: counters and histograms are added up.

Gauges are added up too, which is right for connections, members and bytes. Where a sum would be meaningless the largest
value is used: for ages, delays and times, for open files, of which each process has its own limit, and for values that
are the same in all (`*_info`, the partitions of the log). `muster_ready` is the smallest value, and 0 while a process
does not answer. The last known counts of an ended process are kept: if the sum fell, it would look as if all counters
had been reset.
"""

import operator
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import msgspec
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_LARGEST: Final = ("_info", "_seconds", "_open_fds", "_max_fds", "_log_partitions", "_lag_records", "_group_generation")
READY: Final = "muster_ready"
_SMALLEST: Final = (READY,)


class ChildMetrics(msgspec.Struct, frozen=True):
    """The text of a process's metrics. `starts`: number of starts so far; counters restart at 0 with each."""

    process: str
    starts: int
    text: str


class SummedMetrics(Collector):
    """One exposition for all `processes`. `read` returns the exposition of each process that answers."""

    def __init__(self, read: Callable[[], Iterable[ChildMetrics]], processes: Collection[str] = ()) -> None:
        self._read = read
        self._processes = processes
        self._last: dict[str, tuple[int, list[Metric]]] = {}
        """The last metrics of each process, and its number of starts then."""
        self._ended: list[Metric] = []
        """The counts of processes that have exited."""
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Sum the current metrics of the processes."""
        told = [(each, list(text_string_to_metric_families(each.text))) for each in self._read()]
        with self._lock:
            for each, families in told:
                self._take_in(each, families)
            answering = {each.process for each, _ in told}
            silent = [counted(families) for name, (_, families) in self._last.items() if name not in answering]
            not_ready = [] if answering >= set(self._processes) else [_not_ready()]
            of_all = [self._ended, *silent, *(families for _, families in told), not_ready]
            yield from list(summed(of_all))

    def _take_in(self, told: ChildMetrics, families: list[Metric]) -> None:
        starts, last = self._last.get(told.process, (told.starts, []))
        if starts < told.starts:
            self._ended = list(summed([self._ended, counted(last)]))
        if starts <= told.starts:
            self._last[told.process] = told.starts, families


def counted(families: Iterable[Metric]) -> list[Metric]:
    """Return the families that only grow."""
    return [family for family in families if family.type in {"counter", "histogram", "summary"}]


def _not_ready() -> Metric:
    """Return the metric in place of a process that does not answer."""
    return GaugeMetricFamily(READY, "1 if /readyz reports ready, else 0", value=0)


def summed(of_each: Iterable[Iterable[Metric]]) -> Iterator[Metric]:
    """Return one family per name, with one sample per name and labels."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for of_one in of_each:
        for family in of_one:
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            of_family = values.setdefault(family.name, {})
            put_together = _of_gauge(family.name) if family.type == "gauge" else operator.add
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                before = of_family.get(key)
                of_family[key] = sample.value if before is None else put_together(before, sample.value)
    for name, family in families.items():
        for (sample_name, labels), value in values[name].items():
            family.add_sample(sample_name, dict(labels), value)
        yield family


def _of_gauge(name: str) -> Callable[[float, float], float]:
    """Return how the gauge values of two processes are combined."""
    if name.endswith(_SMALLEST):
        return min
    return max if name.endswith(_LARGEST) else operator.add
