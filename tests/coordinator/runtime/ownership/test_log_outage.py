"""Log lines about an outage of the event log: since when, why, and its end."""

from structlog.testing import capture_logs

from muster.coordinator.runtime.ownership.log_outage import LogOutage
from muster.events.log.base import LogUnavailable

SAID = "the event log here has been unavailable for {} s, retrying: still none"


def test_an_outage_lasts_from_the_first_failed_attempt_until_no_partition_waits() -> None:
    """A line when it begins, one a minute, and one when it is over."""
    now_ms = 500_000
    outage = LogOutage("here", lambda: now_ms)
    reasons = [outage.reason]
    with capture_logs() as lines:
        outage.failed(0, LogUnavailable("no answer"), began_ms=496_600)
        now_ms = 510_000
        outage.failed(1, LogUnavailable("still none"), began_ms=509_000)
        reasons.append(outage.reason)
        outage.available_again(0)
        now_ms = 512_000
        reasons.append(outage.reason)
        for _ in range(2):
            outage.available_again(1)
        reasons.append(outage.reason)
    assert reasons == [None, SAID.format(13), SAID.format(15), None]
    assert [(line["event"], line["seconds"]) for line in lines] == [
        ("event log unavailable, retrying", 3),
        ("event log available again", 15),
    ]
