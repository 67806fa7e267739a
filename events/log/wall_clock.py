"""The default wall clock that timestamps a log's records."""

import time


def wall_clock_ms() -> int:
    """Return milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000
