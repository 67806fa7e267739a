"""The limits of upstream requests are nested; retry pauses double up to a maximum."""

import pytest

from muster.coordinator.upstream import reachability, retakes, shadow_driver, shadows, upstream_link
from muster.coordinator.upstream.shadow_driver import _pause_s


def test_reachability_queries_are_repeated_within_their_limit() -> None:
    """A broker that disconnects is asked again on a new connection."""
    assert reachability._TICK_MS < reachability.RETRY_MS
    assert max(reachability.RETRY_MS, reachability.CONNECT_TIMEOUT_MS) * 2 < reachability.ANSWER_TIMEOUT_MS
    assert reachability.AGAIN_AFTER_MS <= reachability.ANSWER_TIMEOUT_MS
    assert reachability.ANSWER_TIMEOUT_MS < reachability.KEPT_OPEN_MS < upstream_link.METADATA_MAX_AGE_MS < 60_000


def test_a_shadow_is_waited_for_longer_than_a_request_and_less_long_than_a_join_is_parked() -> None:
    """A client's join waits for it."""
    assert upstream_link.REQUEST_TIMEOUT_MS < shadows.WAIT_TIMEOUT_MS < shadow_driver.PARKED_TIMEOUT_MS < 60_000


def test_a_shadow_heartbeats_several_times_within_its_session() -> None:
    """The shortest is a minute."""
    assert shadows.HEARTBEAT_INTERVAL_MS * 5 <= shadows.SESSION_TIMEOUT_MS
    assert shadow_driver.SESSION_MIN_MS == 60_000


def test_joins_that_are_taken_again_and_heartbeats_leave_room_for_others() -> None:
    """After a restart there may be thousands of each."""
    assert retakes.RETAKES_MAX < shadow_driver.PARKED_JOINS_MAX
    assert shadow_driver.HEARTBEATS_MAX < shadow_driver.REQUESTS_MAX


@pytest.mark.parametrize(
    ("failures", "pause_s"), [(0, 0.02), (1, 0.04), (2, 0.08), (6, 1.28), (7, 2.0), (10, 2.0), (11, 2.0), (10_000, 2.0)]
)
def test_pauses_double_up_to_two_seconds(failures: int, pause_s: float) -> None:
    """However long an outage lasts."""
    assert _pause_s(failures) == pytest.approx(pause_s)
