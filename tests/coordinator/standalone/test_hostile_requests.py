"""One client's request does not block the others: no callback of the loop is long, whatever a request contains.

Each array of each API is sent as 4 MB of the smallest entries, which took up to 38 s of the loop at once; and each API
with as many entries as its bound allows, all different.
"""

import asyncio
import socket
from typing import Any

import pytest

from muster.coordinator.cluster import new_cluster
from muster.coordinator.topics import declare_topic
from muster.coordinator.wire.registry import APIS
from muster.events.kafka.codec.reading import STRING_BYTES_MAX
from tests.conformance.wire import Connection, ms
from tests.coordinator.hostile import (
    FOUR_MB,
    HELD_S_MAX,
    as_many_as_allowed,
    every_array,
    exactly,
    exchange,
    four_megabytes,
    smallest_arrays,
)
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.longest_callback import Longest, longest_callback
from tests.coordinator.serving import GROUP_ID, Serving, enter, serving
from tests.coordinator.wire.smallest import Path
from tests.coordinator.wire.test_long_ids import requests

PRODUCE = 0
WIDE = new_cluster(
    cluster_id="muster-test", node_id=1, host="127.0.0.1", port=9092, topics=[declare_topic("wide:100000")]
)


async def sent(muster: Serving, content: bytes) -> tuple[bytes, Longest]:
    """The response, and the longest callback."""
    with longest_callback() as longest:
        answer = await asyncio.to_thread(exchange, muster.server.port, content)
    return answer, longest


@pytest.mark.parametrize(("api_key", "version", "path"), every_array(APIS.values()))
async def test_four_megabytes_of_the_smallest_entries_block_no_others(api_key: int, version: int, path: Path) -> None:
    async with serving(cluster=WIDE) as muster:
        _, longest = await sent(muster, four_megabytes(api_key, version, path))
    assert longest.seconds < HELD_S_MAX, longest


@pytest.mark.parametrize(("api_key", "version", "path"), smallest_arrays(APIS.values()))
async def test_the_allowed_number_of_entries_blocks_no_others(api_key: int, version: int, path: Path) -> None:
    async with serving(cluster=WIDE) as muster:
        answer, longest = await sent(muster, as_many_as_allowed(api_key, version, path))
    is_answered = api_key != PRODUCE  # whose acks are 0 here: it is refused by closing the connection
    assert answer[:4] == (b"\x00\x00\x00\x01" if is_answered else b"")
    assert longest.seconds < HELD_S_MAX, longest


@pytest.mark.parametrize("name", requests([]))
async def test_groups_with_the_longest_ids_block_no_others(name: str) -> None:
    """As many as fit into 8 MB, in each request that names several groups."""
    version, body = requests([f"{n:03}".ljust(STRING_BYTES_MAX, "g") for n in range(250)])[name]
    async with serving() as muster:
        answer, longest = await sent(muster, frame(name, version, **body))
    assert answer
    assert longest.seconds < HELD_S_MAX, longest


# ---- requests of clients and tools, for an existing group ------------------------------------------------


async def test_offsets_of_many_partitions_are_committed_fetched_and_deleted() -> None:
    partitions = [
        {"partition_index": n, "committed_offset": n, "committed_leader_epoch": 1, "committed_metadata": "m" * 20}
        for n in range(40_000)
    ]
    async with serving(cluster=WIDE) as muster:
        connection = await muster.connect("app")
        with longest_callback() as longest:
            errors = await asyncio.to_thread(_commit, muster, partitions)
        assert errors == {0}
        assert longest.seconds < HELD_S_MAX, longest
        for ask, reported in ((_fetch_all, 40_000), (_delete, 40_000)):
            with longest_callback() as longest:
                count = await asyncio.to_thread(ask, muster)
            assert count == reported
            assert longest.seconds < HELD_S_MAX, longest
        connection.close()


def _ask(muster: Serving, name: str, version: int, **body: Any) -> Any:
    return asyncio.run(_send(muster.bootstrap, name, version, body))


async def _send(bootstrap: str, name: str, version: int, body: dict[str, Any]) -> Any:
    connection = await Connection.open(bootstrap, client_id="app")
    try:
        return await connection.ask(name, version, **body)
    finally:
        connection.close()


def _commit(muster: Serving, partitions: list[dict[str, Any]]) -> set[int]:
    body = {"group_id": GROUP_ID, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    topics = [{"name": "wide", "partitions": partitions}]
    answer = _ask(muster, "OffsetCommit", 9, **body, topics=topics)
    return {each["error_code"] for each in answer["topics"][0]["partitions"]}


def _fetch_all(muster: Serving) -> int:
    group = {"group_id": GROUP_ID, "topics": None, "member_id": None, "member_epoch": -1}
    answer = _ask(muster, "OffsetFetch", 9, groups=[group], require_stable=False)
    return len(answer["groups"][0]["topics"][0]["partitions"])


def _delete(muster: Serving) -> int:
    topics = [{"name": "wide", "partitions": [{"partition_index": n} for n in range(40_000)]}]
    answer = _ask(muster, "OffsetDelete", 0, group_id=GROUP_ID, topics=topics)
    return sum(each["error_code"] == 0 for each in answer["topics"][0]["partitions"])


async def test_members_that_leave_together_block_no_others() -> None:
    """An administrator removes 5,000, of which one exists."""
    async with serving() as muster:
        connection = await muster.connect("app")
        await enter(connection, 9, instance="instance-0", session_timeout=ms(300_000))
        members = [{"member_id": "", "group_instance_id": f"instance-{n}", "reason": "removed"} for n in range(5_000)]
        with longest_callback() as longest:
            answer = await asyncio.to_thread(_ask, muster, "LeaveGroup", 5, group_id=GROUP_ID, members=members)
        assert [each["error_code"] for each in answer["members"]] == [0, *[25] * 4_999]
        assert longest.seconds < HELD_S_MAX, longest
        connection.close()


async def test_a_client_that_asks_many_small_things_at_once_is_answered_a_few_at_a_time() -> None:
    """4 MB of them, with other clients in between."""
    small = with_length(b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")
    async with serving() as muster:
        with longest_callback() as longest:
            count = await asyncio.to_thread(_flood, muster.server.port, small, FOUR_MB // len(small) // 10)
    assert count == FOUR_MB // len(small) // 10
    assert longest.seconds < HELD_S_MAX, longest


def _flood(port: int, small: bytes, count: int) -> int:
    """Send this many, and count the responses as they arrive."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        answered = 0
        for begun in range(0, count, 1_000):
            batch = min(1_000, count - begun)
            connection.sendall(small * batch)
            for _ in range(batch):
                exactly(connection, int.from_bytes(exactly(connection, 4), "big"))
                answered += 1
    return answered
