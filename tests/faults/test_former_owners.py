"""A process takes the event log over from one that has not said goodbye."""

from structlog.testing import capture_logs

from muster.events.log.base import Deposed
from tests.faults.cluster import FakeCluster
from tests.faults.process import ProcessOnKafka, story

TOLD = "the event log was taken over from one who had not said goodbye: if it still runs, it is deposed"


@story
async def test_an_owner_that_has_not_said_goodbye_is_named_once_by_its_successor() -> None:
    """For all partitions together; it is deposed, and finds out by its next append. Who has said it is not named."""
    cluster = FakeCluster()
    first = await ProcessOnKafka(cluster.bootstrap, name="vm:1").start()
    with capture_logs() as lines:
        second = await ProcessOnKafka(cluster.bootstrap, name="vm:2").start()
    told = [(line["log_level"], line["owner"], line["log"]) for line in lines if line["event"] == TOLD]
    assert told == [("warning", "vm:1", "events")]
    await first.join("a")
    assert isinstance(first.lost[0], Deposed)
    await first.stop()
    await second.stop()
    with capture_logs() as lines:
        third = await ProcessOnKafka(cluster.bootstrap, name="vm:3").start()
    assert TOLD not in [line["event"] for line in lines]
    await third.stop()
