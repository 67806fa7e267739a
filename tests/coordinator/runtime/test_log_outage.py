"""An outage of the event log in words: since when, why, and that it is over."""

from structlog.testing import capture_logs

from muster.coordinator.runtime.ownership.log_outage import LogOutage
from muster.events.log.base import LogUnavailable


def test_an_outage_lasts_from_the_first_failed_attempt_until_no_partition_waits() -> None:
    """A line when it begins, one a minute, and one when it is over."""
    now_ms = 500_000
    outage = LogOutage("here", lambda: now_ms)
    assert outage.reason is None
    with capture_logs() as lines:
        outage.failed(0, LogUnavailable("no answer"), began_ms=497_000)
        now_ms = 510_000
        outage.failed(1, LogUnavailable("still none"), began_ms=509_000)
        assert outage.reason == "the event log here has been unavailable for 13 s, trying again: still none"
        outage.available_again(0)
        assert outage.reason is not None
        now_ms = 512_000
        outage.available_again(1)
        outage.available_again(1)
        assert outage.reason is None
    assert [(line["event"], line["seconds"]) for line in lines] == [
        ("event log unavailable, trying again", 3),
        ("event log available again", 15),
    ]
