"""One day of a partition with every type of event in it, always the same."""

import msgspec

from muster.coordinator.group.commands import ConfigOperation, ExpireOffsets
from muster.coordinator.group.configs import LEARNERS, REBALANCE, REGISTERED, RETIRED
from muster.coordinator.group.connections import ConnectionRecord
from muster.events.avro.codec import records_of
from muster.events.connection import ConnectionEnd
from muster.events.events import (
    AnyPartitionEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
)
from muster.events.ids import MemberId
from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from muster.events.records import FORMAT_LEVEL, StoredRecord
from tests.coordinator.group.client import protocols
from tests.coordinator.group.harness import Harness
from tests.coordinator.group.test_unassigned import configured, rejoin, report
from tests.events.histories import PARTITION
from tests.replay.memberships import unfinished
from tests.replay.played import alive, stable

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
                format_level=FORMAT_LEVEL,
                settings=settings,
            )
        ),
        _orders(),
        _of_partition(
            CoordinatorPaused(
                partition=PARTITION, owner_epoch=0, owner=OWNER, paused_ms=2, late_ms=1_500, sessions=3, uptime_ms=9
            )
        ),
        _deleted_and_made_anew(),
        _held_up_and_expired(),
        _silent_and_back(),
        _simple(),
        _not_ascii(),
        _plans_and_what_came_of_them(),
        _plans_on_their_way(),
        _grown(),
        _of_partition(CoordinatorStopped(partition=PARTITION, owner_epoch=0, owner=OWNER, stopped_ms=3, uptime_ms=10)),
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
                uptime_ms=2,
                owner_before="owner-0",
                owner_before_seen_ms=1_700_000_500_000,
                owner_before_end=OwnershipEnd(
                    cause=OwnershipEndCause.GONE,
                    removed_by="owner-2",
                    link_lost_ms=1_700_000_500_100,
                    refused_ms=1_700_000_500_120,
                ),
            )
        ),
    ]
    records = [record for page in pages for record in page]
    return [
        msgspec.structs.replace(record, partition=PARTITION, offset=offset) for offset, record in enumerate(records)
    ]


def _of_partition(event: AnyPartitionEvent) -> list[StoredRecord]:
    return [StoredRecord(PARTITION, 0, 0, record.key, record.value) for record in records_of([event], FORMAT_LEVEL)]


def _orders() -> list[StoredRecord]:
    """Static and dynamic members; restarts, fences, refusals, an expiry; ends in the middle of a rebalance."""
    h = Harness(group_id="orders", max_size=4)
    a, b, c = h.stable_group(h.static("a"), h.static("b"), h.dynamic("c"))
    b.connection.ended(ConnectionEnd.CLOSED, h.now_ms)
    b.restarted(host="/10.0.0.2").join(reason="deployed")
    b.heartbeat()
    h.dynamic().join(member_id=MemberId("ghost"))
    c.connection.ended(ConnectionEnd.RESET, h.now_ms)
    c.connection = ConnectionRecord(edge=7, number=99)
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


def _held_up_and_expired() -> list[StoredRecord]:
    """An id that was handed out and not used, a member that is absent since a takeover, the life's end."""
    h = Harness(group_id="held-up", offsets_retention_minutes=1)
    a, b = h.stable_group(h.static("a", session_timeout_ms=90_000), h.static("b", session_timeout_ms=90_000))
    h.takeover()
    h.dynamic("late").join()
    (a if a.is_leader else b).join()
    h.sleep(100_000)
    h.sleep(100_000)
    h.sleep(60_000)
    h.send(ExpireOffsets(group_id=h.group_id, offsets={}, wall_ms=h.wall_ms))
    return h.records


def _silent_and_back() -> list[StoredRecord]:
    """A process that was paused returns with its old member id."""
    h = Harness(group_id="silent")
    a, b = h.stable_group(h.static("a", session_timeout_ms=60_000), h.dynamic("b"))
    h.sleep(10_000)
    a.join()
    h.sleep(1_000)
    b.heartbeat()
    back = h.dynamic("b")
    back.enter()
    h.rejoin_all(a, back)
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


def _plans_and_what_came_of_them() -> list[StoredRecord]:
    """Registrations that are fulfilled, withdrawn, late; retirements; learners; standbys; settings set and unset."""
    h = Harness(group_id="planned")
    a, b = stable(h.static("a"), h.static("b"))
    h.set(members_registration_timeout_ms="5000")
    h.alter((REGISTERED, ConfigOperation.SET, "c,d,e"))
    h.alter((REGISTERED, ConfigOperation.SUBTRACT, "e"))
    c = h.static("c")
    c.join()
    alive(h, 5_000, a, b)
    stable(a, b, c)
    h.alter((RETIRED, ConfigOperation.SET, "b,c"))
    h.alter((RETIRED, ConfigOperation.SUBTRACT, "c"))
    h.set(members_learner_timeout_ms="60000")
    learner = h.dynamic("learner")
    learner.enter()
    learner.sync()
    h.alter((LEARNERS, ConfigOperation.SUBTRACT, learner.member_id))
    stable(a, b, c, learner)
    h.alter(
        ("members.learner.timeout.ms", ConfigOperation.DELETE, None),
        ("target.group.size", ConfigOperation.SET, "4"),
    )
    standby = h.static("standby", session_timeout_ms=30_000)
    standby.join()
    standby.sync()
    h.leave_instance("c")
    standby.join()
    standby.sync()
    h.alter((REBALANCE, ConfigOperation.SET, "force"))
    stable(a, b, standby, learner)
    h.alter(
        ("members.registration.timeout.ms", ConfigOperation.DELETE, None),
        ("target.group.size", ConfigOperation.DELETE, None),
    )
    return h.records


def _grown() -> list[StoredRecord]:
    """Topics that grew: one with a requested rebalance that is assigned by now, and one that is not assigned."""
    h, a, b = configured()
    report(h, orders=8)
    rejoin(h, a, b, partitions=8)
    report(h, orders=8)
    report(h, orders=9)
    return h.records


def _plans_on_their_way() -> list[StoredRecord]:
    """Settings, registrations, a retiring member, a learner, a standby, and a promoted standby, all pending."""
    return unfinished(group_id="unfinished").records
