"""Cache of each group's coordinator upstream, and of when that broker was last seen to be away.

What belongs here: what was learned from answers and failures. What it must not know: how brokers are asked.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Final

import msgspec
from cachetools import LRUCache

from muster.events.ids import is_remembered
from muster.events.kafka.errors import OwnShortage, TryAgain

GROUPS_KEPT: Final = 100_000
"""Bounded, since clients may name any number of groups, as is the length of the ids that are kept."""


class Heard(msgspec.Struct):
    """Up to when a broker is known to have heard clients: when the latest request that it has answered was sent.

    In monotonic ms. Bytes alone prove nothing: the kernel of a machine whose broker hangs goes on sending what the
    broker had answered before, for as long as somebody reads it.
    """

    until_ms: float = -math.inf

    def answered(self, sent_ms: int) -> None:
        """Note the beginning of an answer to a request that was sent at that time, or later."""
        if sent_ms > self.until_ms:  # noqa: PLR1730 -- every answer comes by, and a call takes longer
            self.until_ms = sent_ms


HeardFrom = defaultdict[int | None, Heard]
"""Keyed by node id; None: from any broker."""


class Coordinators:
    """See the module."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._nodes: LRUCache[str, int] = LRUCache(GROUPS_KEPT)
        self._away_ms: LRUCache[str, int] = LRUCache(GROUPS_KEPT)
        self._broker_away_ms: dict[int, int] = {}
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
        """Note that the group's coordinator could not be asked, unless that was for want of something of ours."""
        if not isinstance(error, OwnShortage):
            self.was_away(group_id)
        self.forget(group_id)

    def was_away(self, group_id: str) -> None:
        """Note that the group's coordinator did not answer, or was loading the group."""
        if is_remembered(group_id):
            self._away_ms[group_id] = self._monotonic_ms()

    def broker_was_away(self, node_id: int) -> None:
        """Note that no connection could be opened to this broker."""
        self._broker_away_ms[node_id] = self._monotonic_ms()

    def last_away_ms(self, group_id: str) -> int | None:
        """When the group's coordinator was last seen to be away, in monotonic time; None: never."""
        node_id = self._nodes.get(group_id)
        of_broker = None if node_id is None else self._broker_away_ms.get(node_id)
        seen = [each for each in (of_broker, self._away_ms.get(group_id)) if each is not None]
        return max(seen, default=None)
