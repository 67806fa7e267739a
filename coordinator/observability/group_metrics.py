"""The metrics of groups, members and requests that wait, which are counted when somebody asks for them.

What belongs here: their form. They are asked for in the endpoint's thread, and made from copies of the tables of the
loop, a little at a time (`in_slices`), so that the loop has its turn in between.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, TypeVar

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

NAMED_GROUPS_MAX: Final = 1_000
"""The groups that have labels of their own (`--metrics-groups`), at most."""

HERE: Final = "muster"
UPSTREAM: Final = "upstream"

_AT_ONCE: Final = 256

T = TypeVar("T")


def in_slices(items: Iterable[T], at_once: int = _AT_ONCE) -> Iterator[T]:
    """Yield the items, and let other threads run now and then. For threads other than the loop's."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % at_once:
            time.sleep(0)


class NamedGroups:
    """Which groups have labels of their own: the first `NAMED_GROUPS_MAX` that a pattern matches. Thread-safe."""

    def __init__(self) -> None:
        self._patterns: tuple[str, ...] = ()
        self._named: dict[str, None] = {}

    def match(self, patterns: Sequence[str]) -> None:
        """Name the groups whose ids these patterns match, from now on."""
        self._patterns, self._named = tuple(patterns), {}

    def __contains__(self, group_id: str) -> bool:
        if group_id in self._named:
            return True
        if len(self._named) >= NAMED_GROUPS_MAX or not any(fnmatchcase(group_id, each) for each in self._patterns):
            return False
        self._named[group_id] = None
        return True


NAMED_GROUPS: Final = NamedGroups()
"""Those of the process, as the registry is."""


class NamedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group that has labels of its own."""

    group_id: str
    state: str
    members: int
    generation_id: int


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The groups, members and partitions that the process coordinates at the moment."""

    groups: Mapping[tuple[str, str], int]
    """The number of groups by state and coordinator."""
    members: Mapping[tuple[str, str], int]
    """The number of their members, by the same."""
    quarantined: int
    partitions: int
    log_partitions: int
    """0 until the log is open."""
    parked: Mapping[str, int]
    """The number of requests that wait in a rebalance, by API."""
    oldest_parked_ms: int
    oldest_parked_group: str = ""
    named: tuple[NamedGroup, ...] = ()


class GroupMetrics(Collector):
    """Asks for the figures when it is asked itself, in another thread than that of the groups."""

    def __init__(self, figures: Callable[[], GroupFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        """Yield the figures as metrics."""
        figures = self._figures()
        labels = ("state", "coordinator")
        for name, text, counts in (
            ("muster_groups", "Groups with a record in the event log, by who coordinates them", figures.groups),
            ("muster_members", "Members of these groups, absent static ones too", figures.members),
        ):
            by_state = GaugeMetricFamily(name, text, labels=labels)
            for (state, coordinator), count in sorted(counts.items()):
                by_state.add_metric((state, coordinator), count)
            yield by_state
        parked = GaugeMetricFamily(
            "muster_parked_requests", "Joins and syncs that wait in a rebalance", labels=("api",)
        )
        for api, count in figures.parked.items():
            parked.add_metric((api,), count)
        yield parked
        for name, text, value in (
            ("muster_parked_oldest_seconds", "The age of the oldest of them", figures.oldest_parked_ms / 1000),
            ("muster_quarantined_groups", "Groups not served, since a record cannot be read", figures.quarantined),
            ("muster_partitions", "Partitions of the event log that this process serves", figures.partitions),
            ("muster_log_partitions", "Partitions that the event log has", figures.log_partitions),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield from _of_named(figures.named)


def _of_named(named: Iterable[NamedGroup]) -> Iterator[Metric]:
    members = GaugeMetricFamily(
        "muster_group_members", "Members of one group, of those that --metrics-groups names", labels=("group", "state")
    )
    generations = GaugeMetricFamily(
        "muster_group_generation", "The generation of one group, of the same", labels=("group",)
    )
    for group in named:
        members.add_metric((group.group_id, group.state), group.members)
        generations.add_metric((group.group_id,), group.generation_id)
    yield members
    yield generations
