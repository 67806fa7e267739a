"""A broker that hangs, is down, or has handed its partitions over: what is served meanwhile, and afterwards."""

import asyncio
import contextlib
import re
from itertools import pairwise

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.events.log.base import LogUnavailable
from muster.events.log.kafka.log import DEFAULT_TIMEOUTS
from muster.events.partitioner import partition_for
from tests.faults.cluster import FETCH, PRODUCE, FakeCluster
from tests.faults.process import ProcessOnKafka, groups_in, seconds, story
from tests.simulation.process import GROUP
from tests.waiting import until

LIMIT_S = DEFAULT_TIMEOUTS.delivery_timeout_ms / 1000


@story
async def test_the_only_broker_hangs_for_five_minutes() -> None:
    """The process waits for it, reports why it does not serve, and continues within 2 s."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    cluster.hang(1)
    waiting = process.join("b")
    with capture_logs() as logged:
        await asyncio.sleep(12)
        slow = process.runtime.not_ready
        await asyncio.sleep(288)
    assert slow is not None
    assert "an append to the event log events has waited for 1" in slow
    assert slow.endswith(" s (partition 0): broker 1 at broker:1 has not answered")
    first = logged[0]
    assert first["event"] == "append not acknowledged, waiting for it"
    assert (first["partitions"], first["waits_for"], first["log"]) == ([0], "broker 1 at broker:1", "events")
    assert 10 <= first["seconds"] <= 12
    lines = [line["partitions"] for line in logged if line["event"] == first["event"]]
    assert lines == [[0], [1, 2]]  # once each
    assert not [line for line in logged if line["event"] == "appends are acknowledged again"]  # they timed out
    assert (await waiting).error is ErrorCode.not_coordinator
    assert (await process.join("b")).error is ErrorCode.coordinator_load_in_progress
    reason = process.runtime.not_ready
    assert reason is not None
    assert re.search("the event log events has been unavailable for (299|300) s", reason), reason
    lost = [line for line in logged if line["event"].startswith("partitions lost")]
    # What the others' own appends waited for began later.
    assert [(line["log_level"], line["partitions"]) for line in lost] == [("warning", [0]), ("warning", [1, 2])]
    assert lost[0]["error"].startswith("partition 0 of events: given up after 30000 ms")
    away = [line["seconds"] for line in logged if line["event"] == "event log unavailable, retrying"]
    assert len(away) == 5
    assert 25 <= away[0] <= 35  # reported when the first append timed out, and counted from its start
    assert all(59 <= after - before <= 95 for before, after in pairwise(away))
    cluster.go_on(1)
    began = seconds()
    with capture_logs() as logged:
        await until(lambda: process.runtime.ready, "served again")
    assert seconds() - began < 2
    assert [line["event"] for line in logged if "event log" in line["event"]] == ["event log available again"]
    assert process.lost == []
    await process.stop()


@story
async def test_offsets_that_are_not_stored_name_the_broker_that_leads_theirs() -> None:
    """It may be another one than that of the events."""
    cluster = FakeCluster(2)
    process = await ProcessOnKafka(cluster.bootstrap, with_offsets=True).start()
    number = partition_for(GROUP, 3)
    events, offsets = cluster.partition("events", number), cluster.partition("events_offsets", number)
    offsets.leader = 3 - events.leader
    assert (await process.commit(1)).error is ErrorCode.none
    cluster.hang(offsets.leader)
    with capture_logs() as logged:
        waiting = process.commit(2)
        await asyncio.sleep(12)
    (line,) = [line for line in logged if line["event"] == "append not acknowledged, waiting for it"]
    assert (line["log"], line["partitions"]) == ("events_offsets", [number])
    assert line["waits_for"] == f"broker {offsets.leader} at broker:{offsets.leader}"
    cluster.go_on(offsets.leader)
    await waiting
    with capture_logs() as logged:
        await asyncio.sleep(2)
    (over,) = [line for line in logged if line["event"] == "appends are acknowledged again"]
    assert (over["partitions"], over["seconds"]) == ([number], 12)
    await process.stop()


@story
async def test_the_only_broker_is_gone_for_five_minutes() -> None:
    """As when it hangs."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    cluster.stop(1)
    waiting = process.join("b")
    await asyncio.sleep(300)
    assert (await waiting).error is ErrorCode.not_coordinator
    cluster.start(1)
    began = seconds()
    await until(lambda: process.runtime.ready, "served again")
    assert seconds() - began < 2
    assert process.lost == []
    await process.stop()


@story
async def test_a_broker_of_another_cluster_at_a_known_address_is_not_spoken_to() -> None:
    """It may have a topic of that name. It is reported, and the process waits for the previous broker."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    cluster.stop(1)
    cluster.cluster_id = "another"
    cluster.start(1)
    before = cluster.asked[PRODUCE], cluster.asked[FETCH]
    assert (await process.join("b")).error is ErrorCode.not_coordinator
    await asyncio.sleep(60)
    assert (cluster.asked[PRODUCE], cluster.asked[FETCH]) == before
    text = "broker:1 is a broker of cluster another, and cluster fake was expected: correct the address"
    assert text in str(process.runtime.not_ready)
    cluster.stop(1)
    cluster.cluster_id = "fake"
    cluster.start(1)
    await until(lambda: process.runtime.ready, "served again")
    assert process.lost == []
    await process.stop()


@story
async def test_one_hung_broker_of_three_delays_its_own_partitions_alone() -> None:
    """And those continue within 10 s after their leaders moved."""
    cluster = FakeCluster(3)
    process = await ProcessOnKafka(cluster.bootstrap, partitions=3).start()
    groups = {cluster.partition("events", number).leader: groups_in(number, 3) for number in range(3)}
    cluster.hang(1)
    began = seconds()
    slow = process.join("a", group_id=next(groups[1]))
    for node in (2, 3, 2, 3):
        assert (await process.join("a", group_id=next(groups[node]))).error is ErrorCode.none
    assert seconds() - began < 1
    await asyncio.sleep(9)
    cluster.fail_over(1)
    moved = seconds()
    assert (await slow).error is ErrorCode.none
    assert seconds() - moved < 10
    assert process.lost == []
    await process.stop()


@story
async def test_a_log_unavailable_at_the_start_is_awaited() -> None:
    """Even while it is opened, when each broker is queried for its settings."""
    cluster = FakeCluster(3)
    await (await ProcessOnKafka(cluster.bootstrap).start()).stop()
    first = cluster.partition("events", 0)
    cluster.hang(first.leader)
    process = ProcessOnKafka(cluster.bootstrap)
    opening = asyncio.create_task(process.kafka.open())
    await asyncio.sleep(1)
    assert not opening.done()
    cluster.fail_over(first.leader)
    with contextlib.suppress(LogUnavailable):
        await opening
    await process.start()
    await process.runtime.all_owned()
    assert process.runtime.ready
    assert process.lost == []
    await process.stop()


@pytest.mark.parametrize("read_only", [False, True])
@story
async def test_a_broker_that_hangs_and_leads_nothing_delays_an_opening_until_the_cluster_drops_it(
    read_only: bool,
) -> None:
    """Then its versions and settings are no longer requested, and another broker has those of the topic."""
    cluster = FakeCluster(3)
    await (await ProcessOnKafka(cluster.bootstrap, partitions=1).start()).stop()
    for topic in cluster.topics.values():
        for partition in topic.partitions:
            partition.leader = 2
    cluster.coordinator = 2
    cluster.hang(1)
    process = ProcessOnKafka(cluster.bootstrap, partitions=1, read_only=read_only)
    opening, began = asyncio.create_task(process.kafka.open()), seconds()
    await asyncio.sleep(2)
    cluster.alive.discard(1)
    await opening
    assert seconds() - began < LIMIT_S / 2
    await process.kafka.close()


@story
async def test_partitions_with_hanging_leaders_at_the_start_are_awaited_and_the_others_served() -> None:
    """Those that hang do not wait for each other's limits, and are served when their leaders have moved."""
    cluster = FakeCluster(4)
    await (await ProcessOnKafka(cluster.bootstrap, partitions=4).start()).stop()
    leaders = [cluster.partition("events", number).leader for number in range(4)]
    assert len(set(leaders)) == 4
    cluster.coordinator = leaders[3]
    process = ProcessOnKafka(cluster.bootstrap, partitions=4)
    await process.kafka.open()
    await process.offsets.open()
    for number in (0, 1):
        cluster.hang(leaders[number])
    began = seconds()
    await process.runtime.start()
    groups = [next(groups_in(number, 4)) for number in range(4)]
    await until(lambda: len(process.runtime._partitions.owned) == 2, "the others are served", within_s=5)
    assert seconds() - began < 1.5 * LIMIT_S
    for number, error in enumerate([ErrorCode.coordinator_load_in_progress] * 2 + [ErrorCode.none] * 2):
        assert (await process.join("a", group_id=groups[number])).error is error
    for number in (0, 1):
        cluster.fail_over(leaders[number])
    moved = seconds()
    await process.runtime.all_owned()
    assert seconds() - moved < 10
    for group_id in groups[:2]:
        assert (await process.join("a", group_id=group_id)).error is ErrorCode.none
    assert process.lost == []
    await process.stop()
