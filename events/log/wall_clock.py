"""The wall clock that a log stamps its records with, unless it is given another one."""

import time


def wall_clock_ms() -> int:
    """Return milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000
