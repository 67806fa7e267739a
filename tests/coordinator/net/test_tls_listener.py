"""TLS handshakes of clients: they count as connections, have a time limit, and lose no byte; on both event loops."""

import asyncio
import errno
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest
import uvloop
from structlog.testing import capture_logs

from muster.coordinator.load.answer_memory import HELD_BYTES_MAX, AnswerMemory
from muster.coordinator.load.slices import SLICE_S
from muster.coordinator.load.turns import Turns
from muster.coordinator.net import listener, tls_handshake
from muster.coordinator.net.limits import ConnectionLimits
from muster.coordinator.net.listening import Listening
from muster.coordinator.observability.metrics import RefusedConnection, ServerMetrics
from muster.coordinator.settings.sidecar_tls import client_context
from muster.events.kafka import shortage
from tests.brokers.certificates import Authority
from tests.waiting import until

WITHIN_S = 20


class Echo(asyncio.Protocol):
    """A connection that echoes what it receives."""

    seen_ms = 0
    is_parked = False
    unread_since_ms = None
    is_closing = False
    client_host = "/127.0.0.1"

    def __init__(self, listening: "Listening[Echo]") -> None:
        self.received = b""
        self._listening = listening
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._listening.made(self):
            self._transport = cast("asyncio.Transport", transport)
        else:
            transport.close()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self.received += data
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._listening.lost(self)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    abort = close


class Serving:
    """A TLS listener. `trusting`: the context of a client that trusts it."""

    def __init__(self, authority: Authority, limits: dict[str, Any]) -> None:
        issued = authority.issue("server")
        self.server_context = client_context(("--tls-certificate", issued.certificate), ("--tls-key", issued.key), None)
        self.trusting = ssl.create_default_context(cafile=authority.certificate)
        self.metrics = ServerMetrics({})
        self.listening = Listening[Echo](
            limits=ConnectionLimits(**limits),
            metrics=self.metrics,
            monotonic_ms=lambda: 0,
            call_later=lambda _delay_ms, _callback: lambda: None,
            answer_memory=AnswerMemory(HELD_BYTES_MAX),
            turns=Turns(),
        )
        self.port = 0
        self.made: list[Echo] = []

    async def start(self) -> None:
        self.port = await self.listening.listen("127.0.0.1", 0, self._new_connection, context=self.server_context)

    def _new_connection(self) -> Echo:
        self.made.append(Echo(self.listening))
        return self.made[-1]

    async def connect_plain(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that has not started its handshake."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def echoed(self, sent: bytes = b"ping") -> bytes:
        """Send these bytes as a TLS client and return the echo. Raises OSError."""
        async with asyncio.timeout(WITHIN_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trusting)
            writer.write(sent)
            answer = await reader.readexactly(len(sent))
            writer.close()
        return answer

    def hello(self) -> bytes:
        """The first message of a client's handshake."""
        outgoing = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            self.trusting.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
        return outgoing.read()

    async def echoed_with_finished(self, sent: bytes, *, ends: bool = False) -> bytes:
        """As `echoed`, with the bytes in one write with the last message of the handshake.

        `ends`: the end of stream is sent with them, and no response is read.
        """
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await self.connect_plain()

        async def more() -> None:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65_536))

        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await more()
            tls.write(sent)
            if ends:
                writer.write(outgoing.read())
                writer.write_eof()
                await reader.read()
                return b""
            answer = b""
            while len(answer) < len(sent):
                try:
                    answer += tls.read(65_536)
                except ssl.SSLWantReadError:
                    await more()
        writer.close()
        return answer


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@asynccontextmanager
async def serving(authority: Authority, *, turns: Turns | None = None, **limits: Any) -> AsyncIterator[Serving]:
    """`turns`: the turns for handshakes."""
    subject = Serving(authority, limits)
    if turns is not None:
        subject.listening._handshake_turns = turns
    await subject.start()
    try:
        yield subject
    finally:
        await subject.listening.close(within_s=1)


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def on_that_loop(story: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(story)

    return on_that_loop


def test_handshakes_that_have_not_ended_count_as_connections(authority: Authority, run: Any) -> None:
    """A limit applies to them, and the log says which address has most; a freed place can be used."""

    async def story() -> None:
        async with serving(authority, connections_max=2) as subject:
            clients = [await subject.connect_plain() for _ in range(2)]
            await until(lambda: subject.metrics.connections == 2)
            with capture_logs() as lines, pytest.raises((ConnectionError, ssl.SSLError)):
                await subject.echoed()
            assert [(line["limit"], line["most_of_address"]) for line in lines] == [
                ("--connections-max", "/127.0.0.1: 2")
            ]
            assert subject.metrics.connections_refused == {RefusedConnection.ALL: 1}
            clients[0][1].close()
            await until(lambda: subject.metrics.connections == 1)
            assert await subject.echoed() == b"ping"

    run(story())


def test_handshakes_count_for_their_address(authority: Authority, run: Any) -> None:
    """Once, both before and after they complete."""

    async def story() -> None:
        async with serving(authority, max_connections_per_ip=2) as subject:
            _first, second = [await subject.connect_plain() for _ in range(2)]
            await until(lambda: subject.metrics.connections == 2)
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await subject.echoed()
            assert subject.metrics.connections_refused == {RefusedConnection.ADDRESS: 1}
            second[1].close()
            await until(lambda: subject.metrics.connections == 1)
            for _ in range(3):
                assert await subject.echoed() == b"ping"
                await until(lambda: subject.metrics.connections == 1)

    run(story())


def test_a_handshake_that_takes_too_long_is_ended(
    authority: Authority, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is disconnected, its place is freed, and a log line names it."""
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_TIMEOUT_S", 0.1)

    async def story() -> None:
        async with serving(authority, connections_max=1) as subject:
            with capture_logs() as lines:
                reader, _writer = await subject.connect_plain()
                async with asyncio.timeout(WITHIN_S):
                    assert await reader.read() == b""
                await until(lambda: subject.metrics.connections == 0)
            (line,) = lines
            assert (line["event"], line["peer"]) == ("TLS with a client failed", "/127.0.0.1")
            assert line["reason"] == "it did not finish the handshake within 0.1 s"

    run(story())


def test_a_disconnect_within_the_handshake_is_not_logged(authority: Authority, run: Any) -> None:
    """Like the health check of a load balancer."""

    async def story() -> None:
        async with serving(authority) as subject:
            with capture_logs() as lines:
                _reader, writer = await subject.connect_plain()
                await until(lambda: subject.metrics.connections == 1)
                writer.close()
                await until(lambda: subject.metrics.connections == 0)
            assert not lines

    run(story())


def test_a_client_without_tls_is_named(authority: Authority, run: Any) -> None:
    """The log has its address, and its place is freed."""

    async def story() -> None:
        async with serving(authority) as subject:
            with capture_logs() as lines:
                reader, writer = await subject.connect_plain()
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                async with asyncio.timeout(WITHIN_S):
                    await reader.read()
                await until(lambda: bool(lines) and subject.metrics.connections == 0)
            assert [(line["peer"], line["reason"]) for line in lines] == [("/127.0.0.1", "it speaks HTTP")]

    run(story())


def test_bytes_that_come_with_the_end_of_the_handshake_are_not_lost(authority: Authority, run: Any) -> None:
    """They arrive before the connection exists, in the segment of the last TLS message, with much more after it."""

    async def story() -> None:
        async with serving(authority) as subject:
            for sent in (b"x", b"y" * 300_000):
                assert await subject.echoed_with_finished(sent) == sent
            assert subject.metrics.connections_accepted == 2

    run(story())


def test_bytes_sent_with_the_end_of_the_handshake_and_of_the_client_are_kept(authority: Authority, run: Any) -> None:
    """The client may need no response."""

    async def story() -> None:
        async with serving(authority) as subject:
            with suppress(ConnectionError):
                await subject.echoed_with_finished(b"last words", ends=True)
            await until(lambda: len(subject.made) == 1 and subject.metrics.connections == 0)
            assert subject.made[0].received == b"last words"

    run(story())


class HeldTurns(Turns):
    """No turns run while `held`."""

    is_held = True

    def _turn(self) -> None:
        if self.is_held:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            super()._turn()


def test_handshakes_that_begin_at_once_share_a_slice_of_each_turn(authority: Authority, run: Any) -> None:
    """However many have sent data: each step of a handshake takes a fifth of a slice here."""
    now_s, turn, steps = 0.0, 0, Counter[int]()
    clients = 40

    class Tls(ssl.SSLObject):
        def do_handshake(self) -> None:
            nonlocal now_s
            now_s += SLICE_S / 5
            steps[turn] += 1
            super().do_handshake()

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count_turns)

    async def story() -> None:
        async with serving(authority, turns=Turns(lambda: now_s)) as subject:
            subject.server_context.sslobject_class = Tls
            writers = [(await subject.connect_plain())[1] for _ in range(clients)]
            await until(lambda: steps.total() == clients)  # the connection has been noticed
            steps.clear()
            count_turns()
            for writer in writers:
                writer.write(subject.hello())
            await until(lambda: steps.total() == clients)
        assert max(steps.values()) == 5

    run(story())


def test_the_wait_for_a_turn_is_not_the_clients(
    authority: Authority, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has sent its hello is not timed out meanwhile, unlike a silent one that connected with it."""
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_TIMEOUT_S", 0.5)

    async def story() -> None:
        turns = HeldTurns()
        async with serving(authority, turns=turns) as subject:
            reader, writer = await subject.connect_plain()
            writer.write(subject.hello())
            await until(lambda: bool(turns._waiting))
            silent, _ = await subject.connect_plain()
            async with asyncio.timeout(WITHIN_S):
                assert await silent.read() == b""
            assert subject.metrics.connections == 1
            turns.is_held = False
            async with asyncio.timeout(WITHIN_S):
                assert await reader.read(1) == b"\x16"  # a handshake's message

    run(story())


def test_a_handshake_that_waits_for_turns_too_long_is_ended(
    authority: Authority, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log line says that Muster's load may be the reason."""
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_AND_TURNS_TIMEOUT_S", 0.1)

    async def story() -> None:
        turns = HeldTurns()
        async with serving(authority, turns=turns) as subject:
            with capture_logs() as lines:
                reader, writer = await subject.connect_plain()
                writer.write(subject.hello())
                async with asyncio.timeout(WITHIN_S):
                    assert await reader.read() == b""
                await until(lambda: subject.metrics.connections == 0)
            turns.is_held = False
        assert [line["reason"] for line in lines] == [
            "its handshake did not finish within 0.1 s, including the time that it waited for its turn"
        ]

    run(story())


def test_a_hello_that_arrives_byte_by_byte_gets_no_extra_time(
    authority: Authority, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit is for the whole handshake, not for each byte."""
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_TIMEOUT_S", 0.5)

    async def story() -> None:
        async with serving(authority) as subject:
            reader, writer = await subject.connect_plain()
            hello, sent = subject.hello(), 0
            while sent < len(hello) and not (reader.at_eof() or writer.is_closing()):
                writer.write(hello[sent : sent + 1])
                sent += 1
                await asyncio.sleep(0.02)
            assert sent < len(hello)

    run(story())


def test_a_client_that_floods_before_its_turn_is_not_read_further(authority: Authority, run: Any) -> None:
    """Reading stops even within the data of one read, which may be a hundred times a hello."""

    async def story() -> None:
        turns = HeldTurns()
        async with serving(authority, turns=turns) as subject:
            _reader, writer = await subject.connect_plain()
            writer.write(bytes(8_000_000))
            await until(lambda: bool(turns._waiting))
            (gate,) = turns._waiting
            assert isinstance(gate, tls_handshake._Gate)
            await until(lambda: len(gate._kept) >= tls_handshake.KEPT_BYTES_MAX)
            for _ in range(200):
                await asyncio.sleep(0)
            assert len(gate._kept) <= 2 * tls_handshake.KEPT_BYTES_MAX
            writer.transport.abort()
            turns.is_held = False

    run(story())


def test_a_client_that_disconnects_before_its_turn_stops_waiting(authority: Authority, run: Any) -> None:
    async def story() -> None:
        turns = HeldTurns()
        async with serving(authority, turns=turns) as subject:
            _reader, writer = await subject.connect_plain()
            writer.write(subject.hello())
            await until(lambda: bool(turns._waiting))
            no_linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
            writer.transport.abort()
            await until(lambda: not turns._waiting)

    run(story())


def test_handshakes_are_ended_with_the_process(authority: Authority, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shutdown does not wait for their time limit."""
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_TIMEOUT_S", 3_600.0)

    async def story() -> None:
        async with serving(authority) as subject:
            reader, _writer = await subject.connect_plain()
            await until(lambda: subject.metrics.connections == 1)
            await subject.listening.close(within_s=1)
            async with asyncio.timeout(WITHIN_S):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            await until(lambda: subject.metrics.connections == 0)

    run(story())


ALERTS = {"bad certificate": 42, "certificate unknown": 46}


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS)
def test_a_client_that_rejects_our_certificate_is_logged_with_what_it_may_lack(
    authority: Authority, run: Any, alert: int
) -> None:
    """OpenSSL's message does not say whose certificate is meant; Java has one alert for an untrusted certificate and a
    wrong name.
    """

    async def story() -> None:
        async with serving(authority) as subject:
            subject.trusting.maximum_version = ssl.TLSVersion.TLSv1_2  # whose alerts are not encrypted yet
            with capture_logs() as lines:
                reader, writer = await subject.connect_plain()
                writer.write(subject.hello())
                await reader.read(1)
                writer.write(bytes((21, 3, 3, 0, 2, 2, alert)))
                await until(lambda: bool(lines))
                writer.close()
            assert lines[0]["reason"].startswith("the client refuses the certificate of --tls-certificate: ")

    run(story())


class FullSocket(socket.socket):
    """The listening socket of a process without free file descriptors while `is_full`. `attempts`: to accept."""

    is_full = True
    attempts = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.attempts += 1
        if self.is_full:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@asynccontextmanager
async def serving_at_full_socket(authority: Authority) -> AsyncIterator[tuple[Serving, FullSocket]]:
    """A listener whose first accept has failed."""
    subject = Serving(authority, {})
    bound = FullSocket(fileno=socket.create_server(("127.0.0.1", 0)).detach())
    subject.port = bound.getsockname()[1]
    subject.listening.accept_at(bound, lambda: Echo(subject.listening), context=subject.server_context)
    _reader, writer = await subject.connect_plain()
    await until(lambda: bound.attempts > 0)
    yield subject, bound
    writer.close()
    await subject.listening.close(within_s=1)


def test_after_an_accept_that_failed_there_is_a_pause(
    authority: Authority, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket stays readable, so each turn of the loop would fail again, with a log line."""
    monkeypatch.setattr(listener, "RETRY_ACCEPT_S", 3_600.0)

    async def story() -> None:
        async with serving_at_full_socket(authority) as (_subject, bound):
            for _ in range(100):
                await asyncio.sleep(0)
            assert bound.attempts == 1

    run(story())


def test_an_expired_certificate_is_logged_once_a_minute_with_advice(
    authority: Authority, run: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often an accept fails."""
    monkeypatch.setattr(listener, "RETRY_ACCEPT_S", 0.01)
    monkeypatch.setattr(shortage, "_logged_s", {})
    caplog.set_level("WARNING", shortage.__name__)

    async def story() -> None:
        async with serving_at_full_socket(authority) as (_subject, bound):
            await until(lambda: bound.attempts > 3)

    run(story())
    (line,) = (each.message for each in caplog.records if each.name == shortage.__name__)
    assert line.startswith("cannot accept connections: this process has reached its limit of open files (`ulimit -n`")


def test_after_the_pause_clients_are_accepted_again(
    authority: Authority, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "RETRY_ACCEPT_S", 0.05)

    async def story() -> None:
        async with serving_at_full_socket(authority) as (subject, bound):
            bound.is_full = False
            assert await subject.echoed() == b"ping"

    run(story())


def test_a_listener_that_is_closed_during_the_pause_stays_closed(
    authority: Authority, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed socket is not polled again."""
    monkeypatch.setattr(listener, "RETRY_ACCEPT_S", 0.05)

    async def story() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, failure: failures.append(failure))
        async with serving_at_full_socket(authority) as (subject, _bound):
            subject.listening.stop_listening()
            await asyncio.sleep(2 * listener.RETRY_ACCEPT_S)
        assert failures == []

    run(story())
