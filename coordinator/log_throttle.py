"""Throttles for repeated log lines: one line when something begins, one a minute while it lasts, one when it ends.

Pure. Decides whether a line is due, and counts the suppressed lines.
"""

from collections.abc import Callable, Hashable
from typing import Final

import msgspec
from cachetools import FIFOCache, TTLCache

LINE_INTERVAL_MS: Final = 60_000
KEYS_MAX: Final = 1_000
"""The maximum number of keys; beyond it the oldest is forgotten, and its next line is due immediately."""
NAMES_MAX: Final = 10
SILENT_FOR_MS: Final = 2 * LINE_INTERVAL_MS


class EndedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """The duration of something that has ended, and how often it occurred."""

    seconds: int
    times: int


class _Ongoing(msgspec.Struct, kw_only=True):
    since_ms: int
    line_ms: int
    times: int = 1
    suppressed: int = 0


class LogThrottle:
    """Limits repeated log lines. A key is a cause together with one peer, group or address."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._ongoing: FIFOCache[Hashable, _Ongoing] = FIFOCache(KEYS_MAX)

    def due(self, key: Hashable) -> int | None:
        """If a line is due, return how many lines were suppressed since the last one; otherwise return None."""
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

    def suppress(self, key: Hashable) -> None:
        """Count an occurrence without a line, even if one is due: the key's next line, if any, includes it."""
        ongoing = self._ongoing.get(key)
        if ongoing is not None:
            ongoing.times += 1
            ongoing.suppressed += 1

    def end(self, key: Hashable) -> EndedEpisode | None:
        """Forget the key; return the duration and the number of occurrences, or None if there were none."""
        ongoing = self._ongoing.pop(key, None)
        if ongoing is None:
            return None
        return EndedEpisode(seconds=(self._monotonic_ms() - ongoing.since_ms) // 1000, times=ongoing.times)


class LossThrottle:
    """A throttle for something that is lost and recovered, perhaps repeatedly: at most two lines a minute per key."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._throttle = LogThrottle(monotonic_ms)
        self._logged_as_lost: FIFOCache[Hashable, None] = FIFOCache(KEYS_MAX)
        """The keys whose last line reported a loss."""

    def lost(self, key: Hashable) -> int | None:
        """Note a loss; returns the same as `LogThrottle.due`."""
        suppressed = self._throttle.due(key)
        if suppressed is not None:
            self._logged_as_lost[key] = None
        return suppressed

    def back(self, key: Hashable) -> bool:
        """Note a recovery; return whether a line is due, that is, whether its last line reported a loss."""
        is_due = key in self._logged_as_lost
        self._logged_as_lost.pop(key, None)
        return is_due


class NamesThrottle:
    """A throttle for names that clients choose, such as group ids: there may be many, and some may be invented.

    The first `NAMES_MAX` names of a kind each have their own lines, so that none suppresses those of another; all other
    names share one. A name loses its place when nothing was logged about it for `SILENT_FOR_MS`.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._throttle = LogThrottle(monotonic_ms)
        self._named: FIFOCache[Hashable, TTLCache[Hashable, None]] = FIFOCache(KEYS_MAX)

    def due(self, kind: Hashable, name: Hashable) -> int | None:
        """Return the same as `LogThrottle.due`, for this name, or for all names that share a line."""
        named = self._live(kind)
        has_line = name in named or len(named) < NAMES_MAX
        if has_line:
            named[name] = None
        return self._throttle.due((kind, (name,) if has_line else None))

    def due_of(self, owner: Hashable, kind: Hashable, name: Hashable) -> int | None:
        """Like `due`, but each owner, such as a client host, has its own `NAMES_MAX` names.

        So one owner cannot use up the names of another. This applies to the first `NAMES_MAX` owners; the names of all
        other owners share one line.
        """
        owners = self._live(("owners", kind))
        if owner in owners or len(owners) < NAMES_MAX:
            owners[owner] = None
            return self.due((owner, kind), name)
        return self._throttle.due((kind, None))

    def _live(self, kind: Hashable) -> TTLCache[Hashable, None]:
        live = self._named.get(kind)
        if live is None:
            live = self._named[kind] = TTLCache(NAMES_MAX, SILENT_FOR_MS, timer=self._monotonic_ms)
        return live
