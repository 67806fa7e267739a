"""Lines of the log that would come again and again: one when something begins, then one a minute, one when it is over.

What belongs here: whether a line is due, and how many went suppressed. What it must not know: what the lines say. Pure.
"""

from collections.abc import Callable, Hashable
from typing import Final

import msgspec

LINE_INTERVAL_MS: Final = 60_000
KEYS_MAX: Final = 1_000
"""What is told of most: what began first is forgotten then, and begins anew."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What is over: for how long it went on, and how often it was to be told."""

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
        self._ongoing: dict[Hashable, _Ongoing] = {}

    def due(self, key: Hashable) -> int | None:
        """How many went suppressed since the last line, when one is due; None: it goes suppressed."""
        now_ms = self._monotonic_ms()
        ongoing = self._ongoing.get(key)
        if ongoing is None:
            if len(self._ongoing) >= KEYS_MAX:
                del self._ongoing[next(iter(self._ongoing))]
            self._ongoing[key] = _Ongoing(since_ms=now_ms, line_ms=now_ms)
            return 0
        ongoing.times += 1
        if now_ms - ongoing.line_ms < LINE_INTERVAL_MS:
            ongoing.suppressed += 1
            return None
        suppressed, ongoing.suppressed, ongoing.line_ms = ongoing.suppressed, 0, now_ms
        return suppressed

    def end(self, key: Hashable) -> Ended | None:
        """It goes on no more; None: it did not."""
        ongoing = self._ongoing.pop(key, None)
        if ongoing is None:
            return None
        return Ended(seconds=(self._monotonic_ms() - ongoing.since_ms) // 1000, times=ongoing.times)
