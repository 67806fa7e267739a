"""The event topic is deleted, recreated or given partitions while it is in use: its owner gives it up, and says so."""

import asyncio
import itertools

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.events.log.base import LogMismatch
from muster.events.partitioner import partition_for
from muster.events.state import GroupState
from tests.faults.cluster import FakeCluster
from tests.faults.process import TOPIC, ProcessOnKafka, groups_in, seconds, story
from tests.waiting import until

OFFSETS = f"{TOPIC}_offsets"
NOT_SERVED = {ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress}


async def owner_of(cluster: FakeCluster) -> ProcessOnKafka:
    """A process that has appended more than a fresh topic could have."""
    process = await ProcessOnKafka(cluster.bootstrap).start()
    for instance in "abc":
        await process.join(instance)
    return process


@story
async def test_a_topic_that_was_given_partitions_is_refused_at_the_next_start() -> None:
    """Whatever the settings say: the number is noted in the topic, and both are reported. Once restored, it is used
    again.
    """
    cluster = FakeCluster()
    await (await owner_of(cluster)).stop()
    cluster.add_partition(TOPIC)
    with pytest.raises(LogMismatch, match=r"has 4 partitions, and its events were written when it had 3: .* Restore"):
        await ProcessOnKafka(cluster.bootstrap, partitions=4).start()
    cluster.topics[TOPIC].partitions.pop()
    await (await ProcessOnKafka(cluster.bootstrap).start()).stop()


@pytest.mark.parametrize("noticed_by", ["the next append", "metadata"])
@story
async def test_a_recreated_topic_ends_the_process(noticed_by: str) -> None:
    """A client gets no response that is in no log; the message has both ids."""
    cluster = FakeCluster()
    process = await owner_of(cluster)
    was = process.kafka.identity.rpartition(".")[2]
    cluster.recreate(TOPIC)
    if noticed_by == "metadata":
        await asyncio.sleep(10)
    began = seconds()
    fresh = next(groups_in(partition_for(process.group_id, 3), 3))
    assert (await process.commit(1, group_id=fresh)).error in NOT_SERVED
    assert seconds() - began < 1
    (lost,) = process.lost
    assert isinstance(lost, LogMismatch)
    assert f"topic {TOPIC} was deleted and recreated while it was in use: its id was {was} and is now " in str(lost)
    await process.stop()


@story
async def test_a_deleted_topic_ends_the_process_and_is_not_recreated() -> None:
    """Also on a cluster that makes the topics that clients name."""
    cluster = FakeCluster()
    process = await owner_of(cluster)
    cluster.delete(TOPIC)
    assert (await process.join("d")).error in NOT_SERVED
    await until(lambda: bool(process.lost), "given up")
    assert f"topic {TOPIC} (id " in str(process.lost[0])
    assert ") was deleted while it was in use" in str(process.lost[0])
    await asyncio.sleep(60)
    assert TOPIC not in cluster.topics
    await process.stop()


@story
async def test_a_deleted_topic_is_reported_before_an_append_needs_it() -> None:
    """Even without clients: /readyz has the message."""
    cluster = FakeCluster()
    process = await owner_of(cluster)
    assert process.runtime.not_ready is None
    cluster.delete(TOPIC)
    await until(lambda: ") was deleted while it was in use" in (process.runtime.not_ready or ""), "told")
    assert not process.lost
    await process.stop()


@pytest.mark.parametrize("was_deleted", [True, False])
@story
async def test_a_sidecar_whose_topic_was_deleted_while_stopped_reports_that_it_was_recreated(
    was_deleted: bool,
) -> None:
    """It has no offsets that would show it, but the log was opened before. A first start says nothing."""
    cluster = FakeCluster()
    if was_deleted:
        await (await owner_of(cluster)).stop()
        cluster.delete(TOPIC)
    process = await ProcessOnKafka(cluster.bootstrap).start()
    warnings = [each for each in process.kafka.warnings if f"topic {TOPIC} did not exist, although " in each]
    assert len(warnings) == was_deleted
    await process.stop()


@story
async def test_another_number_of_partitions_is_refused() -> None:
    """A group would be looked for where it is not."""
    cluster = FakeCluster()
    process = await owner_of(cluster)
    cluster.add_partition(TOPIC)
    await asyncio.sleep(10)
    assert (await process.join("d")).error in NOT_SERVED
    assert "has 4 partitions instead of 3: a group's partition depends on this number" in str(process.lost[0])
    await process.stop()


async def with_offsets(cluster: FakeCluster) -> ProcessOnKafka:
    return await ProcessOnKafka(cluster.bootstrap, with_offsets=True).start()


async def refused(cluster: FakeCluster, why: str) -> None:
    process = ProcessOnKafka(cluster.bootstrap, with_offsets=True)
    with pytest.raises(LogMismatch, match=why):
        await process.start()
    await process.stop()


@pytest.mark.parametrize("in_what", ["deleted", "made anew"])
@story
async def test_offsets_whose_event_topic_was_deleted_are_not_taken_for_those_of_deleted_groups(in_what: str) -> None:
    """Each start is refused, not the first alone, with both names; restored, the topic is gone on with."""
    cluster = FakeCluster()
    process = await with_offsets(cluster)
    assert (await process.commit(777)).error is ErrorCode.none
    await process.stop()
    was, stored = cluster.topics[TOPIC], [len(each.batches) for each in cluster.topics[OFFSETS].partitions]
    cluster.delete(TOPIC) if in_what == "deleted" else cluster.recreate(TOPIC)
    for _ in range(2):
        await refused(cluster, rf"{TOPIC} has no record of Muster, but that of {OFFSETS} has: .* Restore {TOPIC}, or")
    assert [len(each.batches) for each in cluster.topics[OFFSETS].partitions] == stored, "nothing was claimed"
    cluster.topics[TOPIC] = was
    process = await with_offsets(cluster)
    assert [each.offset for each in process.offsets.committed(process.group_id).values()] == [777]
    await process.stop()


@pytest.mark.parametrize("in_what", ["deleted", "made anew"])
@story
async def test_groups_whose_offsets_topic_was_deleted_are_not_served_without_it(in_what: str) -> None:
    """Their consumers would begin elsewhere, without a word: each start is refused, with both names."""
    cluster = FakeCluster()
    process = await with_offsets(cluster)
    assert (await process.commit(777)).error is ErrorCode.none
    await process.stop()
    was = cluster.topics[OFFSETS]
    cluster.delete(OFFSETS) if in_what == "deleted" else cluster.recreate(OFFSETS)
    for _ in range(2):
        await refused(
            cluster, rf"topic {TOPIC} has groups, but that of {OFFSETS} has no record .* Restore {OFFSETS}, or"
        )
    cluster.topics[OFFSETS] = was
    process = await with_offsets(cluster)
    assert [each.offset for each in process.offsets.committed(process.group_id).values()] == [777]
    await process.stop()


@story
async def test_offsets_of_groups_that_are_newer_than_a_restored_event_topic_are_kept() -> None:
    """They were acknowledged; only those of groups known to be deleted are removed, with one log line. The groups exist
    again, empty, and can be deleted.
    """
    cluster = FakeCluster()
    process = await with_offsets(cluster)
    number = partition_for(process.group_id, 3)
    newer, deleted = itertools.islice((each for each in groups_in(number, 3) if each != process.group_id), 2)
    for committed, group in ((100, process.group_id), (5, deleted)):
        assert (await process.commit(committed, group_id=group)).error is ErrorCode.none
    assert (await process.delete(deleted)).error is ErrorCode.none
    backup = [list(each.batches) for each in cluster.topics[TOPIC].partitions]
    for committed, group in ((900, process.group_id), (55, newer)):
        assert (await process.commit(committed, group_id=group)).error is ErrorCode.none
    await process.stop()
    for partition, batches in zip(cluster.topics[TOPIC].partitions, backup, strict=True):
        partition.batches = batches
    for is_first in (True, False):
        with capture_logs() as lines:
            process = await with_offsets(cluster)
        reported = [line for line in lines if line["event"].startswith("keeping committed offsets")]
        told_of = [(each["groups"], each["first"], each["log"], each["offsets"]) for each in reported]
        assert told_of == ([(1, newer, TOPIC, OFFSETS)] if is_first else [])
        assert not [line for line in lines if "did not write" in line["event"]]
        offsets = {group: process.offsets.committed(group) for group in (process.group_id, newer, deleted)}
        assert [[each.offset for each in of.values()] for of in offsets.values()] == [[900], [55], []]
        await process.stop()
    process = await with_offsets(cluster)
    assert (await process.commit(56, group_id=newer)).error is ErrorCode.none
    assert [each.offset for each in process.offsets.committed(newer).values()] == [56]
    listed = process.runtime.list_groups()
    assert not isinstance(listed, ErrorCode)
    assert (newer, GroupState.EMPTY) in [(each.group_id, each.state) for each in listed]
    assert (await process.delete(newer)).error is ErrorCode.none
    assert not process.offsets.committed(newer)
    await process.stop()


@story
async def test_a_first_start_that_ends_between_its_two_claims_is_gone_on_with() -> None:
    """An owner's record is in the events' partition then, and none in the offsets': no group is there yet."""
    cluster = FakeCluster()
    await (await with_offsets(cluster)).stop()
    cluster.recreate(OFFSETS)
    await (await with_offsets(cluster)).stop()
