"""When a line is due that would come again and again."""

from muster.coordinator.occasions import KEYS_MAX, SAY_AGAIN_AFTER_MS, Occasions, Past


class Clock:
    now_ms = 5_000


def occasions() -> tuple[Occasions, Clock]:
    clock = Clock()
    return Occasions(lambda: clock.now_ms), clock


def test_a_line_is_due_at_first_and_once_a_minute() -> None:
    """With how many went unsaid; each key for itself."""
    lines, clock = occasions()
    assert [lines.tell("a"), lines.tell("a"), lines.tell("b"), lines.tell("a")] == [0, None, 0, None]
    clock.now_ms += SAY_AGAIN_AFTER_MS - 1
    assert lines.tell("a") is None
    clock.now_ms += 1
    assert [lines.tell("a"), lines.tell("a")] == [3, None]


def test_what_is_over_is_told_once_and_begins_anew() -> None:
    """For how long, and how often it was."""
    lines, clock = occasions()
    assert lines.over("a") is None
    lines.tell("a")
    lines.tell("a")
    clock.now_ms += 43_999
    assert lines.over("a") == Past(seconds=43, times=2)
    assert lines.over("a") is None
    assert lines.tell("a") == 0


def test_what_is_kept_is_bounded() -> None:
    """Keys may be clients' to make up."""
    lines, _ = occasions()
    for key in range(KEYS_MAX + 1):
        assert lines.tell(key) == 0
    assert lines.over(0) is None
    assert lines.over(1) is not None
