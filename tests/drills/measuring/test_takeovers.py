"""The phases of takeovers, from the events of the partitions."""

from muster.drills.measuring.takeovers import takeovers
from muster.events.events import CoordinatorElected, CoordinatorReady, CoordinatorStopped


def elected(at_ms: int, *, epoch: int, owner: str = "b:2", partition: int = 0) -> CoordinatorElected:
    return CoordinatorElected(
        partition=partition,
        owner_epoch=epoch,
        owner=owner,
        elected_ms=at_ms,
        version="1",
        format_level=4,
        settings={},
    )


def ready(at_ms: int, *, epoch: int, took_ms: int, owner: str = "b:2", partition: int = 0) -> CoordinatorReady:
    return CoordinatorReady(
        partition=partition,
        owner_epoch=epoch,
        owner=owner,
        ready_ms=at_ms,
        took_ms=took_ms,
        events_read=7,
        groups=2,
        members=4,
        incarnation_max=1,
        owner_before="a:1",
    )


def stopped(at_ms: int, *, epoch: int, partition: int = 0) -> CoordinatorStopped:
    return CoordinatorStopped(partition=partition, owner_epoch=epoch, owner="a:1", stopped_ms=at_ms)


def test_a_takeover_after_a_crash_has_four_phases() -> None:
    """Detection, claim, reading, and the first answer."""
    events = [elected(1_400, epoch=2), ready(1_700, epoch=2, took_ms=400)]
    (reported,) = takeovers(events, [1_000], {0: [900, 1_650, 1_720]})
    assert reported.handing_over_ms is None
    assert (reported.detection_ms, reported.claim_ms, reported.reading_ms, reported.answering_ms) == (300, 100, 300, 20)
    assert (reported.ready_at_ms, reported.total_ms) == (1_700, 720)
    assert (reported.former_owner, reported.owner, reported.epoch) == ("a:1", "b:2", 2)
    assert (reported.events_read, reported.groups) == (7, 2)


def test_a_clean_stop_hands_over_first() -> None:
    """Then the detection begins with its CoordinatorStopped."""
    events = [stopped(1_100, epoch=1), elected(1_400, epoch=2), ready(1_700, epoch=2, took_ms=400)]
    (reported,) = takeovers(events, [1_000], {})
    assert (reported.handing_over_ms, reported.detection_ms, reported.answering_ms) == (100, 200, None)
    assert reported.total_ms == 700


def test_earlier_takeovers_do_not_belong_to_the_fault() -> None:
    """Neither the first owner's claim, nor its last record in another takeover."""
    events = [
        elected(100, epoch=0),
        ready(200, epoch=0, took_ms=100),
        stopped(800, epoch=0),
        elected(850, epoch=1),
        ready(900, epoch=1, took_ms=50),
    ]
    assert takeovers(events, [1_000], {}) == ()


def test_each_takeover_counts_from_the_last_fault_before_it() -> None:
    """For example when processes are restarted one after another."""
    events = [
        elected(1_100, epoch=1),
        ready(1_200, epoch=1, took_ms=150),
        elected(5_100, epoch=2),
        ready(5_300, epoch=2, took_ms=250),
    ]
    first, second = takeovers(events, [1_000, 5_000], {})
    assert (first.since_ms, first.detection_ms) == (1_000, 50)
    assert (second.since_ms, second.detection_ms) == (5_000, 50)


def test_a_claim_that_was_never_served_is_skipped() -> None:
    """Like that of another writer that ended at once: the owner after it is the one that took over."""
    events = [elected(1_010, epoch=5, owner="intruder:0"), elected(1_500, epoch=6), ready(1_600, epoch=6, took_ms=150)]
    (reported,) = takeovers(events, [1_000], {})
    assert (reported.epoch, reported.detection_ms) == (6, 450)


def test_a_takeover_that_seems_to_begin_before_the_fault_begins_with_it() -> None:
    """Clocks are read one after the other; no phase is negative."""
    events = [elected(1_001, epoch=2), ready(1_050, epoch=2, took_ms=80)]
    (reported,) = takeovers(events, [1_000], {})
    assert (reported.detection_ms, reported.claim_ms, reported.reading_ms) == (0, 1, 49)


def test_partitions_are_distinguished() -> None:
    events = [
        elected(1_100, epoch=1, partition=3),
        elected(1_100, epoch=1, partition=1),
        ready(1_200, epoch=1, took_ms=150, partition=3),
        ready(1_300, epoch=1, took_ms=250, partition=1),
    ]
    assert [(each.partition, each.reading_ms) for each in takeovers(events, [1_000], {})] == [(1, 200), (3, 100)]
