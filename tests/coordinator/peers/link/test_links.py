"""Connections between processes, over sockets: authentication, losses, limits."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from structlog.testing import capture_logs

from muster.coordinator.cluster import Node
from muster.coordinator.log_throttle import LINE_INTERVAL_MS
from muster.coordinator.peers.link import peer_connection as connection_module
from muster.coordinator.peers.link import peer_listener as listener_module
from muster.coordinator.peers.link.peer_connection import PART_BYTES, UNPROVEN_BYTES_MAX, PeerConnection
from muster.coordinator.peers.link.peer_links import PeerLinks
from muster.coordinator.peers.link.peer_listener import PeerListener
from muster.coordinator.peers.link.peer_messages import (
    LENGTH,
    LEVEL,
    Answered,
    AnyMessage,
    Challenge,
    Denied,
    Forwarded,
    Ping,
    Pong,
    Proof,
    Relay,
    Welcome,
    decode,
    encode,
)
from muster.coordinator.peers.link.proof import BadPeerSecret, Claim, proof_of, welcome
from muster.coordinator.settings.peers import PeerTls
from tests.brokers.certificates import Authority
from tests.waiting import until

SECRET = b"s" * 32
MESSAGE_BYTES_MAX = 100_000
NOT_REACHED_AND_AGAIN = ["peer unreachable", "peer reachable again"]


def _fails(error: Exception) -> None:
    raise error


class Process:
    """One process: the connections that it accepts, and the messages that it received."""

    def __init__(
        self,
        node_id: int,
        *,
        secret: bytes = SECRET,
        log: str = "log",
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        tls: PeerTls | None = None,
    ) -> None:
        self._accepting = None if tls is None else tls.accepting
        self.secret = secret
        self.secret_trouble: Exception | None = None
        self.node = Node(node_id=node_id, host="127.0.0.1", port=0)
        self.frontends: list[PeerConnection] = []
        self.lost: list[PeerConnection] = []
        self.asked: list[AnyMessage] = []
        self.told: list[AnyMessage] = []
        self.changes: list[int] = []
        self.now_ms = 0
        common: dict[str, Any] = {
            "node_id": node_id,
            "message_bytes_max": message_bytes_max,
            "monotonic_ms": lambda: self.now_ms,
        }
        self.listener = PeerListener(secret=self._secret, accepted=self._accepted, lost=self.lost.append, **common)
        self.links = PeerLinks(
            secret=self._secret,
            context=None if tls is None else tls.connecting,
            received=lambda _, message: self.told.append(message),
            changed=lambda node: self.changes.append(node.node_id),
            failed=_fails,
            **common,
        )
        self.listener.log_identity = self.links.log_identity = log

    def _secret(self) -> bytes:
        if self.secret_trouble is not None:
            raise self.secret_trouble
        return self.secret

    def _accepted(self, connection: PeerConnection) -> None:
        self.frontends.append(connection)
        connection.handle = self.asked.append

    async def start(self) -> None:
        port = await self.listener.start("127.0.0.1", self.node.port, self._accepting)
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
async def unproven_connection(process: Process) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
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
    frontend, owner = Process(1), Process(2)
    async with processes(frontend, owner):
        frontend.links.follow([frontend.node, owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        requests = [Forwarded(number, "", b"x" * number) for number in range(1_000)]
        for each in requests:
            frontend.links.send(owner.node, each)
        await until(lambda: len(owner.asked) == len(requests))
        assert owner.asked == requests
        for number in range(1_000):
            owner.frontends[0].send(Relay(number))
        await until(lambda: len(frontend.told) == 1_000)
        assert frontend.told == [Relay(number) for number in range(1_000)]


async def test_a_process_that_is_lost_is_reached_again() -> None:
    frontend, owner = Process(1), Process(2)
    async with processes(frontend, owner):
        frontend.links.follow([owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        owner.frontends[0].close("for a test")
        await until(lambda: frontend.changes == [2, 2, 2])  # connected, lost, connected
        assert frontend.links.is_reached(owner.node)
        frontend.links.send(owner.node, Relay(7))
        await until(lambda: owner.asked == [Relay(7)])
        assert owner.lost == owner.frontends[:1]


async def test_a_process_that_comes_and_goes_is_two_lines_a_minute() -> None:
    """One when it becomes unreachable and one when it is back; after a connection of a minute its next end is logged at
    once.
    """
    frontend, owner = Process(1), Process(2)
    async with processes(frontend, owner):
        frontend.links.follow([owner.node])
        with capture_logs() as log_lines:
            for n in range(1, 5):
                await until(lambda: len(owner.frontends) == n and frontend.links.is_reached(owner.node))  # noqa: B023
                if n == 4:
                    assert [each["event"].partition(",")[0] for each in log_lines] == NOT_REACHED_AND_AGAIN
                    frontend.now_ms += LINE_INTERVAL_MS
                owner.frontends[-1].close("for a test")
                await until(lambda: not frontend.links.is_reached(owner.node))
            await until(lambda: frontend.links.is_reached(owner.node))
        assert [each["event"].partition(",")[0] for each in log_lines] == 2 * NOT_REACHED_AND_AGAIN


async def test_a_process_that_is_not_followed_any_more_is_left() -> None:
    frontend, owner = Process(1), Process(2)
    async with processes(frontend, owner):
        frontend.links.follow([owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        frontend.links.follow([])
        await until(lambda: bool(owner.lost))
        assert not frontend.links.is_reached(owner.node)
        frontend.links.send(owner.node, Relay(7))  # goes nowhere


@pytest.mark.parametrize(
    ("claimed", "reason"),
    [
        ({"secret": b"t" * 32}, "different peer secrets"),
        ({"log": "another"}, "different event logs: another there, log here"),
    ],
    ids=["secret", "log"],
)
async def test_a_process_that_is_not_a_peer_is_refused(claimed: dict[str, Any], reason: str) -> None:
    """Both ends log the reason."""
    frontend, owner = Process(1, **claimed), Process(2)
    with capture_logs() as log_lines:
        async with processes(frontend, owner):
            frontend.links.follow([owner.node])
            await until(lambda: any(each["event"].startswith("peer unreachable") for each in log_lines))
            assert not frontend.links.is_reached(owner.node)
            assert owner.frontends == []
    refused = next(each for each in log_lines if each["event"] == "peer refused")
    assert reason in refused["reason"]
    not_reached = next(each for each in log_lines if each["event"].startswith("peer unreachable"))
    assert f"it refuses this process: {refused['reason']}" == not_reached["error"]


async def test_a_listener_without_the_secret_receives_no_requests() -> None:
    """It has only offered a challenge, with a new nonce each time."""
    frontend, nonces = Process(1), list[bytes]()

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(Challenge(LEVEL, b"c" * 32)))
        proof = await message_from(reader)
        assert isinstance(proof, Proof)
        nonces.append(proof.nonce)
        writer.write(framed(Welcome(proof.mac)))
        assert await reader.read() == b""
        writer.close()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    node = Node(node_id=2, host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    async with server, processes(frontend):
        with capture_logs() as log_lines:
            frontend.links.follow([node])
            await until(lambda: len(nonces) > 1 and log_lines)
        assert log_lines[0]["error"] == "it has a different peer secret"
        assert frontend.changes == [2], "the first attempt alone: it may have ended"
        assert len(set(nonces)) == len(nonces)


async def test_a_new_secret_holds_for_new_connections() -> None:
    """It is read again for each connection, so it can be changed while processes run; existing connections stay."""
    frontend, owner = Process(1), Process(2)
    async with processes(frontend, owner):
        frontend.links.follow([owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        frontend.secret = owner.secret = b"n" * 32
        assert frontend.links.is_reached(owner.node)
        owner.frontends[0].close("for a test")
        await until(lambda: len(owner.frontends) == 2)


async def test_no_peer_is_accepted_before_the_log_is_open() -> None:
    frontend, owner = Process(1), Process(2)
    owner.listener.log_identity = None
    async with processes(frontend, owner), unproven_connection(owner) as (reader, writer):
        challenge = await message_from(reader)
        assert isinstance(challenge, Challenge)
        writer.write(framed(Proof(LEVEL, "log", 1, 2, b"", b"")))
        assert await message_from(reader) == Denied("the event log is being opened")
        assert await reader.read() == b""


async def test_a_peer_that_sends_anything_else_is_disconnected() -> None:
    """A request without a proof, bytes that are no message, and a message that is too long."""
    owner = Process(2)
    too_long = LENGTH.pack(UNPROVEN_BYTES_MAX + 1)
    async with processes(owner):
        for sent in (framed(Relay(1)), framed(Denied("?")), b"\0\0\0\1\xc1", too_long, b"GET / HTTP/1.1\r\n\r\n"):
            async with unproven_connection(owner) as (reader, writer):
                await message_from(reader)
                writer.write(sent)
                async with asyncio.timeout(20):
                    assert await reader.read() == b""
        assert owner.frontends == []
        assert owner.asked == []


async def test_those_without_a_proof_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is closed for a new one, so unauthenticated clients keep no process out."""
    monkeypatch.setattr(listener_module, "UNPROVEN_MAX", 3)
    frontend, owner = Process(1), Process(2)
    async with processes(frontend, owner):
        opened, challenges = [], set()
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", owner.node.port)
            challenges.add(await message_from(reader))
            opened.append((reader, writer))
        assert len(challenges) == 4  # a proof for one of them does not fit another
        async with asyncio.timeout(20):
            assert await opened[0][0].read() == b""
        frontend.links.follow([owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_those_that_do_not_finish_tls_are_few(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each uses a file descriptor, so the oldest is closed, long before its time-out; a process still gets in."""
    monkeypatch.setattr(listener_module, "UNPROVEN_MAX", 3)
    authority = Authority(tmp_path)
    issued = authority.issue("muster")
    files = (issued.certificate, issued.key, authority.certificate)
    tls = PeerTls.of(*[("--option", each) for each in files])

    async def story() -> None:
        frontend, owner = Process(1, tls=tls), Process(2, tls=tls)
        async with processes(frontend, owner):
            silent = []
            for n in range(1, 6):
                silent.append(await asyncio.open_connection("127.0.0.1", owner.node.port))
                await until(lambda: len(owner.listener._handshakes) == min(n, 3))  # noqa: B023 -- it is over then
            async with asyncio.timeout(5):
                for reader, _ in silent[:2]:
                    with suppress(ConnectionResetError):
                        assert await reader.read() == b""
            silent[2][1].write(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: len(owner.listener._handshakes) == 2)
            frontend.links.follow([owner.node])
            await until(lambda: frontend.links.is_reached(owner.node))
            frontend.links.send(owner.node, Forwarded(1, "", b"x" * 50_000))
            await until(lambda: len(owner.asked) == 1)
            owner.frontends[0].send(Relay(1))
            await until(lambda: frontend.told == [Relay(1)])
            for _, writer in silent:
                writer.close()
            await until(lambda: not owner.listener._handshakes)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(story())


async def test_a_message_that_is_too_long_ends_the_connection() -> None:
    frontend, owner = Process(1), Process(2)
    async with processes(frontend, owner):
        frontend.links.follow([owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        frontend.links.send(owner.node, Answered(1, b"x" * MESSAGE_BYTES_MAX))
        await until(lambda: bool(owner.lost))
        assert owner.asked == []


# ---- hangs, and connections lost without a sign ----------------------------------------------------------------------


@asynccontextmanager
async def proven_frontend(process: Process, node_id: int = 1) -> AsyncIterator[tuple[Any, Any]]:
    """Another process's connection, made by hand."""
    async with unproven_connection(process) as (reader, writer):
        challenge = await message_from(reader)
        assert isinstance(challenge, Challenge)
        claim = Claim(log="log", node_id=node_id, wanted_node_id=process.node.node_id)
        writer.write(framed(proof_of(SECRET, claim, challenge, b"n" * 32)))
        assert isinstance(await message_from(reader), Welcome)
        yield reader, writer


async def test_a_process_that_hangs_is_not_reached_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that answers stays reachable, however little there is to say: pings continue indefinitely."""
    monkeypatch.setattr(connection_module, "TICK_S", 0.01)
    monkeypatch.setattr(connection_module, "HUNG_TICKS", 20)
    frontend, answered, hangs = Process(1), 0, asyncio.Event()

    async def owner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        challenge = Challenge(LEVEL, b"c" * 32)
        writer.write(framed(challenge))
        proof = await message_from(reader)
        assert isinstance(proof, Proof)
        writer.write(framed(welcome(SECRET, proof, challenge)))
        while answered < 50:
            assert await message_from(reader) == Ping()
            writer.write(framed(Pong()))
            answered += 1
        await hangs.wait()
        writer.close()

    server = await asyncio.start_server(owner, "127.0.0.1", 0)
    node = Node(node_id=2, host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    async with server, processes(frontend):
        with capture_logs() as log_lines:
            frontend.links.follow([node])
            await until(lambda: answered == 50)
            assert frontend.changes == [2]
            await until(lambda: frontend.changes[:2] == [2, 2])
            await until(lambda: log_lines)
        assert log_lines[0]["error"] == "it has sent nothing for 0 s"
        hangs.set()


async def test_a_process_of_a_lost_machine_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a break of the connection its clients would be kept for ever."""
    monkeypatch.setattr(connection_module, "TICK_S", 0.01)
    monkeypatch.setattr(connection_module, "SILENT_TICKS_MAX", 3)
    owner = Process(2)
    async with processes(owner), proven_frontend(owner) as (reader, _):
        await until(lambda: owner.lost)
        assert owner.lost == owner.frontends
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await message_from(reader)


async def test_a_process_that_connects_again_has_one_connection() -> None:
    """The former connection ends, with its clients, before a request on the new one is accepted."""
    owner = Process(2)
    async with processes(owner), proven_frontend(owner) as (former, _), proven_frontend(owner) as (_, writer):
        await until(lambda: len(owner.frontends) == 2)
        await until(lambda: not owner.frontends[0].is_open)
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                await former.read()
        assert owner.lost == owner.frontends[:1]
        writer.write(framed(Relay(7)))
        await until(lambda: owner.asked == [Relay(7)])
        assert owner.lost == owner.frontends[:1]


async def test_a_message_that_cannot_be_handled_ends_its_connection_alone() -> None:
    """Even among many others; the process is then reconnected."""
    frontend, owner = Process(1), Process(2)

    def handle(message: AnyMessage) -> None:
        assert message != Relay(4_999), "for a test"
        owner.asked.append(message)

    async with processes(frontend, owner):
        frontend.links.follow([owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        owner.frontends[0].handle = handle
        with capture_logs() as log_lines:
            for number in range(6_000):
                frontend.links.send(owner.node, Relay(number))
            await until(lambda: frontend.changes == [2, 2, 2])
        assert len(owner.asked) == 4_999
        assert owner.lost == owner.frontends[:1]
        assert "could not handle a message of another process" in [each["event"] for each in log_lines]


async def test_a_long_message_holds_up_no_others() -> None:
    """It is sent in parts, with later messages in between, and arrives complete. So do several."""
    frontend, owner = Process(1, message_bytes_max=30_000_000), Process(2, message_bytes_max=30_000_000)
    async with processes(frontend, owner):
        frontend.links.follow([owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        long = [Answered(number, bytes([number]) * size) for number, size in ((1, 20_000_000), (2, PART_BYTES + 1))]
        for message in long:
            owner.frontends[0].send(message)
        assert owner.frontends[0].unsent_bytes > 20_000_000
        for number in range(10):
            owner.frontends[0].send(Relay(number))
        await until(lambda: len(frontend.told) == 12)
        assert frontend.told == [*(Relay(number) for number in range(10)), *long]


async def test_messages_sent_before_the_end_arrive_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Including long messages."""
    monkeypatch.setattr(connection_module, "TICK_S", 3_600)
    frontend, owner = Process(1, message_bytes_max=30_000_000), Process(2)
    async with processes(frontend, owner):
        frontend.links.follow([owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        frontend.links.send(owner.node, Relay(1))
        await until(lambda: owner.asked)  # nothing is unread at the end, or TCP would discard what is sent
        owner.frontends[0].send(Answered(1, bytes(20_000_000)))
        owner.frontends[0].close("for a test")
        await until(lambda: frontend.told)
        assert frontend.told == [Answered(1, bytes(20_000_000))]


async def test_messages_have_one_slice_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is sent: otherwise a burst would be handled in ever more slices at once."""
    monkeypatch.setattr(connection_module, "SLICE_S", 0)
    frontend, owner, turn = Process(1), Process(2), 0
    handled_in: list[int] = []

    def handle(_message: AnyMessage) -> None:
        handled_in.append(turn)
        owner.frontends[0].send(Relay(1))

    async with processes(frontend, owner):
        frontend.links.follow([owner.node])
        await until(lambda: frontend.links.is_reached(owner.node))
        owner.frontends[0].handle = handle
        for number in range(200):
            frontend.links.send(owner.node, Relay(number))
        while len(handled_in) < 200:
            turn += 1
            await asyncio.sleep(0)
    assert max(Counter(handled_in).values()) <= 2


async def test_nothing_is_handled_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Including received messages: the process may have reconnected, and its clients would be on a dead connection."""
    monkeypatch.setattr(connection_module, "MESSAGES_AT_ONCE", 1)
    owner = Process(2)
    async with processes(owner), proven_frontend(owner) as (_, writer):
        writer.write(framed(Relay(1)) * 1_000)
        await until(lambda: owner.asked)
        taken = len(owner.asked)
        assert taken < 1_000
        owner.frontends[0].abort("for a test")
        await until(lambda: owner.lost)
        assert len(owner.asked) == taken


async def test_requests_wait_while_answers_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner keeps at most UNSENT_BYTES_MAX plus one turn's responses, and continues when they are read."""
    monkeypatch.setattr(connection_module, "UNSENT_BYTES_MAX", 1_000_000)
    frontend, owner = Process(1), Process(2)
    async with processes(frontend, owner), proven_frontend(owner, node_id=3) as (reader, writer):
        connection = owner.frontends[0]

        def handle(message: AnyMessage) -> None:
            owner.asked.append(message)
            connection.send(Answered(1, bytes(90_000)))

        connection.handle = handle
        requests = 1_000
        writer.write(framed(Relay(1)) * requests)
        await until(lambda: connection.is_full)
        taken = len(owner.asked)
        frontend.links.follow([owner.node])  # lets the loop turn several times
        assert taken < requests
        for _ in range(requests):
            message = await message_from(reader)
            assert isinstance(message, Answered)
        assert len(owner.asked) == requests


@pytest.mark.parametrize("where", [1, 2])
async def test_an_unusable_secret_is_logged_and_read_again(where: int) -> None:
    """Its file was empty while it was being changed, at either end."""
    frontend, owner = Process(1), Process(2)
    troubled = frontend if where == 1 else owner
    troubled.secret_trouble = BadPeerSecret("a secret of 0 bytes")
    async with processes(frontend, owner):
        with capture_logs() as log_lines:
            frontend.links.follow([owner.node])
            await until(lambda: any(each["event"].startswith("peer unreachable") for each in log_lines))
        errors = [each["error"] for each in log_lines if "error" in each]
        if where == 1:
            assert errors == ["a secret of 0 bytes"]
        else:
            assert errors == ["it refuses this process: the peer secret there cannot be used"]
        troubled.secret_trouble = None
        await until(lambda: frontend.links.is_reached(owner.node))


@pytest.mark.parametrize(("host", "port"), [("a..b", 1), ("127.0.0.1", 70_000)])
async def test_an_invalid_address_ends_no_process(host: str, port: int) -> None:
    """Another process may advertise any address."""
    frontend = Process(1)
    async with processes(frontend):
        with capture_logs() as log_lines:
            frontend.links.follow([Node(node_id=2, host=host, port=port)])
            await until(lambda: log_lines)
        assert log_lines[0]["event"].startswith("peer unreachable")
