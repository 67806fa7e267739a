"""The partition counts of topics upstream, from the Metadata that the link requests anyway.

Each of its requests names at most TOPICS_AT_ONCE of the topics, in rotation, so that the cluster gets no additional
requests. A topic that does not exist, or that Muster's principal may not DESCRIBE, has no count.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from muster.coordinator.upstream.upstream_link import UpstreamLink

TOPICS_AT_ONCE: Final = 200


class UpstreamPartitionCounts:
    """Partition counts of the wanted topics, each as of the last Metadata response that named it."""

    def __init__(self, link: UpstreamLink) -> None:
        self._wanted: tuple[str, ...] = ()
        self._next = 0
        self._counts: dict[str, int] = {}
        link.on_partitions(self._asked, self._learn)

    def want(self, topics: Sequence[str]) -> None:
        self._wanted = tuple(topics)
        wanted = frozenset(topics)
        self._counts = {topic: count for topic, count in self._counts.items() if topic in wanted}

    def of(self, topic: str) -> int | None:
        return self._counts.get(topic)

    def _asked(self) -> Sequence[str]:
        """Return the topics for the next request."""
        first = self._next if self._next < len(self._wanted) else 0
        self._next = first + TOPICS_AT_ONCE
        return self._wanted[first : self._next]

    def _learn(self, counts: Mapping[str, int | None]) -> None:
        for topic, count in counts.items():
            if count is None:
                self._counts.pop(topic, None)
            else:
                self._counts[topic] = count
