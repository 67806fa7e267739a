"""The clock by which offsets and history expire: it follows the wall clock, but believes a jump ahead late.

What expires is deleted for good, and a clock may be put ahead by mistake for a while. So the retention's time runs with
the monotonic clock, and follows the wall clock: back at once, ahead by up to a minute between two readings, further
only when the wall clock has stayed ahead for a day, and for as long as offsets are kept; and only as far as it was all
that time, so a second jump waits for a time of its own. Until then expiry goes on by the former time, which deletes
less.

A clock that was put back and is put right again jumps ahead, too. What was committed while it was behind looks older
than it is, and would expire early if the jump were believed sooner; when it is believed, that has been kept for its
time. A machine that was suspended looks the same, since its monotonic clock stood still: its offsets expire late.
A clock that is wrong when the process starts is believed, as nothing shows it.
"""

import structlog

from muster.coordinator.clock import Clock

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

JUMP_MS = 60_000
"""How much further than the monotonic clock the wall clock may run between two readings, and be believed at once."""

BELIEVED_AFTER_MS = 24 * 3_600_000
"""How long the wall clock must stay ahead, at least, to be believed."""


class RetentionClock:
    """A wall clock that delays jumps ahead. Give it both clocks at every sweep, and whenever anything is recorded.

    `kept_ms`: how long offsets are kept.
    """

    def __init__(self, clock: Clock, *, kept_ms: int) -> None:
        self._clock = clock
        self._believed_after_ms = max(BELIEVED_AFTER_MS, kept_ms)
        self._lead_ms = clock.wall_ms() - clock.monotonic_ms()
        """The believed difference between the clocks."""
        self._ahead_since_ms: int | None = None
        self._lasting_lead_ms = self._lead_ms
        """The least difference since then: what is believed when it has lasted."""

    def observe(self) -> int:
        """Note the clocks; return the time by which offsets expire, and by which the audit window of a file ends."""
        now_ms = self._clock.monotonic_ms()
        self.note(now_ms, self._clock.wall_ms())
        return now_ms + self._lead_ms

    def note(self, now_ms: int, wall_ms: int) -> None:
        """Note what the clocks have just shown."""
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
