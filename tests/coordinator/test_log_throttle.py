"""When a repeated log line is due."""

from muster.coordinator.log_throttle import (
    KEYS_MAX,
    LINE_INTERVAL_MS,
    EndedEpisode,
    LogThrottle,
    LossThrottle,
    NamesThrottle,
)


class Clock:
    now_ms = 5_000


def throttle() -> tuple[LogThrottle, Clock]:
    clock = Clock()
    return LogThrottle(lambda: clock.now_ms), clock


def test_a_line_is_due_at_first_and_once_a_minute() -> None:
    """With the number of suppressed ones; each key separately."""
    lines, clock = throttle()
    assert [lines.due("a"), lines.due("a"), lines.due("b"), lines.due("a")] == [0, None, 0, None]
    clock.now_ms += LINE_INTERVAL_MS - 1
    assert lines.due("a") is None
    clock.now_ms += 1
    assert [lines.due("a"), lines.due("a")] == [3, None]


def test_a_finished_problem_is_logged_once_and_can_start_again() -> None:
    """With its duration and the number of occurrences."""
    lines, clock = throttle()
    assert lines.end("a") is None
    lines.due("a")
    lines.due("a")
    clock.now_ms += 43_999
    assert lines.end("a") == EndedEpisode(seconds=43, times=2)
    assert lines.end("a") is None
    assert lines.due("a") == 0


def test_a_flapping_problem_has_two_lines_a_minute() -> None:
    """A minute after its last line the next loss is logged at once; each key separately."""
    clock = Clock()
    lines = LossThrottle(lambda: clock.now_ms)
    assert not lines.back("a")
    clock.now_ms += 1
    assert (lines.lost("a"), lines.lost("a"), lines.lost("b"), lines.back("a")) == (0, None, 0, True)
    assert (lines.lost("a"), lines.back("a"), lines.back("a")) == (None, False, False)
    clock.now_ms += LINE_INTERVAL_MS - 1
    assert (lines.lost("a"), lines.back("a")) == (None, False)
    clock.now_ms += 1
    assert (lines.lost("a"), lines.back("a")) == (3, True)
    clock.now_ms += LINE_INTERVAL_MS
    assert (lines.lost("a"), lines.back("a")) == (0, True)


def test_lost_keys_take_bounded_memory() -> None:
    """A thousand keys are remembered; the oldest ones get no line when they return."""
    lines = LossThrottle(lambda: 5_000)
    for key in range(100_000):
        assert lines.lost(key) == 0
    assert len(lines._logged_as_lost) == KEYS_MAX
    assert (lines.back(0), lines.back(99_999)) == (False, True)


def test_remembered_keys_are_bounded() -> None:
    """Clients may make up keys: a thousand are remembered."""
    lines, _ = throttle()
    for key in range(1_001):
        assert lines.due(key) == 0
    assert lines.end(0) is None
    assert lines.end(1) is not None


def test_kinds_of_names_are_bounded_too() -> None:
    """The oldest of a thousand kinds is forgotten, and its names get their own lines again."""
    clock = Clock()
    lines = NamesThrottle(lambda: clock.now_ms)
    for name in range(10):
        assert lines.due("a kind", name) == 0
    assert [lines.due("a kind", name) for name in ("more", "and more")] == [0, None]
    for kind in range(1_000):
        assert lines.due(kind, "name") == 0
    assert [lines.due("a kind", name) for name in ("more", "and more")] == [0, 0]


def test_names_that_one_owner_makes_up_take_no_line_from_another_owner() -> None:
    """Ten owners have lines for their own names, and all others share one line."""
    clock = Clock()
    lines = NamesThrottle(lambda: clock.now_ms)
    made_up = [lines.due_of("hostile", "refused", name) for name in range(1_000)]
    assert made_up.count(0) == 11
    assert lines.due_of("honest", "refused", "orders") == 0
    others = [lines.due_of(("host", number), "refused", "orders") for number in range(1_000)]
    assert others.count(0) == 8 + 1
    assert lines.due_of("honest", "refused", "orders") is None
    clock.now_ms += LINE_INTERVAL_MS
    assert lines.due_of("honest", "refused", "orders") == 1


def test_suppressed_lines_are_counted_by_the_next_one() -> None:
    lines, clock = throttle()
    lines.suppress("never begun")
    assert lines.due("never begun") == 0
    clock.now_ms += LINE_INTERVAL_MS
    lines.suppress("never begun")
    assert lines.due("never begun") == 1


def test_a_name_keeps_its_line_for_as_long_as_it_comes() -> None:
    """Names made up meanwhile take the places of silent ones, not its own."""
    clock = Clock()
    lines = NamesThrottle(lambda: clock.now_ms)
    lines.due_of("honest", "refused", "orders")
    for minute in range(1, 9):
        clock.now_ms += LINE_INTERVAL_MS
        for number in range(20):
            lines.due_of(("host", minute, number), "refused", "made up")
            lines.due_of("honest", "refused", ("made up", minute, number))
        assert lines.due_of("honest", "refused", "orders") == (0 if minute == 1 else 1)
        assert lines.due_of("honest", "refused", "orders") is None
