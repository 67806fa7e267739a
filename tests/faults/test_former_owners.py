"""A process takes the event log over from another that did not stop cleanly."""

import asyncio

from structlog.testing import capture_logs

from muster.events.log.base import Deposed
from tests.faults.cluster import FakeCluster
from tests.faults.process import ProcessOnKafka, groups_in, story

TOLD = "the previous owner of the event log did not shut down cleanly: if it still runs, it is fenced now"


@story
async def test_an_owner_that_did_not_stop_cleanly_is_named_once_by_its_successor() -> None:
    """For all partitions together; it is deposed, notices it at its next append, and logs once by which process. A
    process that stopped cleanly is not named.
    """
    cluster = FakeCluster()
    first = await ProcessOnKafka(cluster.bootstrap, name="vm:1").start()
    with capture_logs() as lines:
        second = await ProcessOnKafka(cluster.bootstrap, name="vm:2").start()
    reported = [(line["log_level"], line["owner"], line["log"]) for line in lines if line["event"] == TOLD]
    assert reported == [("warning", "vm:1", "events")]
    with capture_logs() as lines:
        for number in range(3):
            group_id = next(groups_in(number, 3))
            first.group_id = group_id
            await first.join("a")
        assert isinstance(first.lost[0], Deposed)
        await first.stop()
    result = str(first.lost[0])
    assert result.startswith("vm:2 took over the event log from this process at ")
    assert "give this one another --log, or point its clients at the other one" in result
    assert [(line["event"], line["error"]) for line in lines] == [("partition lost", result)]
    await second.stop()
    with capture_logs() as lines:
        third = await ProcessOnKafka(cluster.bootstrap, name="vm:3").start()
    assert TOLD not in [line["event"] for line in lines]
    await third.stop()


@story
async def test_a_name_that_comes_again_is_warned_of_each_time() -> None:
    """For example a pod, whose process always has pid 1; one warning for all partitions together."""
    cluster = FakeCluster()

    async def started(name: str) -> ProcessOnKafka:
        return await ProcessOnKafka(cluster.bootstrap, name=name, answer_lease_ms=2_000).start()

    first = await started("pod:1")
    with capture_logs() as lines:
        second = await started("pod:1")
    assert [line["owner"] for line in lines if line["event"] == TOLD] == ["pod:1"]
    survivor = await started("vm:2")
    pods = [first, second]
    for _ in range(2):
        await survivor.runtime.release(range(3))
        pods.append(await started("pod:1"))
        await asyncio.sleep(75)  # not at the minute, at which claims are renewed
        with capture_logs() as lines:
            await survivor.runtime.assign(range(3))
        assert [line["owner"] for line in lines if line["event"] == TOLD] == ["pod:1"]
    for process in (survivor, *pods):
        await process.stop()


@story
async def test_an_idle_owner_finds_out_within_seconds_that_it_was_deposed() -> None:
    """It repeats its last append, and the record after that shows it; it writes nothing."""
    cluster = FakeCluster()
    first = await ProcessOnKafka(cluster.bootstrap, name="vm:1", answer_lease_ms=2_000).start()
    await asyncio.sleep(600)
    assert not first.lost
    second = await ProcessOnKafka(cluster.bootstrap, name="vm:2").start()
    ends = [cluster.partition("events", number).end for number in range(3)]
    await asyncio.sleep(2)
    assert str(first.lost[0]).startswith("vm:2 took over the event log from this process at ")
    assert not second.lost
    await first.stop()
    assert [cluster.partition("events", number).end for number in range(3)] == ends
    await second.stop()
