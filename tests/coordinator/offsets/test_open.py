"""Which offset store belongs to which event log."""

from pathlib import Path

import pytest

from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.offsets.open import offset_store_for
from muster.coordinator.offsets.sqlite import SqliteOffsetStore
from muster.events.log.url import open_log
from tests.faults.cluster import FakeCluster
from tests.faults.process import story


async def test_the_offsets_of_a_file_are_in_the_same_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'muster.db'}"
    store = offset_store_for(open_log(url), url, replication=None)
    assert isinstance(store, SqliteOffsetStore)


async def test_the_offsets_of_a_log_in_memory_are_in_memory() -> None:
    store = offset_store_for(open_log("memory:"), "memory:", replication=None)
    assert isinstance(store, MemoryOffsetStore)


@pytest.mark.parametrize("partitions", [1, 3])
@story
async def test_the_offsets_of_a_topic_are_in_one_beside_it(partitions: int) -> None:
    """With as many partitions, compacted, and without a history."""
    cluster = FakeCluster()
    url = f"kafka://{','.join(cluster.bootstrap)}/events"
    event_log = open_log(url, partitions=partitions, replication=1)
    await event_log.open()
    store = offset_store_for(event_log, url, replication=1)
    await store.open()
    assert store.own_log is not None
    assert store.own_log.partitions == partitions
    topic = cluster.topics["events_offsets"]
    assert len(topic.partitions) == partitions
    assert topic.configs.get("min.compaction.lag.ms") == "0"
    await store.close()
    await event_log.close()
