"""Records of our own that are played again: an export that is restored into a log in use, a mirror there and back."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.observability.metrics import REGISTRY
from muster.events.log.kafka.decoding import records_of
from muster.events.partitioner import partition_for
from tests.events.log.transitions import read_all
from tests.faults.cluster import FakeCluster
from tests.faults.process import TOPIC, ProcessOnKafka, groups_in, story
from tests.simulation.process import GROUP
from tests.waiting import until

PARTITION = partition_for(GROUP, 3)
TOPICS = (TOPIC, f"{TOPIC}_offsets")
RESTORER = 4_711
Exported = dict[str, list[bytes]]


def exported(cluster: FakeCluster) -> Exported:
    return {topic: [batch for _, _, batch in cluster.partition(topic, PARTITION).batches] for topic in TOPICS}


def play_again(cluster: FakeCluster, exported: Exported) -> None:
    """Keys, values and headers are unchanged; an idempotent producer sends each record in its own batch."""
    for topic, batches in exported.items():
        records = [record for batch in batches for record in records_of(batch) if record is not None]
        for number, record in enumerate(records):
            builder = DefaultRecordBatchBuilder(2, 0, 0, RESTORER, 0, number, 2**20)
            builder.append(0, record.timestamp, record.key, record.value, record.headers)
            cluster.partition(topic, PARTITION).append(bytes(builder.build()))


def rewritten() -> float:
    return REGISTRY.get_sample_value("muster_entities_rewritten_total") or 0.0


def process_on(cluster: FakeCluster) -> ProcessOnKafka:
    return ProcessOnKafka(cluster.bootstrap, with_offsets=True)


@pytest.mark.parametrize("when", ["while it is served", "before a start"])
def test_records_of_our_own_that_are_played_again_take_nothing_back(when: str) -> None:
    """Generations, members and committed offsets stay; overwritten entities are written again, and the epoch grows."""

    @story
    async def run() -> None:
        cluster = FakeCluster()
        first = await process_on(cluster).start()
        joined = await first.stable_group("a", "b")
        assert (await first.commit(100, joined["a"])).error is ErrorCode.none
        export = exported(cluster)
        await first.leave(joined["b"].member_id)
        member = await first.join("a", joined["a"].member_id)
        assert (await first.sync(member)).error is ErrorCode.none
        assert (await first.commit(900, member)).error is ErrorCode.none
        group, epoch = await first.describe(), first.runtime._owned[PARTITION].partition.epoch

        if when == "while it is served":
            before = rewritten()
            play_again(cluster, export)
            neighbour = next(each for each in groups_in(PARTITION, 3) if each != GROUP)
            assert (await first.commit(1, group_id=neighbour)).error is ErrorCode.none
            await until(lambda: rewritten() >= before + 3, "the group, its member and its offset are written again")
            assert (await first.heartbeat(member)).error is ErrorCode.none
        await first.stop()
        if when == "before a start":
            play_again(cluster, export)

        second = process_on(cluster)
        with capture_logs() as lines:
            await second.start()
        assert (await second.heartbeat(member)).error is ErrorCode.none
        assert await second.describe() == group
        assert second.offsets.committed(GROUP)["orders", 0].offset == 900
        assert second.runtime._owned[PARTITION].partition.epoch == epoch + 1
        # Each process names a foreign producer once.
        assert [line["partition"] for line in lines if line["log_level"] == "warning"] == [PARTITION] * 2
        assert [*first.lost, *second.lost] == []
        await second.stop()

    run()


@story
async def test_a_topic_that_was_restored_is_gone_on_with() -> None:
    """Nothing is native there, so every mark is believed, up to the first record that is."""
    cluster = FakeCluster()
    first = await process_on(cluster).start()
    joined = await first.stable_group("a")
    assert (await first.commit(100, joined["a"])).error is ErrorCode.none
    export = exported(cluster)
    await first.stop()
    for topic in TOPICS:
        cluster.recreate(topic)
    play_again(cluster, export)

    for committed in (100, 101):
        process = await process_on(cluster).start()
        assert process.offsets.committed(GROUP)["orders", 0].offset == committed
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
        assert (await process.commit(101, joined["a"])).error is ErrorCode.none
        assert not any(each.is_foreign for each in await read_all(process.kafka, PARTITION))
        await process.stop()


@pytest.mark.parametrize("topic", TOPICS)
@story
async def test_a_format_level_is_believed_from_an_owner_alone(topic: str) -> None:
    """A foreign record with the mark of a higher level does not stop a start."""
    cluster = FakeCluster()
    first = await process_on(cluster).start()
    joined = await first.stable_group("a")
    await first.stop()
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**20)
    builder.append(0, 0, b"zz", b"1", [("muster", b"99 " + cluster.cluster_id.encode())])
    cluster.partition(topic, PARTITION).append(bytes(builder.build()))
    second = await process_on(cluster).start()
    assert (await second.heartbeat(joined["a"])).error is ErrorCode.none
    await second.stop()
