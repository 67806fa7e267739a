"""The clock by which offsets and history expire: it follows the wall clock, but delays jumps ahead.

What expires is deleted for good, and a clock may be set ahead by mistake for a while. So the retention time advances
with the monotonic clock, and follows the wall clock: back immediately; ahead by up to a minute between two readings;
further ahead only when the wall clock has stayed ahead for a day and for the offsets' retention time, and only by its
smallest lead during that time, so a second jump has to wait for as long again. Until then the old time is used for
expiry, which deletes less.

A clock that was set back and then corrected jumps ahead too. Offsets that were committed while it was behind look older
than they are, and would expire early if the jump were accepted sooner; once it is accepted, they have been kept for
their time. A suspended machine looks the same, because its monotonic clock stood still: its offsets expire late.

A clock that is wrong when the process starts is accepted, because nothing shows the error.
"""

import structlog

from muster.coordinator.clock import Clock

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

JUMP_MS = 60_000
"""How far the wall clock may get ahead of the monotonic clock between two readings and be followed immediately."""

BELIEVED_AFTER_MS = 24 * 3_600_000
"""How long the wall clock must stay ahead, at least, to be followed."""


class RetentionClock:
    """A wall clock that delays jumps ahead. Give it both clocks at every sweep, and whenever anything is recorded.

    `kept_ms`: how long offsets are kept.
    """

    def __init__(self, clock: Clock, *, kept_ms: int) -> None:
        self._clock = clock
        self._believed_after_ms = max(BELIEVED_AFTER_MS, kept_ms)
        self._lead_ms = clock.wall_ms() - clock.monotonic_ms()
        """The accepted difference between the clocks."""
        self._ahead_since_ms: int | None = None
        self._lasting_lead_ms = self._lead_ms
        """The smallest difference since then, which is accepted after the waiting time."""

    def observe(self) -> int:
        """Note the clocks; return the time by which offsets expire, and by which the audit window of a file ends."""
        now_ms = self._clock.monotonic_ms()
        self.note(now_ms, self._clock.wall_ms())
        return now_ms + self._lead_ms

    def note(self, now_ms: int, wall_ms: int) -> None:
        """Note a reading of both clocks."""
        lead_ms = wall_ms - now_ms
        ahead_ms = lead_ms - self._lead_ms
        if ahead_ms <= JUMP_MS:
            if self._ahead_since_ms is not None:
                log.info("the clock was set back: offsets and history expire by it again")
            self._ahead_since_ms, self._lead_ms = None, lead_ms
            return
        if self._ahead_since_ms is None:
            self._ahead_since_ms, self._lasting_lead_ms = now_ms, lead_ms
            log.warning(
                "the clock jumped ahead, or the machine was suspended: expiry pauses",
                ahead_s=ahead_ms // 1000,
                for_s=self._believed_after_ms // 1000,
            )
        self._lasting_lead_ms = min(self._lasting_lead_ms, lead_ms)
        if now_ms - self._ahead_since_ms >= self._believed_after_ms:
            log.warning(
                "the clock stayed ahead: offsets and history expire by it from now on",
                ahead_s=(self._lasting_lead_ms - self._lead_ms) // 1000,
            )
            self._ahead_since_ms, self._lead_ms = None, self._lasting_lead_ms
