"""One day of a partition with every type of event in it, always the same."""

import msgspec

from events.codec import records_of
from events.events import (
    AnyPartitionEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
)
from events.ids import MemberId
from events.records import StoredRecord
from tests.coordinator.group.client import protocols
from tests.coordinator.group.harness import Harness
from tests.events.histories import PARTITION

OWNER = "owner-1"


def story() -> list[StoredRecord]:
    """The records, in order, with their offsets."""
    settings = {"group.initial.rebalance.delay.ms": "3000"}
    pages = [
        _of_partition(
            CoordinatorElected(
                partition=PARTITION,
                owner_epoch=0,
                owner=OWNER,
                elected_ms=1,
                version="0.1.0",
                format_level=1,
                settings=settings,
            )
        ),
        _orders(),
        _of_partition(
            CoordinatorPaused(partition=PARTITION, owner_epoch=0, owner=OWNER, paused_ms=2, late_ms=1_500, sessions=3)
        ),
        _deleted_and_made_anew(),
        _simple(),
        _not_ascii(),
        _of_partition(CoordinatorStopped(partition=PARTITION, owner_epoch=0, owner=OWNER, stopped_ms=3)),
        _of_partition(
            CoordinatorReady(
                partition=PARTITION,
                owner_epoch=1,
                owner=OWNER,
                ready_ms=5,
                took_ms=2,
                events_read=99,
                groups=4,
                members=7,
                incarnation_max=1_700_000_999_999,
            )
        ),
    ]
    records = [record for page in pages for record in page]
    return [
        msgspec.structs.replace(record, partition=PARTITION, offset=offset) for offset, record in enumerate(records)
    ]


def _of_partition(event: AnyPartitionEvent) -> list[StoredRecord]:
    return [StoredRecord(PARTITION, 0, 0, record.key, record.value) for record in records_of([event])]


def _orders() -> list[StoredRecord]:
    """Static and dynamic members; restarts, fences, refusals, an expiry; ends in the middle of a rebalance."""
    h = Harness(group_id="orders", max_size=4)
    a, b, c = h.stable_group(h.static("a"), h.static("b"), h.dynamic("c"))
    b.restarted(host="/10.0.0.2").join(reason="deployed")
    b.heartbeat()
    h.dynamic().join(member_id=MemberId("ghost"))
    c.join(protocols=protocols("range", "sticky"), reason="cached metadata has changed")
    h.sleep(4_000)
    h.takeover()
    a.join()
    h.static("d").join()
    h.static("e").join()
    h.sleep(60_000)
    h.sleep(6_000)
    h.static("f").join(reason="scaling up")
    return h.records


def _deleted_and_made_anew() -> list[StoredRecord]:
    """The group's second life begins with a member that had been in the first."""
    h = Harness(group_id="audit")
    for _ in range(2):
        (a,) = h.stable_group(h.static("a"))
        a.leave("the consumer is being closed")
        h.delete()
    h.stable_group(h.static("a"))
    return h.records


def _simple() -> list[StoredRecord]:
    """Known by its offsets alone."""
    h = Harness(group_id="simple")
    h.dynamic().commit(generation_id=-1)
    return h.records


def _not_ascii() -> list[StoredRecord]:
    """Names of any script, metadata that is no text."""
    h = Harness(group_id="größe-計測")
    h.stable_group(h.static("ż", protocols=protocols("range", metadata=bytes(range(256)))))
    return h.records
