"""A throttle of repeated log lines: one when something begins, then one a minute, one when it ends.

What belongs here: whether a line is due, and how many were suppressed. What it must not know: the lines. Pure.
"""

from collections.abc import Callable, Hashable
from typing import Final

import msgspec
from cachetools import FIFOCache

LINE_INTERVAL_MS: Final = 60_000
KEYS_MAX: Final = 1_000
"""The limit of keys; beyond it the oldest is forgotten, and begins anew."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has ended: its duration, and how often it occurred."""

    seconds: int
    times: int


class _Ongoing(msgspec.Struct, kw_only=True):
    since_ms: int
    line_ms: int
    times: int = 1
    suppressed: int = 0


class LogThrottle:
    """See the module. A key is one peer, group or address, with the cause."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._ongoing: FIFOCache[Hashable, _Ongoing] = FIFOCache(KEYS_MAX)

    def due(self, key: Hashable) -> int | None:
        """Return how many lines were suppressed since the last one if one is due, or None to suppress it."""
        now_ms = self._monotonic_ms()
        ongoing = self._ongoing.get(key)
        if ongoing is None:
            self._ongoing[key] = _Ongoing(since_ms=now_ms, line_ms=now_ms)
            return 0
        ongoing.times += 1
        if now_ms - ongoing.line_ms < LINE_INTERVAL_MS:
            ongoing.suppressed += 1
            return None
        suppressed, ongoing.suppressed, ongoing.line_ms = ongoing.suppressed, 0, now_ms
        return suppressed

    def end(self, key: Hashable) -> Ended | None:
        """End it; returns None if it had not begun."""
        ongoing = self._ongoing.pop(key, None)
        if ongoing is None:
            return None
        return Ended(seconds=(self._monotonic_ms() - ongoing.since_ms) // 1000, times=ongoing.times)
