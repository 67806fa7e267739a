"""Claiming a partition: the next epoch, and from where on owners mark their records."""

import pytest

from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.producer import WriterConfig, claim
from muster.events.records import Record
from tests.events.log.foreign_batches import at_offset, batch
from tests.events.log.stored_partition import StoredPartition

ONE = Record(b"key", b"value")
CONFIG = WriterConfig(topic="events", partition=0, limit_bytes=1_000, delivery_timeout_ms=50)


def owners(offset: int, stamp: Stamp) -> tuple[int, bytes]:
    return offset, at_offset(encode_batch([(ONE,)], stamp, base_sequence=0, timestamp_ms=1), offset)


@pytest.mark.parametrize("batches", [(), ((4, batch([ONE], base_offset=4)),)], ids=["nothing", "a stranger's"])
async def test_where_no_owner_wrote_all_that_has_no_mark_is_a_strangers(batches: tuple[tuple[int, bytes], ...]) -> None:
    """From the first offset on."""
    writer = await claim(StoredPartition(*batches, end=5), CONFIG)
    assert (writer._stamp.marked_from, writer._stamp.native_from) == (0, 0)
    assert writer.epoch == 3


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, 10 + 3), (6, 10 + 2 + 1 + 3)])
async def test_where_owners_began_to_mark_is_noted_on(producer_id: int, epoch: int) -> None:
    """With another producer id, which begins at 0 again, epochs go on above those of the last owner."""
    former = Stamp(producer_id=producer_id, producer_epoch=2, epoch_base=10, marked_from=3)
    writer = await claim(StoredPartition(owners(4, former), end=5), CONFIG)
    assert writer._stamp.marked_from == 3
    assert writer.epoch == epoch
