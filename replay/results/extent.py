"""The time span that a log covers, to be reported when nothing is found in a window."""

from muster.replay.history.skim import Skim
from muster.replay.text.times import Instant, instant


class Extent:
    """The time span of all groups that were added."""

    def __init__(self) -> None:
        self._first_ms: int | None = None
        self._last_ms: int | None = None

    def note(self, skim: Skim) -> None:
        """Extend the span by a group's events."""
        first_ms, last_ms = skim.earliest_ms, skim.latest_ms
        if first_ms is not None and last_ms is not None:
            self._first_ms = first_ms if self._first_ms is None else min(self._first_ms, first_ms)
            self._last_ms = last_ms if self._last_ms is None else max(self._last_ms, last_ms)

    @property
    def first_at(self) -> Instant | None:
        """The time of the first event; None if there is none."""
        return None if self._first_ms is None else instant(self._first_ms)

    @property
    def last_at(self) -> Instant | None:
        """The time of the last event; None if there is none."""
        return None if self._last_ms is None else instant(self._last_ms)
