"""Lines of the log that would come again and again: one when something begins, then one a minute, one when it is over.

What belongs here: whether a line is due, and how many went unsaid. What it must not know: what the lines say. Pure.
"""

from collections.abc import Callable, Hashable
from typing import Final

import msgspec

SAY_AGAIN_AFTER_MS: Final = 60_000
KEYS_MAX: Final = 1_000
"""What is told of most: what began first is forgotten then, and begins anew."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What is over: for how long it went on, and how often it was to be told."""

    seconds: int
    times: int


class _Occasion(msgspec.Struct, kw_only=True):
    since_ms: int
    said_ms: int
    times: int = 1
    unsaid: int = 0


class Occasions:
    """See the module. A key is one peer, group or address, with the cause."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._going_on: dict[Hashable, _Occasion] = {}

    def tell(self, key: Hashable) -> int | None:
        """How many went unsaid since the last line, when one is due; None: it goes unsaid."""
        now_ms = self._monotonic_ms()
        occasion = self._going_on.get(key)
        if occasion is None:
            if len(self._going_on) >= KEYS_MAX:
                del self._going_on[next(iter(self._going_on))]
            self._going_on[key] = _Occasion(since_ms=now_ms, said_ms=now_ms)
            return 0
        occasion.times += 1
        if now_ms - occasion.said_ms < SAY_AGAIN_AFTER_MS:
            occasion.unsaid += 1
            return None
        unsaid, occasion.unsaid, occasion.said_ms = occasion.unsaid, 0, now_ms
        return unsaid

    def over(self, key: Hashable) -> Past | None:
        """It goes on no more; None: it did not."""
        occasion = self._going_on.pop(key, None)
        if occasion is None:
            return None
        return Past(seconds=(self._monotonic_ms() - occasion.since_ms) // 1000, times=occasion.times)
