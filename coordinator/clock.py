"""The two clocks: monotonic time for deadlines, wall time for what is recorded. Both in ms."""

import time
from typing import Protocol

_BEGAN_NS = time.monotonic_ns()


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """Time since the process started; events record it too (`uptime_ms`)."""
        ...

    def wall_ms(self) -> int: ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_ms(self) -> int:
        return (time.monotonic_ns() - _BEGAN_NS) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
