"""The words for an owner that another one has deposed."""

from muster.events.log.base import Deposed


def test_a_successor_is_named_with_the_time_of_its_clock() -> None:
    """In UTC: 1,700,000,000 seconds are 2023-11-14 22:13:20."""
    deposed = Deposed(3, 7)
    deposed.name_successor("other:12", 1_700_000_000_999, shares=False)
    assert str(deposed) == (
        "other:12 took over the event log from this process at 22:13:20 UTC (partition 3, whose epoch was 7). Only one"
        " muster serve can use an event log: give this one another --log, or point its clients at the other one"
    )


def test_a_process_that_shares_the_log_is_not_advised_to_use_another() -> None:
    """It may have stalled, so that another one has its partition rightly."""
    deposed = Deposed(3, 7)
    deposed.name_successor("other:12", 1_700_000_000_999, shares=True)
    assert str(deposed) == (
        "other:12 took over the event log from this process at 22:13:20 UTC (partition 3, whose epoch was 7). This"
        " process continues with what it is assigned; if it had neither stalled nor been cut off, other:12 uses"
        " the same --log without --share-partitions: stop that one"
    )
