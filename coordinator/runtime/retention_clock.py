"""The wall clock as retention goes by it, of offsets and of history: one that jumps ahead is not believed for a day.

What expires is deleted for good, and a clock may be put ahead by mistake for a while. So the retention's time runs with
the monotonic clock, and follows the wall clock: back at once, ahead by up to a minute between two readings, further
only when the wall clock has stayed ahead for a day. Until then expiry goes on by the former time, which deletes less.

A machine that was suspended looks the same, since its monotonic clock stood still: its offsets expire up to a day late.
A clock that is ahead when the process starts is believed, as nothing tells otherwise.
"""

import structlog

from muster.coordinator.clock import Clock

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

JUMP_MS = 60_000
"""How much further than the monotonic clock the wall clock may run between two readings, and be believed at once."""

BELIEVED_AFTER_MS = 24 * 3_600_000
"""How long the wall clock must stay ahead to be believed."""


class RetentionClock:
    """See the module. It is to be observed at every sweep."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lead_ms = clock.wall_ms() - clock.monotonic_ms()
        """The believed difference between the clocks."""
        self._ahead_since_ms: int | None = None

    def observe(self) -> int:
        """Compare the clocks; return the time by which offsets expire, and by which the audit window of a file ends."""
        now_ms = self._clock.monotonic_ms()
        lead_ms = self._clock.wall_ms() - now_ms
        ahead_ms = lead_ms - self._lead_ms
        if ahead_ms <= JUMP_MS:
            if self._ahead_since_ms is not None:
                log.info("the clock was put back: offsets and history expire by it again")
            self._ahead_since_ms, self._lead_ms = None, lead_ms
        elif self._ahead_since_ms is None:
            self._ahead_since_ms = now_ms
            log.warning(
                "the clock has jumped ahead, or the machine was suspended: nothing expires by it for a day",
                ahead_s=ahead_ms // 1000,
            )
        elif now_ms - self._ahead_since_ms >= BELIEVED_AFTER_MS:
            log.warning(
                "the clock has stayed ahead for a day: offsets and history expire by it from now on",
                ahead_s=ahead_ms // 1000,
            )
            self._ahead_since_ms, self._lead_ms = None, lead_ms
        return now_ms + self._lead_ms
