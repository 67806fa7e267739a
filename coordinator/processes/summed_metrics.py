"""The metrics of several processes as those of one: counters and histograms are added up.

What belongs here: how samples become one. What it must not know: where they come from.

Of a gauge the sum is told, which is right for connections, members and bytes. Where that would say nothing it is the
largest: of ages, delays and times, of open files, which each has a limit of its own for, and of what is the same in all
(`*_info`, the partitions of the log). All are ready when each is, so of `muster_ready` it is the smallest, and 0 while
one does not answer. What a
process has counted stays when it ends, as far as it was told: a sum that falls would be taken for counters that began
anew, all of them.
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


class ToldMetrics(msgspec.Struct, frozen=True):
    """The text of a process's metrics. `starts`: how often it was started, as its counters begin anew each time."""

    process: str
    starts: int
    text: str


class SummedMetrics(Collector):
    """One exposition for all `processes`. `read` returns what each process that answers exposes."""

    def __init__(self, read: Callable[[], Iterable[ToldMetrics]], processes: Collection[str] = ()) -> None:
        self._read = read
        self._processes = processes
        self._last: dict[str, tuple[int, list[Metric]]] = {}
        """The last metrics of each process, and after how many starts those were."""
        self._ended: list[Metric] = []
        """The counts of those that have ended."""
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Sum what the processes tell now."""
        told = [(each, list(text_string_to_metric_families(each.text))) for each in self._read()]
        with self._lock:
            for each, families in told:
                self._take_in(each, families)
            answering = {each.process for each, _ in told}
            silent = [counted(families) for name, (_, families) in self._last.items() if name not in answering]
            not_ready = [] if answering >= set(self._processes) else [_not_ready()]
            of_all = [self._ended, *silent, *(families for _, families in told), not_ready]
            yield from list(summed(of_all))

    def _take_in(self, told: ToldMetrics, families: list[Metric]) -> None:
        starts, last = self._last.get(told.process, (told.starts, []))
        if starts < told.starts:
            self._ended = list(summed([self._ended, counted(last)]))
        if starts <= told.starts:
            self._last[told.process] = told.starts, families


def counted(families: Iterable[Metric]) -> list[Metric]:
    """Return those that only grow."""
    return [family for family in families if family.type in {"counter", "histogram", "summary"}]


def _not_ready() -> Metric:
    """Return what a process that does not answer would tell."""
    return GaugeMetricFamily(READY, "Whether /readyz says ready: 1, else 0", value=0)


def summed(of_each: Iterable[Iterable[Metric]]) -> Iterator[Metric]:
    """Return one family for each name, with one sample for each name and labels."""
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
    """Return how the values of two processes become one."""
    if name.endswith(_SMALLEST):
        return min
    return max if name.endswith(_LARGEST) else operator.add
