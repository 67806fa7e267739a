"""A mirror that was set up the wrong way round: records of another cluster's owners arrive in a log that is in use."""

import msgspec
import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.events.avro.codec import records_of
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.base import LogMismatch
from muster.events.log.kafka.batches import ORIGIN, Stamp, encode_batch
from muster.events.log.kafka.marks import Origin
from muster.events.partitioner import partition_for
from muster.events.records import FORMAT_LEVEL, Record
from tests.events.log.kafka import foreign_batches as foreign
from tests.events.log.transitions import read_all
from tests.events.test_projector import ELECTED
from tests.faults.cluster import FakeCluster
from tests.faults.process import TOPIC, ProcessOnKafka, story
from tests.simulation.process import GROUP
from tests.waiting import until

PARTITION = partition_for(GROUP, 3)
THERE = Origin(cluster_id="there", format_level=FORMAT_LEVEL + 1)
GROUPS_OWN = encode_key(RecordKey(GROUP, EntityKind.GROUP, ""))
(NEWER,) = records_of(
    [msgspec.structs.replace(ELECTED, partition=PARTITION, format_level=THERE.format_level)], FORMAT_LEVEL
)
MIRRORED = (NEWER, Record(b"no key", b"x"), Record(GROUPS_OWN, None))


def mirrored(cluster: FakeCluster, *, partition: int = PARTITION) -> None:
    """As this version's owners write, and as those of an earlier one did, which noted the cluster elsewhere."""
    stamp = Stamp(producer_id=999, producer_epoch=7, epoch_base=1_000, origin=THERE.encode(), marked_from=0)
    of_earlier = foreign.batch(MIRRORED, headers=[("muster", b"3"), (ORIGIN, THERE.encode())])
    for batch in (encode_batch([MIRRORED], stamp, base_sequence=0, timestamp_ms=1), of_earlier):
        cluster.partition(TOPIC, partition).append(batch)


@story
async def test_records_of_another_clusters_owner_are_foreign() -> None:
    """At a start and meanwhile: skipped, named once, and what they overwrote is written again."""
    cluster = FakeCluster()
    first = await ProcessOnKafka(cluster.bootstrap).start()
    joined = await first.stable_group("a")
    epoch = next(iter(first.runtime._owned.values())).partition.epoch
    await first.stop()
    mirrored(cluster)
    mirrored(cluster, partition=(PARTITION + 1) % 3)

    second = ProcessOnKafka(cluster.bootstrap)
    with capture_logs() as lines:
        await second.start()
        assert (await second.heartbeat(joined["a"])).error is ErrorCode.none
        mirrored(cluster)
        assert (await second.commit(1)).error is not ErrorCode.coordinator_load_in_progress

        async def is_ours_again() -> bool:
            return not [each for each in await read_all(second.kafka) if each.key == GROUPS_OWN][-1].is_foreign

        await until(is_ours_again, "it is written again")

    assert [line["partition"] for line in lines if line["log_level"] == "warning"] == [PARTITION, (PARTITION + 1) % 3]
    assert all(each.partition.epoch == epoch + 1 for each in second.runtime._owned.values())
    assert second.lost == []
    await second.stop()
    third = await ProcessOnKafka(cluster.bootstrap).start()
    assert (await third.heartbeat(joined["a"])).error is ErrorCode.none
    await third.stop()


@story
async def test_a_topic_with_only_foreign_records_belongs_to_another_program() -> None:
    """It is a copy, which can be read and not be gone on with."""
    cluster = FakeCluster()
    cluster.create(TOPIC, 3, {"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000"})
    stamp = Stamp(producer_id=999, producer_epoch=7, epoch_base=0, origin=b"3 there", marked_from=0)
    (elected,) = records_of([msgspec.structs.replace(ELECTED, partition=PARTITION)], FORMAT_LEVEL)
    copied = encode_batch([(elected,)], stamp, base_sequence=0, timestamp_ms=1)
    cluster.partition(TOPIC, PARTITION).append(copied)
    with pytest.raises(LogMismatch, match="written on cluster there, and this is cluster fake"):
        await ProcessOnKafka(cluster.bootstrap).start()
    reader = ProcessOnKafka(cluster.bootstrap, read_only=True).kafka
    await reader.open()
    assert [each.is_foreign for each in await read_all(reader, PARTITION)] == [False]
    await reader.close()


@story
async def test_in_a_copy_the_first_mark_counts_not_what_was_noted_elsewhere() -> None:
    """Offsets differ there: what owners wrote before they marked is theirs, wherever marking began in the original."""
    cluster = FakeCluster()
    cluster.create(TOPIC, 3, {"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000"})
    stamp = Stamp(producer_id=999, producer_epoch=7, epoch_base=0, origin=b"3 there", marked_from=0)
    (elected,) = records_of([msgspec.structs.replace(ELECTED, partition=PARTITION)], FORMAT_LEVEL)
    of_earlier = foreign.batch([elected], headers=[(ORIGIN, b"2 there")])
    for batch in (of_earlier, encode_batch([(elected,)], stamp, base_sequence=0, timestamp_ms=1)):
        cluster.partition(TOPIC, PARTITION).append(batch)
    reader = ProcessOnKafka(cluster.bootstrap, read_only=True).kafka
    await reader.open()
    assert [each.is_foreign for each in await read_all(reader, PARTITION)] == [False, False]
    await reader.close()
