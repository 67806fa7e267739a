"""A deletion that is interrupted between the events and the offsets, which are in a separate topic."""

from kio.schema.errors import ErrorCode

from muster.events.ids import GroupId
from tests.faults.cluster import FakeCluster
from tests.faults.process import TOPIC, ProcessOnKafka, story
from tests.waiting import until

OFFSETS = f"{TOPIC}_offsets"
LOG_BROKER, OFFSETS_BROKER = 1, 2


def process_on(cluster: FakeCluster) -> ProcessOnKafka:
    return ProcessOnKafka(cluster.bootstrap, partitions=1, with_offsets=True)


@story
async def test_offsets_of_a_deleted_group_are_removed_at_the_next_start_after_a_broker_outage() -> None:
    """The events show that it was deleted; nothing else is removed by that."""
    cluster = FakeCluster(2)
    process = await process_on(cluster).start()
    cluster.partition(OFFSETS, 0).leader = OFFSETS_BROKER
    for group in ("deleted", "kept"):
        process.group_id = GroupId(group)
        assert (await process.commit(100)).error is ErrorCode.none
    cluster.stop(OFFSETS_BROKER)
    end = cluster.partition(TOPIC, 0).end
    process.delete(GroupId("deleted"))
    await until(lambda: cluster.partition(TOPIC, 0).end > end, "the events have the deletion")
    await process.stop()
    cluster.start(OFFSETS_BROKER)
    for _ in range(2):
        process = await process_on(cluster).start()
        assert process.offsets.group_ids() == {"kept"}
        await process.stop()
