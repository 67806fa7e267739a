"""TLS handshakes with clients, in turns, so that many at once do not block the event loop.

A handshake costs us a millisecond or more of CPU time, and the client next to nothing. A TLS transport processes bytes
as they arrive, for all clients within one turn of the loop. So a gate between each socket and its TLS keeps the bytes
that arrive, and passes them on when it has its turn. All handshakes together get 5 ms per turn of the loop. The
client's timeout runs only while we wait for the client.

The TLS implementation is the loop's own, which takes over the socket once the handshake has ended.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

import structlog

from muster.coordinator.load.current_work import OtherWork, working_on
from muster.coordinator.load.turns import Turns
from muster.coordinator.net.flow import Flow

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
"""How long the client may take for a handshake; Java clients give up after the same time
(socket.connection.setup.timeout.ms).
"""

HANDSHAKE_AND_TURNS_TIMEOUT_S = 60.0
"""The time for a handshake including its waits for turns."""

KEPT_BYTES_MAX: Final = 16_384
"""How many bytes are kept until their turn; one more read may add as many. A handshake's flight is smaller."""
_READ: Final = memoryview(bytearray(KEPT_BYTES_MAX))
"""The shared read buffer of all gates: the loop's own reads may take 256 KiB for each client."""

_REFUSED = (
    "the client refuses the certificate of --tls-certificate: it does not trust it, or connects under a name that is"
    " not in it (subjectAltName)"
)
_MEANINGS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it speaks HTTP",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the certificate of --tls-certificate (its ssl.ca.location)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REFUSED,  # Java sends this in both cases
    "SSLV3_ALERT_BAD_CERTIFICATE": _REFUSED,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it presented no certificate, which --tls-client-ca requires",
}
"""Explanations of OpenSSL's less helpful reasons."""

_WORK = OtherWork(work="TLS handshakes with clients")


class Handshake:
    """An accepted client, until its handshake has ended and its connection is created.

    `made` creates that connection, which takes the handshake's place in the count; `ended` is called in any case,
    `failed` with the host of a client whose handshake has failed, and the reason.
    """

    def __init__(
        self,
        client_host: str,
        context: ssl.SSLContext,
        turns: Turns,
        *,
        made: Callable[["Handshake"], asyncio.Protocol],
        ended: Callable[["Handshake"], None],
        failed: Callable[[str, str], None],
    ) -> None:
        self.client_host = client_host
        self._context = context
        self._made = made
        self._ended = ended
        self._failed = failed
        self._gate = _Gate(turns, self._has_taken_too_long)
        self._task: asyncio.Task[None] | None = None

    def begin(self, client: socket.socket) -> None:
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(client))
        self._task.add_done_callback(lambda _: self._ended(self))

    def abort(self) -> None:
        """Close immediately."""
        if self._task is not None:
            self._task.cancel()

    async def _shake_hands(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        first = _First()
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: self._gate, client)
            if transport.is_closing():  # uvloop's accepts no calls then
                return
            loop.call_soon(self._gate.step_between)  # just before TLS gets its `connection_made`
            tls = await loop.start_tls(
                transport,
                first,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_AND_TURNS_TIMEOUT_S,
            )
        except OSError as error:  # including TLS's own errors
            reason = _reason(error)
            if reason is not None:
                self._failed(self.client_host, reason)
        else:
            self._hand_over(cast("asyncio.Transport", tls), first)  # not a subclass in uvloop
        finally:
            self._gate.forget()

    def _hand_over(self, tls: asyncio.Transport, first: "_First") -> None:
        connection = self._made(self)
        tls.set_protocol(connection)
        connection.connection_made(tls)
        if first.data:
            connection.data_received(first.data)
        self._gate.open()

    def _has_taken_too_long(self) -> None:
        self._failed(self.client_host, f"it did not finish the handshake within {HANDSHAKE_TIMEOUT_S:g} s")
        self.abort()


class _First(asyncio.Protocol):
    """Keeps data that a client sends right after its handshake, before its connection is created."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


class _Gate(asyncio.BufferedProtocol):
    """Sits between a socket and its TLS during the handshake; see the module.

    `too_late` is called when the client's time is over.
    """

    def __init__(self, turns: Turns, too_late: Callable[[], None]) -> None:
        self._transport: asyncio.Transport
        self._flow: Flow
        self._tls: asyncio.BufferedProtocol | None = None
        self._turns = turns
        self._kept = bytearray()
        self._has_ended = False  # the client has finished sending, and TLS must be notified
        self._too_late = too_late
        self._left_s = HANDSHAKE_TIMEOUT_S
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def step_between(self) -> None:
        """Insert this gate between the socket and its current TLS protocol."""
        if not self._transport.is_closing():
            self._tls = cast("asyncio.BufferedProtocol", self._transport.get_protocol())
            self._transport.set_protocol(self)
            self._flow = Flow(self._transport)
            asyncio.get_running_loop().call_soon(self._wait_for_turn)  # once reading has resumed

    def open(self) -> None:
        """Hand the socket to TLS: the handshake has ended."""
        if not self._transport.is_closing():
            assert self._tls is not None
            self._flow.turn(on=False)
            self._transport.set_protocol(self._tls)
            self._flow.turn(on=True)
            self._pass_on()

    def forget(self) -> None:
        """Leave the queue of turns."""
        self._stop_waiting()
        self._turns.forget(self)

    # ---- the socket --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._flow = Flow(self._transport)
        self._wait_for_client()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        self._kept += _READ[:nbytes]
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        """Wait for a turn if bytes are kept, and stop reading if they are too many."""
        if self._kept and self._tls is not None:
            self._stop_waiting()
            self._turns.wait(self)
        if len(self._kept) >= KEPT_BYTES_MAX:
            self._flow.turn(on=False)

    def eof_received(self) -> bool:
        self._has_ended = True
        if not self._kept:
            self._notify_end_soon()
        return True  # it is closed when TLS has been notified

    def connection_lost(self, exc: Exception | None) -> None:
        self.forget()
        if self._tls is not None:
            self._tls.connection_lost(exc or ConnectionResetError())

    def pause_writing(self) -> None:
        if self._tls is not None:
            self._tls.pause_writing()

    def resume_writing(self) -> None:
        if self._tls is not None:
            self._tls.resume_writing()

    # ---- turns -------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Let TLS process what the client has sent."""
        if not self._transport.is_closing():
            self._wait_for_client()
            self._flow.turn(on=True)
            with working_on(_WORK):
                self._pass_on()

    def _pass_on(self) -> None:
        assert self._tls is not None
        kept, self._kept = memoryview(self._kept), bytearray()
        while kept:
            buffer = memoryview(self._tls.get_buffer(len(kept)))
            size = min(len(buffer), len(kept))
            buffer[:size] = kept[:size]
            self._tls.buffer_updated(size)
            kept = kept[size:]
        if self._has_ended:
            self._notify_end_soon()

    def _notify_end_soon(self) -> None:
        """Notify TLS of the end of input; if the handshake has just ended, after `open`."""
        self._has_ended = False
        asyncio.get_running_loop().call_soon(self._notify_end)

    def _notify_end(self) -> None:
        if not (self._transport.is_closing() or (self._tls is not None and self._tls.eof_received())):
            self._transport.close()

    # ---- the client's time -------------------------------------------------------------------------------

    def _wait_for_client(self) -> None:
        loop = asyncio.get_running_loop()
        self._since_s = loop.time()
        self._timer = loop.call_later(self._left_s, self._too_late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s -= asyncio.get_running_loop().time() - self._since_s


def _reason(error: OSError) -> str | None:
    """Return why a handshake has failed; None for a client that disconnected, as load balancer checks do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        name = error.reason or str(error)
        return _MEANINGS.get(name, name.lower().replace("_", " "))
    if isinstance(error, ConnectionAbortedError):
        return (
            f"its handshake did not finish within {HANDSHAKE_AND_TURNS_TIMEOUT_S:g} s, including the time that it "
            "waited for its turn"
        )
    return None


def log_failed(client_host: str, reason: str) -> None:
    """Log a client whose handshake has failed."""
    log.warning("TLS with a client failed", peer=client_host, reason=reason)
