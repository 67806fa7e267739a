"""Sockets note how a client's connection ended, and a member's removal records it: over real sockets."""

import socket
import struct
from typing import Any

import pytest

from muster.coordinator.net.client_socket import ClientSocket
from muster.events.avro.codec import decode
from muster.events.connection import ConnectionEnd
from muster.events.events import MemberJoined, MemberRemoved
from muster.events.log.memory import MemoryStorage
from tests.conformance.wire import Connection, ms
from tests.coordinator.serving import GROUP_ID, Serving, join_body, serving, sync_body
from tests.waiting import until

ABORT = struct.pack("ii", 1, 0)
"""SO_LINGER: close with RST."""


def events(muster: Serving, event_type: type[Any]) -> list[Any]:
    values = (record.value for partition in muster.storage.records for record in partition)
    found = [decode(value) for value in values if value is not None]
    return [event for event in found if isinstance(event, event_type)]


async def enter(connection: Connection, session_ms: int = 500) -> dict[str, Any]:
    """Join and sync as the only (dynamic) member of its group; return the join response."""
    joined = await connection.ask("JoinGroup", 3, **join_body(session_timeout=ms(session_ms)))
    assert joined["error_code"] == 0
    assert (await connection.ask("SyncGroup", 3, **sync_body(joined)))["error_code"] == 0
    return joined


def hang_up(connection: Connection) -> None:
    """Close with FIN."""
    connection.close()


def reset(connection: Connection) -> None:
    """Close with RST, like a process that ends without having read everything."""
    assert connection._transport is not None
    connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    connection._transport.abort()


def close_own_side(connection: Connection) -> None:
    """Send FIN, and keep reading."""
    assert connection._transport is not None
    connection._transport.write_eof()


def go_on(connection: Connection) -> None:
    """Stay silent."""


@pytest.mark.parametrize(
    ("what", "end"),
    [
        (hang_up, ConnectionEnd.CLOSED),
        (reset, ConnectionEnd.RESET),
        (close_own_side, ConnectionEnd.CLOSED),
        (go_on, None),
    ],
)
async def test_the_removal_of_a_member_records_how_its_connection_ended(what: Any, end: ConnectionEnd | None) -> None:
    """Its session expires in any case."""
    async with serving() as muster:
        connection = await muster.connect("app")
        await enter(connection)
        what(connection)
        await until(lambda: events(muster, MemberRemoved))
        (joined,), (removed,) = events(muster, MemberJoined), events(muster, MemberRemoved)
        last = removed.last_connection
        assert (last.connection_id, last.edge, last.end) == (joined.why.connection_id, None, end)
        assert joined.why.arrived_ms <= last.received_ms <= removed.last_seen_ms
        if end is None:
            assert last.ended_ms is None
        else:
            assert removed.last_seen_ms <= last.ended_ms <= removed.why.decided_ms


async def test_a_connection_that_we_close_is_not_attributed_to_the_client() -> None:
    """For example an idle connection."""
    async with serving() as muster:
        connection = await muster.connect("app")
        await enter(connection)
        (served,) = connections(muster)
        served.close()
        await until(lambda: connection.is_lost)
        await until(lambda: events(muster, MemberRemoved))
        (removed,) = events(muster, MemberRemoved)
        assert removed.last_connection.end is ConnectionEnd.CLOSED_BY_COORDINATOR


async def test_a_member_that_heartbeats_on_another_connection_is_judged_by_that_one() -> None:
    """Even while its heartbeats are answered from the cache, and another connection had the same ones before."""
    async with serving() as muster:
        first, second = await muster.connect("app"), await muster.connect("app")
        joined = await enter(first, session_ms=1_500)
        beat = {"group_id": GROUP_ID, "member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        for connection in (first, second, first, second, first, first):
            assert (await connection.ask("Heartbeat", 3, **beat, group_instance_id=None))["error_code"] == 0
        assert muster.metrics.fast_heartbeats, "some were answered from memory"
        second.close()
        await until(lambda: events(muster, MemberRemoved))
        (entered,), (removed,) = events(muster, MemberJoined), events(muster, MemberRemoved)
        assert removed.last_connection.connection_id == entered.why.connection_id
        assert removed.last_connection.end is None


async def test_connections_that_come_and_go_leave_nothing() -> None:
    """A client opens and closes them as fast as it can, with a request for a group on each."""
    storage = MemoryStorage(partitions=1)
    async with serving(storage=storage) as muster:
        member = await muster.connect("app")
        joined = await enter(member, session_ms=60_000)
        records = len(storage.records[0])
        beat = {"group_id": GROUP_ID, "member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        for _ in range(200):
            other = await muster.connect("other")
            assert (await other.ask("Heartbeat", 3, **beat, group_instance_id=None))["error_code"] == 0
            other.close()
        await until(lambda: muster.metrics.connections == 1)
        assert len(storage.records[0]) == records, "an end by itself writes nothing"
        assert (await member.ask("Heartbeat", 3, **beat, group_instance_id=None))["error_code"] == 0


def connections(muster: Serving) -> list[ClientSocket]:
    return list(muster.server._listening.connections)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_process_that_leaves_and_comes_back_does_so_on_its_connection(times: int) -> None:
    """Each join records its connection."""
    async with serving() as muster:
        connection, other = await muster.connect("app"), await muster.connect("admin")
        for _ in range(times):
            joined = await enter(connection, session_ms=60_000)
            await other.ask("DescribeGroups", 5, groups=[GROUP_ID], include_authorized_operations=False)
            left = await connection.ask("LeaveGroup", 1, group_id=GROUP_ID, member_id=joined["member_id"])
            assert left["error_code"] == 0
        numbers = {event.why.connection_id for event in events(muster, MemberJoined) + events(muster, MemberRemoved)}
        assert len(numbers) == 1
