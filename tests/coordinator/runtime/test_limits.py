"""The limits of a partition's runtime are consistent with each other."""

from muster.coordinator.runtime.ownership import (
    owned_partition,
    owned_partitions,
    partition_lines,
    signs_of_life,
    slow_appends,
)
from muster.coordinator.runtime.partition import command_processor, deadlines, outbox
from muster.events.log.kafka.client.link import Timeouts


def test_a_sign_of_life_is_left_before_the_next_one_is_due() -> None:
    """A takeover reads the last one with a short time-out; if it fails, the next attempt is a minute later."""
    assert signs_of_life.READ_TIMEOUT_MS < signs_of_life.SIGN_TIMEOUT_MS < signs_of_life.SIGN_INTERVAL_MS
    assert signs_of_life.SIGN_INTERVAL_MS < signs_of_life.READ_RETRY_INTERVAL_MS <= 60_000


def test_an_append_is_reported_as_slow_before_the_log_gives_it_up() -> None:
    assert slow_appends.CHECK_INTERVAL_S < slow_appends.SLOW_APPEND_S < Timeouts().delivery_timeout_ms / 1_000


def test_failed_work_is_retried_after_a_pause_of_at_most_a_minute() -> None:
    """A failed deadline, or the renewal of a claim; partitions lost together share one log line."""
    assert 100 <= command_processor.RETRY_DEADLINE_MS <= 10_000
    assert 1 <= owned_partition.RENEWAL_RETRY_S <= 60
    assert 0 < partition_lines.LOST_REPORT_DELAY_S < owned_partitions.STOP_TIMEOUT_S


def test_a_machine_stood_still_when_a_timer_is_a_second_late() -> None:
    """Less than that is load; the shortest session lasts six seconds."""
    assert deadlines.PAUSE_MS == 1_000


def test_a_batch_ends_after_some_milliseconds_of_work() -> None:
    """An event takes some 20 µs to encode, and a command produces several."""
    assert command_processor.ENCODED_AT_ONCE <= 100
    assert command_processor.BATCH_COMMANDS_MAX <= command_processor.BATCH_EVENTS_MAX <= 10_000
    assert outbox.UNITS_PER_APPEND_MAX <= command_processor.BATCH_EVENTS_MAX
