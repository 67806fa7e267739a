"""The lease under which a partition's responses are sent: a deposed owner must not respond from memory for long.

Tracks until when responses may be sent, and keeps those that wait for the next proof of ownership.

An owner learns that it was deposed when it appends, and most responses append nothing. So each proof, an append or a
repeated one, gives it a lease, which starts when the proof was *sent*: another owner can have claimed the partition
only after that. The clock keeps running while the machine is suspended. A new owner changes nothing until the leases of
former owners must be over (former_owners.py).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

HELD_MS: Final = 1_000
"""How long a response waits for a proof; after that it is COORDINATOR_NOT_AVAILABLE."""

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock_ms() -> int:
    """Time since boot, including the time suspended, where the platform has such a clock."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class AnswerLease:
    """Delays responses while ownership is unproven. Calls `want_proof` when responses wait for a proof."""

    def __init__(self, lease_ms: int, boot_ms: Callable[[], int]) -> None:
        self.lease_ms = lease_ms
        self.now_ms = boot_ms
        self.want_proof: Callable[[], None] = lambda: None
        self._until_ms = 0
        self._held: dict[Callable[[bool], None], asyncio.TimerHandle] = {}
        self._is_over = False
        self.reading_ms: int | None = None
        """The event loop's clock reading of the last check; None unless the lease covered it."""

    @property
    def is_over(self) -> bool:
        """Return whether the partition was given up."""
        return self._is_over

    @property
    def covers(self) -> bool:
        """Return whether a response may be sent now."""
        return self.now_ms() < self._until_ms

    @property
    def left_ms(self) -> int:
        """How long responses may be sent without another proof. Thread-safe."""
        return max(0, self._until_ms - self.now_ms())

    def covers_at(self, reading_ms: int) -> bool:
        """Like `covers`, but computed once per clock reading of the event loop, e.g. for 64 heartbeats."""
        if reading_ms is not self.reading_ms:  # the identical object: another reading may give an equal number
            self.reading_ms = reading_ms if self.now_ms() < self._until_ms else None
        return self.reading_ms is not None

    @property
    def half_is_over(self) -> bool:
        """Return whether it is time for another proof."""
        return self.now_ms() >= self._until_ms - self.lease_ms // 2

    def proven(self, sent_ms: int) -> None:
        """Note a proof that was sent at this time; if it is recent enough, waiting responses are sent."""
        self._until_ms = max(self._until_ms, sent_ms + self.lease_ms)
        if self._held and self.covers and not self._is_over:
            self._give_held(is_covered=True)

    def when_covered(self, give: Callable[[bool], None]) -> None:
        """Call `give` with True when a response may be sent, now or later, or with False if that takes too long."""
        if self._is_over:
            give(False)  # noqa: FBT003 -- the only argument
        elif self.covers:
            give(True)  # noqa: FBT003 -- as above
        else:
            self._held[give] = asyncio.get_running_loop().call_later(HELD_MS / 1000, self._too_late, give)
            self.want_proof()

    def end(self) -> None:
        """Send no more responses: the partition was given up."""
        self._is_over = True
        self._until_ms = 0
        self.reading_ms = None
        self._give_held(is_covered=False)

    def _too_late(self, give: Callable[[bool], None]) -> None:
        del self._held[give]
        give(False)  # noqa: FBT003 -- as above

    def _give_held(self, *, is_covered: bool) -> None:
        held, self._held = self._held, {}
        for give, timer in held.items():
            timer.cancel()
            give(is_covered)
