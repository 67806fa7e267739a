"""Connections between processes, over sockets: who is let in, what is lost, what is too much."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from muster.coordinator.cluster import Node
from muster.coordinator.peers.link import listener as listener_module
from muster.coordinator.peers.link.connection import UNPROVEN_BYTES_MAX, PeerConnection
from muster.coordinator.peers.link.links import PeerLinks
from muster.coordinator.peers.link.listener import PeerListener
from muster.coordinator.peers.link.messages import (
    LENGTH,
    LEVEL,
    Answered,
    AnyMessage,
    Challenge,
    Denied,
    Forwarded,
    Proof,
    Relay,
    decode,
    encode,
)
from tests.waiting import until

SECRET = b"s" * 32
MESSAGE_BYTES_MAX = 100_000


def _fails(error: Exception) -> None:
    raise error


class Process:
    """One process: what it accepts, and what it was told."""

    def __init__(self, node_id: int, *, secret: bytes = SECRET, log: str = "log") -> None:
        self.secret = secret
        self.node = Node(node_id=node_id, host="127.0.0.1", port=0)
        self.edges: list[PeerConnection] = []
        self.lost: list[PeerConnection] = []
        self.asked: list[AnyMessage] = []
        self.told: list[AnyMessage] = []
        self.changes: list[int] = []
        common: dict[str, Any] = {"node_id": node_id, "message_bytes_max": MESSAGE_BYTES_MAX, "monotonic_ms": lambda: 0}
        self.listener = PeerListener(
            secret=lambda: self.secret, accepted=self._accepted, lost=self.lost.append, **common
        )
        self.links = PeerLinks(
            secret=lambda: self.secret,
            context=None,
            received=lambda _, message: self.told.append(message),
            changed=lambda node: self.changes.append(node.node_id),
            failed=_fails,
            **common,
        )
        self.listener.log_identity = self.links.log_identity = log

    def _accepted(self, connection: PeerConnection) -> None:
        self.edges.append(connection)
        connection.handle = self.asked.append

    async def start(self) -> None:
        port = await self.listener.start("127.0.0.1", self.node.port, None)
        self.node = msgspec.structs.replace(self.node, port=port)

    async def close(self) -> None:
        await self.links.close()
        await self.listener.close()


@asynccontextmanager
async def processes(*given: Process) -> AsyncIterator[None]:
    for each in given:
        await each.start()
    try:
        yield
    finally:
        for each in given:
            await each.close()


@asynccontextmanager
async def stranger(process: Process) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection without a proof."""
    reader, writer = await asyncio.open_connection("127.0.0.1", process.node.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def message_from(reader: asyncio.StreamReader) -> AnyMessage:
    async with asyncio.timeout(20):
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return decode(await reader.readexactly(length))


def framed(message: AnyMessage) -> bytes:
    encoded = encode(message)
    return LENGTH.pack(len(encoded)) + encoded


async def test_messages_go_both_ways_in_order() -> None:
    edge, owner = Process(1), Process(2)
    async with processes(edge, owner):
        edge.links.follow([edge.node, owner.node])
        await until(lambda: edge.links.is_reached(owner.node))
        assert edge.links.reached() == [owner.node]
        requests = [Forwarded(number, "", b"x" * number) for number in range(1_000)]
        for each in requests:
            edge.links.send(owner.node, each)
        await until(lambda: len(owner.asked) == len(requests))
        assert owner.asked == requests
        for number in range(1_000):
            owner.edges[0].send(Relay(number))
        await until(lambda: len(edge.told) == 1_000)
        assert edge.told == [Relay(number) for number in range(1_000)]


async def test_a_process_that_is_lost_is_reached_again() -> None:
    edge, owner = Process(1), Process(2)
    async with processes(edge, owner):
        edge.links.follow([owner.node])
        await until(lambda: edge.links.is_reached(owner.node))
        owner.edges[0].close("for a test")
        await until(lambda: edge.changes == [2, 2, 2])  # reached, lost, reached
        assert edge.links.is_reached(owner.node)
        edge.links.send(owner.node, Relay(7))
        await until(lambda: owner.asked == [Relay(7)])
        assert owner.lost == owner.edges[:1]


async def test_a_process_that_is_not_followed_any_more_is_left() -> None:
    edge, owner = Process(1), Process(2)
    async with processes(edge, owner):
        edge.links.follow([owner.node])
        await until(lambda: edge.links.is_reached(owner.node))
        edge.links.follow([])
        await until(lambda: bool(owner.lost))
        assert not edge.links.is_reached(owner.node)
        edge.links.send(owner.node, Relay(7))  # goes nowhere


@pytest.mark.parametrize(
    ("claimed", "reason"),
    [
        ({"secret": b"t" * 32}, "another peer secret"),
        ({"log": "another"}, "another event log: another, and this process has log"),
    ],
    ids=["secret", "log"],
)
async def test_who_is_no_peer_is_not_let_in(claimed: dict[str, Any], reason: str) -> None:
    """Both ends say why."""
    edge, owner = Process(1, **claimed), Process(2)
    with capture_logs() as log_lines:
        async with processes(edge, owner):
            edge.links.follow([owner.node])
            await until(lambda: any(each["event"].startswith("another process is not reached") for each in log_lines))
            assert not edge.links.is_reached(owner.node)
            assert owner.edges == []
    refused = next(each for each in log_lines if each["event"] == "a process is refused as a peer")
    assert reason in refused["reason"]
    not_reached = next(each for each in log_lines if each["event"].startswith("another process is not reached"))
    assert f"it refuses this process: {refused['reason']}" == not_reached["error"]


async def test_a_new_secret_holds_for_new_connections() -> None:
    """It is read anew for each, so it can be changed while processes run; those that stand stay."""
    edge, owner = Process(1), Process(2)
    async with processes(edge, owner):
        edge.links.follow([owner.node])
        await until(lambda: edge.links.is_reached(owner.node))
        edge.secret = owner.secret = b"n" * 32
        assert edge.links.is_reached(owner.node)
        owner.edges[0].close("for a test")
        await until(lambda: len(owner.edges) == 2)


async def test_nobody_is_let_in_before_the_log_is_open() -> None:
    edge, owner = Process(1), Process(2)
    owner.listener.log_identity = None
    async with processes(edge, owner), stranger(owner) as (reader, writer):
        challenge = await message_from(reader)
        assert isinstance(challenge, Challenge)
        writer.write(framed(Proof(LEVEL, "log", 1, 2, b"", b"")))
        assert await message_from(reader) == Denied("the event log is being opened")
        assert await reader.read() == b""


async def test_who_sends_anything_else_is_hung_up_on() -> None:
    """A request without a proof, what is no message, and what is too long for one."""
    owner = Process(2)
    too_long = LENGTH.pack(UNPROVEN_BYTES_MAX + 1)
    async with processes(owner):
        for sent in (framed(Relay(1)), framed(Denied("?")), b"\0\0\0\1\xc1", too_long, b"GET / HTTP/1.1\r\n\r\n"):
            async with stranger(owner) as (reader, writer):
                await message_from(reader)
                writer.write(sent)
                async with asyncio.timeout(20):
                    assert await reader.read() == b""
        assert owner.edges == []
        assert owner.asked == []


async def test_those_without_a_proof_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest makes room, so a stranger keeps no process out."""
    monkeypatch.setattr(listener_module, "UNPROVEN_MAX", 3)
    edge, owner = Process(1), Process(2)
    async with processes(edge, owner):
        opened = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", owner.node.port)
            await message_from(reader)
            opened.append((reader, writer))
        async with asyncio.timeout(20):
            assert await opened[0][0].read() == b""
        edge.links.follow([owner.node])
        await until(lambda: edge.links.is_reached(owner.node))
        for _, writer in opened:
            writer.close()


async def test_a_message_that_is_too_long_ends_the_connection() -> None:
    edge, owner = Process(1), Process(2)
    async with processes(edge, owner):
        edge.links.follow([owner.node])
        await until(lambda: edge.links.is_reached(owner.node))
        edge.links.send(owner.node, Answered(1, b"x" * MESSAGE_BYTES_MAX))
        await until(lambda: bool(owner.lost))
        assert owner.asked == []
