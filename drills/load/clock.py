"""Wall clock times that never step back or ahead while a drill runs: read once, counted on from there."""

import time


class Clock:
    """See the module."""

    def __init__(self) -> None:
        self._begin_wall_ms = time.time_ns() // 1_000_000
        self._begin_ns = time.monotonic_ns()

    def now_ms(self) -> int:
        return self._begin_wall_ms + (time.monotonic_ns() - self._begin_ns) // 1_000_000
