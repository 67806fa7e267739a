"""A client's socket and the one of its broker: each client connection has one upstream of its own.

So who the client is, is known to the broker alone: SASL passes through, and what it may do is asked there. No more than
a first piece is read from a client before its broker is reached, and nothing is connected to for a client that says
nothing (a port scan, a load balancer's check). When the broker is gone the client's side is closed; when the client is
gone what it has sent is still worked off, as Kafka does, and its answers dropped (CC6). Back-pressure goes both ways:
who does not read is not read for.

What belongs here: sockets, and the order of the day of one connection. What a request means is `handle`'s.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import cast

import structlog

from muster.coordinator.load.slices import Slices
from muster.coordinator.net.flow import Flow, send_all
from muster.coordinator.net.heartbeats import HeartbeatCache
from muster.coordinator.net.hosts import java_host
from muster.coordinator.net.listening import Listening
from muster.coordinator.net.memory import FREE_BYTES, Claim
from muster.coordinator.net.memory_share import Share, unsent_bytes
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.principals import ANONYMOUS, NOT_KNOWN
from muster.coordinator.service import Cancel
from muster.coordinator.sidecar.messages.plan import PlanOf, Rewrite
from muster.coordinator.sidecar.messages.questions import OpenQuestions
from muster.coordinator.sidecar.relay import broker_side
from muster.coordinator.sidecar.relay.answering import Answering
from muster.coordinator.sidecar.relay.authorization import Verdicts
from muster.coordinator.sidecar.relay.broker_side import BrokerSide, Door
from muster.coordinator.sidecar.relay.conversation import Conversation
from muster.coordinator.sidecar.relay.limits import Limits
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.sidecar.relay.sasl import Exchange
from muster.coordinator.wire.api import ProtocolError
from muster.coordinator.wire.dispatch import Peer
from muster.coordinator.wire.under_way import Answered

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ClientSide(asyncio.Protocol):
    """See the module. `seen_ms` is when a request began or went on, or an answer came, last (monotonic); of who has to
    authenticate and has not, when he came.
    """

    def __init__(
        self,
        *,
        door: Door,
        plan_of: PlanOf,
        handle: Callable[["ClientSide", bytes], Cancel | None],
        metrics: ServerMetrics,
        relayed: RelayMetrics,
        monotonic_ms: Callable[[], int],
        limits: Limits,
        listening: Listening["ClientSide"],
        slices: Slices,
    ) -> None:
        self.seen_ms = monotonic_ms()
        self.peer = Peer(client_host="", principal=ANONYMOUS)
        self.address = ""
        self.sasl = Exchange()
        self.heartbeats = HeartbeatCache()
        self.verdicts = Verdicts(self, metrics=relayed, monotonic_ms=monotonic_ms, keep_ms=limits.verdict_keep_ms)
        self._handle = handle
        self._metrics = metrics
        self._monotonic_ms = monotonic_ms
        self._listening = listening
        self._turns = listening.turns
        self.slices = slices
        self._questions = OpenQuestions()
        self._conversation = Conversation(
            plan_of=plan_of, fast=self.heartbeats.answer, limits=limits, new_id=partial(os.urandom, 4)
        )
        self._answering = Answering(
            self._conversation.answers,
            slices,
            delay_ms=limits.delay_ms,
            went_on=self._answers_went_on,
            rewritten=self._rewritten,
            failed=self._cannot_answer,
        )
        self.door = door
        self._broker = BrokerSide(door, self, relayed)
        self._transport: asyncio.Transport | None = None
        self._flow: Flow | None = None
        self._cancel: Cancel | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._is_working = False
        self._client_reads = True
        self.unread_since_ms: int | None = None
        self._is_draining = False
        self._is_let_in = not limits.authenticates
        self._share = Share(listening.memory, claim=self._claim, abort=self.abort)

    # ---- what the listener asks ----------------------------------------------------------------------

    @property
    def client_host(self) -> str:
        return self.peer.client_host

    @property
    def is_parked(self) -> bool:
        """Whether the client waits for an answer, which does not count as idle (P17); unless a side does not read."""
        return self._conversation.is_owed and self._client_reads and self._broker.reads

    def _claim(self) -> Claim:
        if not self._is_let_in:
            return Claim.STRANGER
        return Claim.WAITS if self._conversation.is_handling and self._client_reads else Claim.WAITED_FOR

    @property
    def is_closing(self) -> bool:
        return self._transport is not None and self._transport.is_closing()

    def close(self) -> None:
        """Send what is to be sent, and close both sides."""
        if self._transport is not None:
            self._transport.close()
        self._let_broker_go()

    def drain(self) -> None:
        """Take no more requests; close when the last answer is out."""
        self._is_draining = True
        self._answering.go_on(self._conversation.end)
        self._close_if_done()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
        self._questions.cancel()
        self._broker.abort()

    # ---- the client's socket -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        address = transport.get_extra_info("peername")
        if address is None:  # gone already
            transport.close()
            return
        self.peer = Peer(client_host=java_host(address[0]), principal=self.peer.principal)
        self.address = f"{address[0]}:{address[1]}"
        self._share.client_host = self.peer.client_host
        if not self._listening.made(self):  # one too many
            transport.close()
            return
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._flow = Flow(self._transport)

    def _failed(self, error: Exception) -> None:
        """A bug of ours is this client's alone, as in Kafka (G24)."""
        log.error("a connection failed", peer=self.peer.client_host, exc_info=error)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._client_reads = True  # whatever there is for it
        self._broker.give_up()
        self._listening.lost(self)
        if self.is_open() and self._conversation.is_of_interest:
            self._lingering = asyncio.get_running_loop().call_later(broker_side.LINGERS_S, self._end)
            self._work()
        else:
            self._end()

    def _end(self) -> None:
        """The client is gone, and nothing is to be done for it any more."""
        self._share.end()
        self._conversation.forget()
        self._answering.stop()
        if self._lingering is not None:
            self._lingering.cancel()
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._let_broker_go()

    def pause_writing(self) -> None:
        self._client_reads = False
        self.unread_since_ms = self._monotonic_ms()
        self._mind_reading()

    def resume_writing(self) -> None:
        self._client_reads = True
        self.unread_since_ms = None
        self._work()

    def data_received(self, data: bytes) -> None:
        self._metrics.bytes_received += len(data)
        self._conversation.receive(data)
        if self._are_heartbeats_all():
            return
        if not self._broker.is_wanted:
            self._broker.reach(self._failed)
        if not self.is_open() and self._flow is not None:
            self._flow.turn(on=False)  # until the broker is reached
            self._mind_memory()
        self._work()

    def _are_heartbeats_all(self) -> bool:
        """Answer heartbeats that are known at once, where nothing else is to be minded; else all goes its usual way."""
        if self._share.is_counted or self._is_draining or not (self._client_reads and self._broker.is_at_ease):
            return False
        now_ms = self._monotonic_ms()
        if not self._conversation.answer_known(now_ms):
            return False
        if self._is_let_in:
            self.seen_ms = now_ms
        self._count_heartbeats()
        self._send_to_client()
        return True

    # ---- the broker ----------------------------------------------------------------------------------

    @property
    def is_broker_lost(self) -> "asyncio.Future[None]":
        """Done when the broker has closed, or we have."""
        return self._broker.is_lost

    @property
    def wants_broker(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def broker_reached(self) -> None:
        self._work()

    def broker_not_reached(self) -> None:
        self.abort()

    def answers_received(self, data: bytes) -> None:
        """Bytes from the broker."""
        if self._is_let_in:
            self.seen_ms = self._monotonic_ms()
        self._answering.go_on(partial(self._conversation.answers.receive, data))

    def _answers_went_on(self) -> None:
        if self._conversation.answers.is_served and (principal := self.sasl.proved()) is not None:
            self.authenticated(principal)
        self._work()

    def _rewritten(self) -> None:
        if self.is_open():
            self.answers_received(b"")
        elif self._transport is not None:  # the broker has gone meanwhile
            self._send()
            self._transport.close()

    def _cannot_answer(self, error: Exception) -> None:
        if not isinstance(error, ProtocolError):
            self._failed(error)
            return
        broker = self.door.broker
        log.error("connection closed: the broker's answer cannot be used", broker=broker, cause=str(error))
        self._metrics.protocol_errors[error.fault] += 1
        self._send()
        self.close()

    def broker_lost(self, error: Exception | None) -> None:
        """What it said is still sent."""
        self._questions.cancel()
        if self._transport is None:
            self._end()
        elif not self._transport.is_closing():
            self._tell_closed(str(error or "closed"))
            self._answering.go_on(self._conversation.end)
            self._send()
            if not self._conversation.answers.is_rewriting:
                self._transport.close()

    def _tell_closed(self, cause: str) -> None:
        sent = self._conversation.sent_as_stranger
        if sent is None or self.sasl.has_begun or self._conversation.answers.is_served:
            self.door.tell_closed(self.peer.client_host, cause)
        else:
            self.door.tell_not_authenticated(self.peer.client_host, sent)

    def broker_reads(self) -> None:
        if self._broker.reads:
            self._work()
        else:
            self._mind_reading()

    def _let_broker_go(self) -> None:
        self._questions.cancel()
        self._broker.let_go()

    # ---- what a request does -------------------------------------------------------------------------

    def is_open(self) -> bool:
        """Whether the broker is there; it is let go when the client has to go, or nothing is left to do for it."""
        return self._broker.transport is not None

    def answered(self, answered: Answered) -> None:
        """The answer to the request that is being handled."""
        if not self.is_open():
            return
        self._cancel = None
        if isinstance(answered, ProtocolError):
            self._refuse(answered)
            return
        self._conversation.answer(*answered)
        self._go_on()

    def relay(self, frame: bytes | None = None, rewrite: Rewrite | None = None) -> None:
        """Give the request that is being handled to the broker: as it came, or another frame instead."""
        if self.is_open():
            self._cancel = None
            self._conversation.relay(frame, rewrite)
            self._go_on()

    def authenticated(self, principal: str | None) -> None:
        """The broker goes on with the client, perhaps as somebody else: nothing counts that was permitted before."""
        self.verdicts.forget()
        self.heartbeats.clear()
        if principal is not None:
            self._conversation.trust()
            self._is_let_in = True
            self.peer = Peer(client_host=self.peer.client_host, principal=principal)
            if principal != NOT_KNOWN:
                self._share.principal = principal
                if not self._listening.authenticated(self, principal):
                    self.close()  # which clients take for a broker that is gone, and come again later

    def ask(self, api_key: int, api_version: int, rest: bytes) -> asyncio.Future[bytes]:
        """Ask the broker something on the client's own connection; `rest` and the answer are what follows the
        correlation id. The future is cancelled when the broker is gone, which ends the request that asks.
        """
        future, told = self._questions.add()
        if self.is_open():
            self._conversation.ask(api_key, api_version, rest, told)
            if not self._is_working:
                self._send()
        else:
            future.cancel()
        return future

    def _go_on(self) -> None:
        if self._is_working:
            return
        if self._is_let_in:
            self.seen_ms = self._monotonic_ms()
        self._send()
        if self._conversation.waiting_bytes:
            self._turns.wait(self)
        else:
            self._close_if_done()

    def _work(self) -> None:
        """Go on now, or when it is this connection's turn."""
        if not self.is_open():
            return
        if self._turns.begin(self):
            self.take_turn()
        else:
            self._send()

    def take_turn(self) -> None:
        """Relay what is to be relayed, take requests until one waits, or others have waited; one write to each side for
        all of it.
        """
        if not self.is_open():
            return
        now_ms = self._monotonic_ms()
        fault: ProtocolError | None = None
        has_failed, self._is_working = True, True
        try:
            self._take_requests(now_ms)
            has_failed = False
        except ProtocolError as error:
            fault, has_failed = error, False
        finally:
            self._is_working = False
            if has_failed:  # a bug of ours is this client's alone, as in Kafka (G24)
                self.abort()
        if self._conversation.went_on() and self._is_let_in:
            self.seen_ms = now_ms
        self._count_heartbeats()
        self._send()
        if fault is not None:
            self._refuse(fault)
        self._close_if_done()

    def _take_requests(self, now_ms: int) -> None:
        taken = 0
        while self._client_reads and self._broker.reads and self.is_open():
            frame = self._conversation.next_request(now_ms)
            if frame is None:
                if self._conversation.is_interrupted:
                    self._turns.wait(self)
                return
            cancel = self._handle(self, frame)
            if self._conversation.is_handling:
                self._cancel = cancel
            taken += 1
            if taken >= self._turns.share or self._turns.is_over:
                if self._conversation.waiting_bytes:
                    self._turns.wait(self)
                return

    def _count_heartbeats(self) -> None:
        self._metrics.fast_heartbeats += self.heartbeats.hits
        self.heartbeats.hits = 0

    def _send(self) -> None:
        if self._conversation.for_broker:
            self._broker.send(self._conversation.for_broker)
        self._send_to_client()
        self._mind_reading()

    def _send_to_client(self) -> None:
        for_client = self._conversation.for_client
        if for_client:
            if self._transport is not None and not self._transport.is_closing():
                self._metrics.bytes_sent += send_all(self._transport, for_client)
            for_client.clear()

    def _mind_reading(self) -> None:
        self._mind_memory()
        if self._flow is None or not self.is_open():
            return
        answers = self._conversation.answers
        must_wait = self._conversation.held_bytes > FREE_BYTES and self._turns.is_waiting(self)
        is_full = self._conversation.is_full or must_wait
        self._flow.turn(on=self._broker.reads and self._client_reads and not is_full)
        self._broker.turn(on=self._client_reads and not (answers.is_rewriting or answers.has_many_waiting))

    def _mind_memory(self) -> None:
        held = self._conversation.held_bytes
        if held > FREE_BYTES or self._share.is_counted or not (self._client_reads and self._broker.reads):
            for_client = 0 if self._client_reads else unsent_bytes(self._transport)
            self._share.count(held + for_client + self._broker.unsent_bytes)

    def _refuse(self, error: ProtocolError) -> None:
        self._metrics.protocol_errors[error.fault] += 1
        self._metrics.bytes_rejected += self._conversation.waiting_bytes
        log.warning("connection closed", peer=self.peer.client_host, fault=error.fault.value, cause=str(error))
        self.close()

    def _close_if_done(self) -> None:
        is_gone = self._transport is None
        if not (is_gone or self._is_draining) or self._conversation.is_under_way or self._turns.is_waiting(self):
            return
        if is_gone:
            self._end()
        else:
            self.close()
