"""When a line is due that would come again and again."""

from muster.coordinator.log_throttle import KEYS_MAX, LINE_INTERVAL_MS, Ended, LogThrottle


class Clock:
    now_ms = 5_000


def throttle() -> tuple[LogThrottle, Clock]:
    clock = Clock()
    return LogThrottle(lambda: clock.now_ms), clock


def test_a_line_is_due_at_first_and_once_a_minute() -> None:
    """With how many went unsaid; each key for itself."""
    lines, clock = throttle()
    assert [lines.due("a"), lines.due("a"), lines.due("b"), lines.due("a")] == [0, None, 0, None]
    clock.now_ms += LINE_INTERVAL_MS - 1
    assert lines.due("a") is None
    clock.now_ms += 1
    assert [lines.due("a"), lines.due("a")] == [3, None]


def test_what_is_over_is_told_once_and_begins_anew() -> None:
    """For how long, and how often it was."""
    lines, clock = throttle()
    assert lines.end("a") is None
    lines.due("a")
    lines.due("a")
    clock.now_ms += 43_999
    assert lines.end("a") == Ended(seconds=43, times=2)
    assert lines.end("a") is None
    assert lines.due("a") == 0


def test_what_is_kept_is_bounded() -> None:
    """Keys may be clients' to make up."""
    lines, _ = throttle()
    for key in range(KEYS_MAX + 1):
        assert lines.due(key) == 0
    assert lines.end(0) is None
    assert lines.end(1) is not None
