"""Signs of life of owners as records: what they contain, and what they mean to a process that claims their topic."""

from typing import Any

import msgspec
import pytest

from muster.events.kafka.security import NOT_SECURED
from muster.events.log.base import SignOfLife
from muster.events.log.kafka import signs
from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from muster.events.log.kafka.decoding import decode_batches, writers_of
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.kafka.marks import Marks
from muster.events.records import Record
from tests.events.log.kafka.foreign_batches import at_offset
from tests.events.log.kafka.kafka_messages import produce_response, request_in
from tests.events.log.kafka.stored_partition import StoredPartition
from tests.faults.cluster import FakeCluster
from tests.faults.process import story


class Leader(KafkaLink):
    """The leader of the one partition, which keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__([], NOT_SECURED, Timeouts())
        self.batch = b""

    async def ask_leader(
        self, topic: str, partition: int, request: Any, *, lane: Any, timeout_ms: int | None = None
    ) -> Any:
        sent = request_in(request)
        ((produced,),) = (each.partition_data for each in sent.topic_data)
        assert (topic, partition, sent.acks, produced.index) == ("probe", 0, 1, 0)
        self.batch = produced.records
        return produce_response(topic, partition, base_offset=7)


async def test_a_sign_of_life_is_an_owners_record_without_an_epoch() -> None:
    """A claim of its topic learns that all owners mark, and from which offset; no epoch is counted from it."""
    leader, sign = Leader(), SignOfLife(owner="one:1", wall_ms=17)
    await signs.leave(leader, "probe", sign, origin=b"3 here", timestamp_ms=5, timeout_ms=1_000)
    ((stored,), _) = next(iter(decode_batches(leader.batch, 0, start=0, end=1, marks=Marks())))
    assert (stored.key, stored.timestamp_ms, stored.is_foreign) == (signs.KEY, 5, False)
    assert msgspec.json.decode(stored.value or b"", type=SignOfLife) == sign
    ((written, _),) = writers_of(leader.batch, end=1)
    assert written is not None
    assert written.marked
    assert (written.stamp.producer_id, written.stamp.producer_epoch, written.stamp.epoch_base) == (-1, -1, 0)
    assert (written.stamp.marked_from, written.stamp.native_from) == (0, 0)


@story
async def test_the_last_sign_of_each_owner_is_what_another_process_reads() -> None:
    """They are in the topic of the fencing probe, not among the events."""
    cluster = FakeCluster()
    logs = [KafkaEventLog(cluster.bootstrap, "events", partitions=1) for _ in range(2)]
    for log in logs:
        await log.open()
    for owner, wall_ms in (("one:1", 1), ("other:1", 12), ("one:1", 3)):
        await logs[0].leave_sign_of_life(SignOfLife(owner=owner, wall_ms=wall_ms), timeout_ms=1_000)
    assert await logs[1].last_signs_of_life(timeout_ms=1_000) == {"one:1": 3, "other:1": 12}
    assert cluster.partition("events", 0).end == 0
    for log in logs:
        await log.close()


STAMP = Stamp(producer_id=-1, producer_epoch=-1, epoch_base=0, origin=b"3 here", marked_from=0, native_from=0)


@pytest.mark.parametrize(("behind", "is_seen"), [(0, True), (499, True), (500, False)])
async def test_a_sign_is_looked_for_among_the_last_500_records(behind: int, is_seen: bool) -> None:
    """Even if other records under its key follow it."""
    no_signs = (Record(b"probe", None), Record(signs.KEY, None), Record(signs.KEY, b"{}"), Record(signs.KEY, b"\xff"))
    sign = Record(signs.KEY, msgspec.json.encode(SignOfLife(owner="one:1", wall_ms=17)))
    at = 1_000
    batches = [(at, at_offset(encode_batch([(sign,)], STAMP, base_sequence=-1, timestamp_ms=1), at))]
    if behind:
        others = encode_batch([(no_signs * 125)[:behind]], STAMP, base_sequence=-1, timestamp_ms=1)
        batches.append((at + behind, at_offset(others, at + 1)))
    link = StoredPartition(*batches, end=at + 1 + behind)
    found = await signs.read_last(link, "probe", timeout_ms=1_000)
    assert found == ({"one:1": 17} if is_seen else {})


@pytest.mark.parametrize(
    ("policy", "is_warned"), [(None, False), ("compact", False), ("compact,delete", False), ("delete", True)]
)
def test_a_topic_that_forgets_signs_is_warned_of(policy: str | None, is_warned: bool) -> None:
    """The command can be pasted."""
    warning = signs.warning_of("probe", policy, "kafka:9092")
    assert (warning is not None) == is_warned
    if warning is not None:
        assert warning.startswith("topic probe keeps the signs of life of Muster for an hour (cleanup.policy=delete)")
        assert "--bootstrap-server kafka:9092 --alter" in warning
        assert "--add-config cleanup.policy=compact`" in warning
