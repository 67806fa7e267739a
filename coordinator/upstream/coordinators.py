"""Cache of each group's coordinator upstream, and of when that broker was last seen to be away.

What belongs here: what was learned from answers and failures. What it must not know: how brokers are asked.
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
"""Bounded, since clients may name any number of groups, as is the length of the ids that are kept."""


class Heard(msgspec.Struct):
    """Up to when a broker is known to have heard clients: when the latest request that it has answered was sent.

    In monotonic ms; 0: it has answered none. Bytes alone prove nothing: the kernel of a machine whose broker hangs goes
    on sending what the broker had answered before, for as long as somebody reads it.
    """

    until_ms: int = 0

    def answered(self, sent_ms: int) -> None:
        """Note the beginning of an answer to a request that was sent at that time, or later."""
        if sent_ms > self.until_ms:  # noqa: PLR1730 -- every answer comes by, and a call takes longer
            self.until_ms = sent_ms


HeardFrom = defaultdict[int | None, Heard]
"""Keyed by node id; None: from any broker."""


class GroupCoordinators:
    """Which upstream broker coordinates each group, and when that broker last failed to answer."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self.heard = HeardFrom(Heard)
        self._nodes: LRUCache[str, int] = LRUCache(GROUPS_KEPT)
        self._away: LRUCache[str, Unheard] = LRUCache(GROUPS_KEPT)
        self._broker_away: dict[int, Unheard] = {}
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
        """Note that the group's coordinator could not be asked, unless Muster itself had run out of something."""
        if not isinstance(error, OwnShortage):
            node_id = self._nodes.get(group_id)
            self._was_away(group_id, 0 if node_id is None else self.heard[node_id].until_ms)
        self.forget(group_id)

    def moved(self, group_id: str, error: ErrorCode) -> None:
        """Note that the broker is not the group's coordinator, or is loading the group; since when is not known."""
        if error is not ErrorCode.not_coordinator:
            self._was_away(group_id, 0)
        self.forget(group_id)

    def _was_away(self, group_id: str, heard_until_ms: int) -> None:
        if is_remembered(group_id):
            self._away[group_id] = self._now_away(self._away.get(group_id), heard_until_ms)

    def broker_was_away(self, node_id: int) -> None:
        """Note that no connection could be opened to this broker."""
        before = self._broker_away.get(node_id)
        self._broker_away[node_id] = self._now_away(before, self.heard[node_id].until_ms)

    def _now_away(self, before: Unheard | None, heard_until_ms: int) -> Unheard:
        """Return the time away: until now, since it was last heard; longer if it has been away without a break."""
        goes_on = before is not None and heard_until_ms <= before.until_ms
        since_ms = before.since_ms if before is not None and goes_on else heard_until_ms
        return Unheard(since_ms, self._monotonic_ms())

    def last_away(self, group_id: str) -> Unheard | None:
        """When the group's coordinator was last seen to be away; None: never."""
        node_id = self._nodes.get(group_id)
        of_broker = None if node_id is None else self._broker_away.get(node_id)
        seen = [each for each in (of_broker, self._away.get(group_id)) if each is not None]
        return max(seen, key=attrgetter("until_ms"), default=None)
