"""The metrics of several processes as those of one: counters and histograms are added up.

What belongs here: how samples become one. What it must not know: where they come from.

Of a gauge the sum is told, which is right for connections, members and bytes. Where that would say nothing it is the
largest: of ages, delays and times, and of what is the same in all (`*_info`).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_LARGEST: Final = ("_info", "_seconds", "_timestamp", "_ms", "_max_fds")


class SummedMetrics(Collector):
    """See the module. `read` gets the text of each process that answers."""

    def __init__(self, read: Callable[[], Iterable[str]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Sum what the processes tell now."""
        yield from summed(self._read())


def summed(texts: Iterable[str]) -> Iterator[Metric]:
    """Return one family for each name, with one sample for each name and labels."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            of_family = values.setdefault(family.name, {})
            takes_largest = family.type == "gauge" and family.name.endswith(_LARGEST)
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                before = of_family.get(key)
                if before is None:
                    of_family[key] = sample.value
                else:
                    of_family[key] = max(before, sample.value) if takes_largest else before + sample.value
    for name, family in families.items():
        for (sample_name, labels), value in values[name].items():
            family.add_sample(sample_name, dict(labels), value)
        yield family
