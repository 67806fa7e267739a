"""A log in Kafka describes itself before it is open; what opening it for reading finds out, without a broker."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from muster.events.kafka.security import NOT_SECURED
from muster.events.log.base import LogMismatch, LogMissing
from muster.events.log.kafka.batches import Stamp
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.kafka.marks import Origin
from muster.events.log.kafka.names import PROBE_SUFFIX
from tests.events.log.kafka.client.test_metadata import MISSING, answer, topic
from tests.events.log.kafka.test_contents import StoredBatches, batch_of, unmarked

TOPIC = "t"
OFFERED = {1: (0, 11), 2: (0, 3), 3: (0, 10)}
NEW_LEVEL = 9


class Cluster(StoredBatches):
    """Two brokers of cluster `c`, which offer these versions, and a topic `t` with a partition for each batch."""

    def __init__(self, *batches: bytes, offered: dict[int, tuple[int, int]] = OFFERED) -> None:
        super().__init__(*batches)
        self._offered = offered
        self.is_open = False

    async def open(self) -> None:
        self._apply_metadata(answer())
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False

    async def versions(self, node_id: int | None = None) -> dict[int, tuple[int, int]]:
        return self._offered

    async def metadata(self, topics: Collection[str]) -> Any:
        has_it = self._batches and list(topics) in ([TOPIC], [f"{TOPIC}{PROBE_SUFFIX}"])
        return answer(topic(*((1, 0) for _ in self._batches)) if has_it else MISSING)

    async def follow(self, topics: Iterable[str]) -> None:
        """Send it to the leader."""


def reading(cluster: Cluster) -> KafkaEventLog:
    log = KafkaEventLog(["h:9001"], TOPIC, read_only=True, new_format_level=NEW_LEVEL)
    log._link = log._opening._link = cluster
    return log


def owners(cluster_id: str, level: int) -> bytes:
    """An owner's batch, written there at that level."""
    origin = Origin(cluster_id=cluster_id, format_level=level).encode()
    return batch_of(b"k", Stamp(producer_id=7, producer_epoch=3, epoch_base=0, origin=origin, marked_from=0))


def test_before_it_is_open_nothing_is_known_of_the_topic() -> None:
    """But its name; and nothing is wrong."""
    log = KafkaEventLog(["127.0.0.1:1"], "events", security=NOT_SECURED)
    assert (log.location, log.identity) == ("events", ".events")
    assert (log.partitions, log.cluster_id, log.claim_renewal_ms) == (0, None, None)
    assert (log.warnings, log.trouble) == ((), None)


@pytest.mark.parametrize(
    ("batches", "level"),
    [((owners("c", 3), b""), 3), ((b"", owners("c", 4)), 4), ((b"", b""), NEW_LEVEL)],
    ids=["the third", "the fourth", "empty"],
)
async def test_a_log_that_is_read_has_the_level_that_its_owners_noted(batches: tuple[bytes, ...], level: int) -> None:
    """And one without a record that of a new one."""
    log = reading(Cluster(*batches))
    await log.open()
    assert (log.partitions, log.cluster_id, log.format_level) == (2, "c", level)
    assert log.created == []


@pytest.mark.parametrize(("home", "since"), [("c", 0), ("elsewhere", None)])
async def test_the_owners_that_are_read_are_those_of_the_cluster_that_the_log_was_written_on(
    home: str, since: int | None
) -> None:
    """A copy on another cluster has their records too; its offsets are others, so no mark is known by them."""
    log = reading(Cluster(owners(home, 4)))
    await log.open()
    marks = await log.owners_marks(0)
    assert (marks.home, marks.since) == (home, since)
    assert [[record.key for record in chunk] async for chunk in log.read(0)] == [[b"k"]]


async def test_a_missing_topic_is_not_created_for_a_reader() -> None:
    cluster = Cluster()
    with pytest.raises(LogMissing, match="topic t does not exist, and a log opened for reading creates none"):
        await reading(cluster).open()
    assert not cluster.is_open


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (Cluster(unmarked(b"customer")), "topic t is a foreign topic"),
        (Cluster(owners("c", 4), offered=OFFERED | {2: (0, 0)}), "^broker 1 at h:9001 is too old"),
    ],
    ids=["contents", "versions"],
)
async def test_records_that_a_reader_cannot_use_are_reported_and_skipped(cluster: Cluster, told: str) -> None:
    """The connections that were opened for it are closed."""
    with pytest.raises(LogMismatch, match=told):
        await reading(cluster).open()
    assert not cluster.is_open
