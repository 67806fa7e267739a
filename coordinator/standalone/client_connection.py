"""One client's socket: an `asyncio.Protocol` around a `Connection`, with the dispatch of its requests.

What arrived in one read is worked off in one go, with one write for all answers, unless others wait (turns.py). Nothing
here waits: a request that is answered later (a parked join, a fetch) leaves the connection as it is until `answer` is
called. From within an answer no other request is ever begun: what waits behind it is begun by the event loop.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import cast

import structlog

from muster.coordinator.load.current_work import RequestWork, noted
from muster.coordinator.load.turns import Turns
from muster.coordinator.net.frames import Connection
from muster.coordinator.net.heartbeats import HeartbeatCache
from muster.coordinator.net.hosts import java_host
from muster.coordinator.net.memory import FREE_BYTES, Claim, Memory
from muster.coordinator.net.memory_share import Share, unsent_bytes
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.principals import ANONYMOUS
from muster.coordinator.service import Cancel
from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.api import KeepTicket, ProtocolError, keep_no_ticket
from muster.coordinator.wire.dispatch import Peer
from muster.coordinator.wire.under_way import Answered

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Dispatch = Callable[[bytes, Peer, Callable[[Answered], None], KeepTicket], Cancel | None]
"""`wire.dispatch.dispatch` with all that is the same for every connection."""

_KEY_VERSION = Struct(">hh")

OUTPUT_BYTES_MAX = 256 * 1024
"""Of slow answers at a time: then they are sent, it is seen whether the client reads, and others have their turn."""


class ClientConnection(asyncio.Protocol):
    """`seen_ms` is when a request began, was whole or was answered last (monotonic)."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        metrics: ServerMetrics,
        monotonic_ms: Callable[[], int],
        frame_bytes_max: int,
        waiting_bytes_max: int,
        memory: Memory,
        turns: Turns,
        made: Callable[["ClientConnection"], bool],
        lost: Callable[["ClientConnection"], None],
    ) -> None:
        self.seen_ms = monotonic_ms()
        self._dispatch = dispatch
        self._metrics = metrics
        self._monotonic_ms = monotonic_ms
        self._share = Share(memory, claim=self._claim, abort=self.abort)
        self._turns = turns
        self._made = made
        self._lost = lost
        self._heartbeats = HeartbeatCache()
        self._connection = Connection(
            fast=self._heartbeats.answer, frame_bytes_max=frame_bytes_max, waiting_bytes_max=waiting_bytes_max
        )
        self._transport: asyncio.Transport | None = None
        self._peer = Peer(client_host="", principal=ANONYMOUS)
        self._address = ""
        self._cancel: Cancel | None = None
        self._is_working = False
        self._is_at_end = False
        self._is_writable = True
        self._is_reading = True
        self.unread_since_ms: int | None = None

    @property
    def client_host(self) -> str:
        return self._peer.client_host

    @property
    def is_parked(self) -> bool:
        """Whether the client waits for us, which does not count as idle (P17)."""
        return self._connection.is_deciding and self._is_writable

    def _claim(self) -> Claim:
        return Claim.WAITS if self.is_parked else Claim.WAITED_FOR

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        address = transport.get_extra_info("peername")
        if address is None:  # gone already
            transport.close()
            return
        self._peer = Peer(client_host=java_host(address[0]), principal=ANONYMOUS)
        self._address = f"{address[0]}:{address[1]}"
        self._share.client_host = self._peer.client_host
        if not self._made(self):  # one too many
            transport.close()
            return
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._turns.forget(self)
        self._share.end()
        self._connection.forget()
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._lost(self)
        if exc is not None:
            log.info("connection lost", peer=self._peer.client_host, cause=str(exc))

    def pause_writing(self) -> None:
        self._is_writable = False
        self.unread_since_ms = self._monotonic_ms()
        self._mind_reading()

    def resume_writing(self) -> None:
        self._is_writable = True
        self.unread_since_ms = None
        self._begin_working()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._metrics.bytes_received += len(data)
        self._connection.receive(data)
        self._begin_working()

    def eof_received(self) -> bool:
        """The client sends no more. What waits for its turn is worked off before it is closed, as Kafka does."""
        self._is_at_end = self._turns.is_waiting(self)
        return self._is_at_end

    @property
    def is_closing(self) -> bool:
        """Whether it is to be closed, and waits for the client to read what was sent."""
        return self._transport is not None and self._transport.is_closing()

    def close(self) -> None:
        """Send what is to be sent, and close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _begin_working(self) -> None:
        if self._turns.begin(self):
            self.take_turn()
        else:
            self._mind_reading()

    def take_turn(self) -> None:
        """Take requests until one is parked, or there is none, or the client does not read, or others have waited."""
        now_ms = self._monotonic_ms()
        fault: ProtocolError | None = None
        has_failed, self._is_working = True, True
        was_half_sent, begun = self._connection.is_half_sent, 0
        try:
            while self._is_writable and self._is_open():
                frame = self._connection.next_request(now_ms)
                if frame is None:
                    if self._connection.is_interrupted:
                        self._turns.wait(self)
                    break
                self._begin(frame)
                begun += 1
                if (
                    begun >= self._turns.share
                    or self._connection.output_bytes > OUTPUT_BYTES_MAX
                    or self._turns.is_over
                ):
                    if self._connection.waiting_bytes:
                        self._turns.wait(self)
                    break
            has_failed = False
        except ProtocolError as error:
            fault, has_failed = error, False
        finally:
            self._is_working = False
            if has_failed:  # a bug of ours is this client's alone, as in Kafka (G24)
                self.abort()
        if begun or self._heartbeats.hits or not was_half_sent:
            self.seen_ms = now_ms
        self._flush()
        if fault is not None:
            self._refuse(fault)
        elif self._is_at_end and not self._turns.is_waiting(self):
            self.close()

    def _begin(self, frame: bytes) -> None:
        api_key, api_version = _KEY_VERSION.unpack_from(frame)
        self._metrics.count_request(api_key, api_version)
        keep_ticket = partial(self._heartbeats.keep, frame) if api_key == heartbeat.KEY else keep_no_ticket
        with noted(self._work_on(api_key, api_version, frame)):
            cancel = self._dispatch(frame, self._peer, self._answered, keep_ticket)
        if self._connection.is_deciding:
            self._cancel = cancel

    def _work_on(self, api_key: int, api_version: int, frame: bytes) -> RequestWork:
        return RequestWork(
            api=self._metrics.api_name(api_key),
            api_version=api_version,
            size_bytes=len(frame),
            connection=self._address,
            principal=self._peer.principal,
        )

    def _answered(self, answered: Answered) -> None:
        if not self._is_open():
            return  # the client is gone, as in Kafka its answer is dropped (CC6)
        self._cancel = None
        if isinstance(answered, ProtocolError):
            self._refuse(answered)
            return
        self._connection.answer(*answered)
        if self._is_working:
            return
        self.seen_ms = self._monotonic_ms()
        self._flush()
        if self._connection.waiting_bytes:
            self._turns.wait(self)

    def _flush(self) -> None:
        self._metrics.fast_heartbeats += self._heartbeats.hits
        self._heartbeats.hits = 0
        if self._connection.output_bytes > OUTPUT_BYTES_MAX:
            self._flush_chunks()
        else:
            output = self._connection.take_output()
            if output and self._transport is not None:
                self._metrics.bytes_sent += len(output)
                self._transport.write(output)
        self._mind_reading()

    def _flush_chunks(self) -> None:
        chunks = self._connection.take_chunks()
        if self._transport is not None:
            self._metrics.bytes_sent += sum(map(len, chunks))
            self._transport.writelines(chunks)

    def _mind_reading(self) -> None:
        """Read while the client reads, and while not too much waits: back-pressure, in both directions."""
        held = self._connection.held_bytes
        if held > FREE_BYTES or self._share.is_counted or not self._is_writable:
            unread = 0 if self._is_writable else unsent_bytes(self._transport)
            self._share.count(held + unread)
        must_wait = held > FREE_BYTES and self._turns.is_waiting(self)
        should_read = self._is_writable and not self._connection.is_full and not must_wait
        if should_read is self._is_reading or self._transport is None or self._transport.is_closing():
            return
        self._is_reading = should_read
        if should_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _refuse(self, error: ProtocolError) -> None:
        self._metrics.protocol_errors[error.fault] += 1
        self._metrics.bytes_rejected += self._connection.waiting_bytes
        log.warning("connection closed", peer=self._peer.client_host, fault=error.fault.value, cause=str(error))
        self.close()

    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()
