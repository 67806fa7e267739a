"""The metrics of groups, members and waiting requests, which are counted at each scrape.

They are collected in the endpoint's thread from copies of the event loop's tables, a few entries at a time
(`in_slices`), so that the event loop can run in between.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, TypeVar

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

NAMED_GROUPS_MAX: Final = 1_000
"""Limit of groups with labels of their own (`--metrics-groups`)."""

HERE: Final = "muster"
UPSTREAM: Final = "upstream"

_AT_ONCE: Final = 256

T = TypeVar("T")


def in_slices(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, letting other threads run in between. Not for the event loop's thread."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % _AT_ONCE:
            time.sleep(0)


class NamedGroups:
    """The groups with labels of their own: the first `NAMED_GROUPS_MAX` that match a pattern. Thread-safe."""

    def __init__(self) -> None:
        self._patterns: tuple[str, ...] = ()
        self._named: dict[str, None] = {}

    def match(self, patterns: Sequence[str]) -> None:
        """From now on, name the groups whose ids match these patterns."""
        self._patterns, self._named = tuple(patterns), {}

    def __contains__(self, group_id: str) -> bool:
        if group_id in self._named:
            return True
        if len(self._named) >= NAMED_GROUPS_MAX or not any(fnmatchcase(group_id, each) for each in self._patterns):
            return False
        self._named[group_id] = None
        return True


NAMED_GROUPS: Final = NamedGroups()
"""One for the process, like the registry."""


class NamedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group with labels of its own."""

    group_id: str
    state: str
    members: int
    generation_id: int


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The groups, members and partitions that the process coordinates now."""

    groups: Mapping[tuple[str, str], int]
    """Number of groups by state and coordinator."""
    members: Mapping[tuple[str, str], int]
    """Number of their members, by the same labels."""
    quarantined: int
    partitions: int
    log_partitions: int
    """0 until the log is open."""
    parked: Mapping[str, int]
    """Number of requests parked in a rebalance, by API."""
    oldest_parked_ms: int
    oldest_parked_group: str = ""
    named: tuple[NamedGroup, ...] = ()


class GroupMetrics(Collector):
    """Collects the figures at each scrape, outside the groups' thread."""

    def __init__(self, figures: Callable[[], GroupFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        figures = self._figures()
        labels = ("state", "coordinator")
        for name, text, counts in (
            (
                "muster_groups",
                "Groups with a record in the event log, by state and coordinator (muster or upstream)",
                figures.groups,
            ),
            ("muster_members", "Members of all groups, including absent static members", figures.members),
        ):
            by_state = GaugeMetricFamily(name, text, labels=labels)
            for (state, coordinator), count in sorted(counts.items()):
                by_state.add_metric((state, coordinator), count)
            yield by_state
        parked = GaugeMetricFamily(
            "muster_parked_requests", "Joins and syncs that are waiting in a rebalance", labels=("api",)
        )
        for api, count in figures.parked.items():
            parked.add_metric((api,), count)
        yield parked
        for name, text, value in (
            (
                "muster_parked_oldest_seconds",
                "How long the longest-waiting join or sync has waited",
                figures.oldest_parked_ms / 1000,
            ),
            (
                "muster_quarantined_groups",
                "Groups that are not served because a record cannot be read",
                figures.quarantined,
            ),
            ("muster_partitions", "Partitions of the event log that this process serves", figures.partitions),
            ("muster_log_partitions", "Partitions of the event log", figures.log_partitions),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield from _of_named(figures.named)


def _of_named(named: Iterable[NamedGroup]) -> Iterator[Metric]:
    members = GaugeMetricFamily(
        "muster_group_members", "Members, of the groups that --metrics-groups names", labels=("group", "state")
    )
    generations = GaugeMetricFamily(
        "muster_group_generation", "Generation, of the groups that --metrics-groups names", labels=("group",)
    )
    for group in named:
        members.add_metric((group.group_id, group.state), group.members)
        generations.add_metric((group.group_id,), group.generation_id)
    yield members
    yield generations
