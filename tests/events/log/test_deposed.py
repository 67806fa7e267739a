"""The words for an owner that another one has deposed."""

from muster.events.log.base import Deposed


def test_a_successor_is_named_with_the_time_of_its_clock() -> None:
    """In UTC: 1,700,000,000 seconds are 2023-11-14 22:13:20."""
    deposed = Deposed(3, 7)
    deposed.name_successor("other:12", 1_700_000_000_999)
    assert str(deposed) == (
        "other:12 took the event log over from this process at 22:13:20 UTC (partition 3, whose epoch was 7). One event"
        " log has one muster serve: give this one another --log, or point its clients at that one"
    )
