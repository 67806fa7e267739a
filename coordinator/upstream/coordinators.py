"""Cache of each group's coordinator upstream, and of the last time that this broker was unreachable.

Learns from responses and failures; upstream_link.py sends the requests.
"""

from collections import defaultdict
from collections.abc import Callable
from operator import attrgetter
from typing import Final

import msgspec
from cachetools import LRUCache
from kio.schema.errors import ErrorCode

from muster.coordinator.group.extensions import Unheard
from muster.events.ids import is_remembered
from muster.events.kafka.errors import OwnShortage, TryAgain

GROUPS_KEPT: Final = 100_000
"""Limited, since clients may name any number of groups. The length of cached ids is limited too."""


class Heard(msgspec.Struct):
    """The time until which a broker is known to have read requests: the send time of the latest one that it answered.

    `until_ms` is in monotonic ms, and 0 if the broker has answered no request. The arrival of bytes alone proves
    nothing: when a broker hangs, the kernel of its machine keeps sending what the broker wrote before, as long as we
    read.
    """

    until_ms: int = 0

    def answered(self, sent_ms: int) -> None:
        """Note that a response began to a request that was sent at that time, or later."""
        if sent_ms > self.until_ms:  # noqa: PLR1730 -- called for every response, and a call of max() takes longer
            self.until_ms = sent_ms


HeardFrom = defaultdict[int | None, Heard]
"""Keyed by node id; None: any broker."""


class GroupCoordinators:
    """The upstream coordinator of each group, and when that broker last failed to answer."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self.heard = HeardFrom(Heard)
        self._nodes: LRUCache[str, int] = LRUCache(GROUPS_KEPT)
        self._group_outages: LRUCache[str, Unheard] = LRUCache(GROUPS_KEPT)
        self._broker_outages: dict[int, Unheard] = {}
        """Keyed by node id, for brokers that have a listener."""

    def known(self, group_id: str) -> int | None:
        """Return the node id of the group's coordinator; None if it has to be looked up."""
        return self._nodes.get(group_id)

    def learn(self, group_id: str, node_id: int) -> None:
        if is_remembered(group_id):
            self._nodes[group_id] = node_id

    def forget(self, group_id: str) -> None:
        self._nodes.pop(group_id, None)

    def failed(self, group_id: str, error: TryAgain) -> None:
        """Note that the group's coordinator was unreachable, unless Muster itself was short of ports or files."""
        if not isinstance(error, OwnShortage):
            node_id = self._nodes.get(group_id)
            self._note_outage(group_id, 0 if node_id is None else self.heard[node_id].until_ms)
        self.forget(group_id)

    def moved(self, group_id: str, error: ErrorCode) -> None:
        """Note that the broker is not the group's coordinator, or is loading the group; since when is unknown."""
        if error is not ErrorCode.not_coordinator:
            self._note_outage(group_id, 0)
        self.forget(group_id)

    def _note_outage(self, group_id: str, heard_until_ms: int) -> None:
        if is_remembered(group_id):
            self._group_outages[group_id] = self._outage_until_now(self._group_outages.get(group_id), heard_until_ms)

    def note_broker_outage(self, node_id: int) -> None:
        """Note that no connection could be opened to this broker."""
        before = self._broker_outages.get(node_id)
        self._broker_outages[node_id] = self._outage_until_now(before, self.heard[node_id].until_ms)

    def _outage_until_now(self, before: Unheard | None, heard_until_ms: int) -> Unheard:
        """Return the outage up to now. It continues the previous one if the broker has not been heard in between."""
        continues = before is not None and heard_until_ms <= before.until_ms
        since_ms = before.since_ms if before is not None and continues else heard_until_ms
        return Unheard(since_ms, self._monotonic_ms())

    def last_outage(self, group_id: str) -> Unheard | None:
        """Return when the group's coordinator was last unreachable; None: never."""
        node_id = self._nodes.get(group_id)
        of_broker = None if node_id is None else self._broker_outages.get(node_id)
        seen = [each for each in (of_broker, self._group_outages.get(group_id)) if each is not None]
        return max(seen, key=attrgetter("until_ms"), default=None)
