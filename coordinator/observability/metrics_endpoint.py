"""The HTTP endpoint: /metrics for Prometheus, /status for `muster status`, /healthz (the event loop runs), /readyz
(every partition is served).

It has its own threads, so that it answers while the event loop is busy; it only reads counters, flags and copies. Each
connection has a thread. Beyond `CONNECTIONS_MAX` a new connection closes the oldest one, so that idle clients lock out
no others.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socket import AF_INET6, AI_PASSIVE, IPPROTO_IPV6, IPV6_V6ONLY, SHUT_RDWR, SOCK_STREAM, getaddrinfo, socket
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

from muster.events.kafka.shortage import shortage

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
WSGIApplication = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

CONNECTIONS_MAX = 32
REQUEST_S = 10.0
"""Time limit of a request, from the connection until its response is read."""
RETRY_ACCEPT_S = 0.1
"""Pause after accept failed because no file descriptor was free: the connection still waits, and without a pause this
thread would retry in a loop, at the cost of the event loop.
"""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], app: WSGIApplication, *, request_s: float) -> None:
        self._request_s = request_s
        self._since: dict[socket, float] = {}
        """The open connections, each with a thread, in order of arrival, and their arrival times."""
        self._changed = threading.Condition()
        self.address_family = getaddrinfo(*address, type=SOCK_STREAM, flags=AI_PASSIVE)[0][0]
        super().__init__(address, _Quiet)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind the socket; `::` means all IPv4 and IPv6 addresses, as it does for `--listen`. Raises OSError."""
        if self.address_family is AF_INET6:
            self.socket.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, self.server_address[0] != "::")
        super().server_bind()

    def get_request(self) -> Any:  # noqa: ANN401 -- the library's
        """Accept a connection. Raises OSError, after which the server continues."""
        try:
            return super().get_request()
        except OSError as error:
            if shortage(error) is not None:
                time.sleep(RETRY_ACCEPT_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 -- the library's
        """Handle a new connection in its own thread; if there are too many, end the oldest first."""
        with self._changed:
            if not self._has_place():
                _end(next(iter(self._since)))
                if not self._changed.wait_for(self._has_place, timeout=1.0):  # its thread did not run
                    super().shutdown_request(request)
                    return
            self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def _has_place(self) -> bool:
        return len(self._since) < CONNECTIONS_MAX

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 -- the library's
        """Close a connection that has ended, called in its thread."""
        with self._changed:
            super().shutdown_request(request)
            self._since.pop(request, None)
            self._changed.notify()

    def service_actions(self) -> None:
        """End overdue connections. Called after each new connection, and twice a second while there are none."""
        before = time.monotonic() - self._request_s
        with self._changed:
            for connection, since in self._since.items():
                if since < before:
                    _end(connection)

    def handle_error(self, _request: Any, client_address: Any) -> None:  # noqa: ANN401 -- the library's
        """Log errors, except those of disconnected clients."""
        if not isinstance(sys.exception(), OSError):
            log.error("a request to --metrics failed", peer=client_address[0], exc_info=True)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the library's name
        """Log nothing: scrapes every few seconds are not interesting."""


def _end(connection: socket) -> None:
    """Shut the connection down, so that its thread sees the client as disconnected."""
    with suppress(OSError):
        connection.shutdown(SHUT_RDWR)


class MetricsEndpoint:
    """Listens as soon as it is created. Raises OSError if the address is taken."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        *,
        not_ready: Callable[[], str | None],
        not_well: Callable[[], str | None],
        status: Callable[[], bytes] = bytes,
        request_s: float = REQUEST_S,
    ) -> None:
        metrics = make_wsgi_app(registry)

        def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            match environ["PATH_INFO"]:
                case "/metrics":
                    answer: Iterable[bytes] = metrics(environ, start_response)
                    return answer
                case "/status":
                    start_response("200 OK", [("Content-Type", "application/json")])
                    return [status()]
                case "/healthz":
                    return _verdict(start_response, "ok", not_well())
                case "/readyz":
                    return _verdict(start_response, "ready", not_ready())
                case _:
                    return _answer(
                        start_response, "404 Not Found", "there is /metrics, /status, /healthz and /readyz\n"
                    )

        self._server = _Server((host, port), app, request_s=request_s)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _verdict(start_response: StartResponse, good: str, reason: str | None) -> Iterable[bytes]:
    """Respond with `good`, or with 503 and the reason."""
    if reason is None:
        return _answer(start_response, "200 OK", f"{good}\n")
    return _answer(start_response, "503 Service Unavailable", f"{reason}\n")


def _answer(start_response: StartResponse, status: str, text: str) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [text.encode()]
