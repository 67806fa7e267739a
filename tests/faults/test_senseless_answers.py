"""A broker whose responses do not match the requests: they are refused, and the process survives."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchResponse_v11  # noqa: TID251 -- written by another library than ours
from aiokafka.protocol.offset import OffsetResponse_v1  # noqa: TID251 -- written by another library than ours
from aiokafka.protocol.produce import ProduceResponse_v7  # noqa: TID251 -- written by another library than ours
from kio.schema.errors import ErrorCode

from tests.faults.cluster import FETCH, LIST_OFFSETS, PRODUCE, FakeCluster
from tests.faults.process import ProcessOnKafka, story
from tests.waiting import until

Topics = list[tuple[str, list[int]]]

SENSELESS: dict[str, Topics] = {
    "no topic": [],
    "no partition": [("events", [])],
    "another partition": [("others", [77])],
    "twice": [("events", [0, 0])],
}


def produced(topics: Topics) -> bytes:
    of = [(name, [(number, 0, 1_000, -1, 0) for number in numbers]) for name, numbers in topics]
    encoded: bytes = ProduceResponse_v7(of, 0).encode()
    return encoded


def listed(topics: Topics) -> bytes:
    encoded: bytes = OffsetResponse_v1([(name, [(each, 0, -1, 1_000) for each in of]) for name, of in topics]).encode()
    return encoded


def fetched(topics: Topics) -> bytes:
    aborted: list[Any] = []
    of = [(name, [(number, 0, 1_000, 1_000, 0, aborted, -1, b"") for number in numbers]) for name, numbers in topics]
    encoded: bytes = FetchResponse_v11(0, 0, 0, of).encode()
    return encoded


ANSWERS: dict[int, Callable[[Topics], bytes]] = {PRODUCE: produced, LIST_OFFSETS: listed, FETCH: fetched}


def answers(cluster: FakeCluster, api_key: int, answer: bytes) -> Callable[[], None]:
    """Have one API answered by this; returns what ends it."""
    sensible = cluster.handle

    def handle(node: int, key: int, frame: bytes) -> bytes:
        return answer if key == api_key else sensible(node, key, frame)

    patched: Any = cluster
    patched.handle = handle

    def end() -> None:
        patched.handle = sensible

    return end


@pytest.mark.parametrize("topics", SENSELESS.values(), ids=SENSELESS)
@story
async def test_an_append_that_is_answered_about_another_partition_is_not_there(topics: Topics) -> None:
    """It is sent again, and so is a proof of ownership; a broker that makes sense again is believed."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap, partitions=1, answer_lease_ms=2_000).start()
    appended = cluster.partition("events", 0).end
    end = answers(cluster, PRODUCE, produced(topics))
    waiting = process.join("a")
    await asyncio.sleep(8)
    assert not waiting.done()
    assert cluster.partition("events", 0).end == appended
    end()
    assert (await waiting).error is ErrorCode.none
    assert process.lost == []
    await process.stop()


@pytest.mark.parametrize("api_key", [LIST_OFFSETS, FETCH])
@pytest.mark.parametrize("topics", SENSELESS.values(), ids=SENSELESS)
@story
async def test_a_log_is_read_when_answers_are_about_it(topics: Topics, api_key: int) -> None:
    cluster = FakeCluster()
    first = await ProcessOnKafka(cluster.bootstrap, partitions=1).start()
    await first.join("a")
    await first.stop()
    end = answers(cluster, api_key, ANSWERS[api_key](topics))
    asyncio.get_running_loop().call_later(5, end)
    process = await ProcessOnKafka(cluster.bootstrap, partitions=1).start()
    await until(lambda: process.runtime.ready, "served")
    assert process.lost == []
    assert process.runtime.has_group(process.group_id)
    await process.stop()
