"""The origin that an event topic notes, and the refusals it leads to before anything is written."""

from typing import Any

import pytest

from muster.events.kafka.security import NOT_SECURED
from muster.events.log.base import LogMismatch
from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from muster.events.log.kafka.marks import Origin, decode_origin, origin_of
from muster.events.log.kafka.origin import check_origin, refuse_another
from muster.events.records import FORMAT_LEVEL, LogTooNew, Record
from tests.events.log.kafka.kafka_messages import FETCH, LIST_OFFSETS, fetch_response, offset_response, request_in

OURS = origin_of("here")
TOPIC = "events"


class TwoPartitions(KafkaLink):
    """The leader of two partitions: the first is empty, the second ends with a batch that notes its origin."""

    def __init__(self, origin: bytes, partitions: int | None = None) -> None:
        super().__init__([], NOT_SECURED, Timeouts())
        stamp = Stamp(
            producer_id=7, producer_epoch=3, epoch_base=0, origin=origin, marked_from=0, partitions=partitions
        )
        self._batch = encode_batch([(Record(b"a", b"1"), Record(b"b", b"2"))], stamp, base_sequence=0, timestamp_ms=1)
        self.asked: list[int] = []

    async def ask_leader(
        self, topic: str, partition: int, request: Any, *, lane: object, timeout_ms: int | None = None
    ) -> Any:
        api_key = request_in(request).__api_key__
        self.asked.append(api_key)
        end = 2 * partition
        if api_key == LIST_OFFSETS:
            return offset_response(topic, partition, end)
        return fetch_response(topic, partition, end, self._batch)


def test_a_note_is_read_back() -> None:
    """The cluster as it names itself, and the level that this version writes."""
    assert Origin(cluster_id="here", format_level=FORMAT_LEVEL) == OURS
    assert decode_origin(OURS.encode()) == OURS
    assert decode_origin(origin_of(None).encode()) == Origin(cluster_id="", format_level=OURS.format_level)


@pytest.mark.parametrize("noted", [b"", b"here", b"x here", b"\xff\xfe", "² here".encode()])
def test_foreign_notes_are_ignored(noted: bytes) -> None:
    """It does not stop a start."""
    assert decode_origin(noted) is None


async def test_a_copy_on_another_cluster_is_refused() -> None:
    """The error names both clusters and the permitted uses of the copy; every partition is queried, and nothing is
    written.
    """
    link = TwoPartitions(Origin(cluster_id="there", format_level=1).encode())
    with pytest.raises(LogMismatch) as mismatch:
        await check_origin(link, TOPIC, 2, OURS, timeout_ms=1_000)
    assert str(mismatch.value) == (
        "topic events was written on cluster there, and this is cluster here: a copy of it can be read"
        " (muster replay), but not written here; start with another topic"
    )
    assert set(link.asked) == {LIST_OFFSETS, FETCH}


async def test_a_topic_of_a_newer_version_is_refused() -> None:
    """Before its owner, which may be running, is deposed."""
    newer = Origin(cluster_id="here", format_level=OURS.format_level + 1)
    with pytest.raises(LogTooNew) as too_new:
        await check_origin(TwoPartitions(newer.encode()), TOPIC, 2, OURS, timeout_ms=1_000)
    assert str(too_new.value) == (
        f"topic events has format level {OURS.format_level + 1}, this version of Muster knows {OURS.format_level}; use"
        " a newer Muster"
    )


@pytest.mark.parametrize(
    ("noted", "level"),
    [(b"", 3), (Origin(cluster_id="here", format_level=1).encode(), 3), (OURS.encode(), FORMAT_LEVEL)],
    ids=["none", "the first", "the last"],
)
async def test_a_topic_is_gone_on_with_at_its_own_level_or_the_third(noted: bytes, level: int) -> None:
    """A process that wrote the first two levels can read the third; nothing older than that is written."""
    notes = await check_origin(TwoPartitions(noted), TOPIC, 2, OURS, timeout_ms=1_000)
    assert notes.format_level == level


@pytest.mark.parametrize("noted", [b"", OURS.encode(), Origin(cluster_id="here", format_level=1).encode()])
@pytest.mark.parametrize("partitions", [None, 2])
async def test_our_own_topic_is_taken(noted: bytes, partitions: int | None) -> None:
    """One of an older version, and one from before there was a note, too."""
    await check_origin(TwoPartitions(noted, partitions), TOPIC, 2, OURS, timeout_ms=1_000)


class EachItsOwner(TwoPartitions):
    """The leader of several partitions, each with its own owner; None: the partition is empty."""

    def __init__(self, *owners: TwoPartitions | None) -> None:
        super().__init__(b"")
        self._owners = owners

    async def ask_leader(self, topic: str, partition: int, request: Any, **_more: Any) -> Any:
        owner = self._owners[partition]
        end = 0 if owner is None else 2
        if owner is None or request_in(request).__api_key__ == LIST_OFFSETS:
            return offset_response(topic, partition, end)
        return fetch_response(topic, partition, end, owner._batch)


def _owner(cluster: str, level: int, partitions: int | None = None) -> TwoPartitions:
    return TwoPartitions(Origin(cluster_id=cluster, format_level=level).encode(), partitions)


@pytest.mark.parametrize("levels", [(4, 5), (5, 4)])
async def test_of_several_owners_the_highest_level_holds(levels: tuple[int, int]) -> None:
    """One of them was upgraded before the others."""
    link = EachItsOwner(*(_owner("here", level) for level in levels))
    assert (await check_origin(link, TOPIC, 2, OURS, timeout_ms=1_000)).format_level == 5


@pytest.mark.parametrize("noted", [(2, None), (None, 2)])
async def test_a_number_of_partitions_that_one_owner_noted_is_known(noted: tuple[int | None, int | None]) -> None:
    """Owners of older versions noted none."""
    link = EachItsOwner(*(_owner("here", 5, partitions) for partitions in noted))
    assert (await check_origin(link, TOPIC, 2, OURS, timeout_ms=1_000)).partitions == 2


async def test_a_copy_is_known_by_any_of_its_partitions() -> None:
    """The last one is empty."""
    with pytest.raises(LogMismatch, match="cluster there"):
        await check_origin(EachItsOwner(_owner("there", 1), None), TOPIC, 2, OURS, timeout_ms=1_000)


def test_brokers_without_a_cluster_id_are_not_compared() -> None:
    """Neither when the log was created nor later."""
    refuse_another(origin_of(None), OURS, topic=TOPIC)
    refuse_another(OURS, origin_of(None), topic=TOPIC)
