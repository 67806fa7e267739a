"""The HTTP side door: /metrics for Prometheus, /healthz (the event loop turns), /readyz (every partition is served).

In threads of its own, so that it answers while the loop is busy; it reads counters and two flags, nothing else. Each
request has a thread, of which there are so many at most: for who comes then, whoever has been there longest has to go.
So strangers that say nothing keep no one out, who is answered in milliseconds.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socket import SHUT_RDWR, socket
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

StartResponse = Callable[[str, list[tuple[str, str]]], Any]

CONNECTIONS_MAX = 32
REQUEST_S = 10.0
"""From the connection on until the answer is read."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128
    request_s: float

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401 -- the library's
        self._since: dict[socket, float] = {}
        """When each connection came, in that order."""
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(*args, **settings)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 -- the library's
        """A connection has come."""
        if not self._places.acquire(blocking=False):
            self._end(lambda since: since[:1])
            if not self._places.acquire(timeout=1.0):  # its thread has no turn
                super().shutdown_request(request)
                return
        with self._lock:
            self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 -- the library's
        """A connection has come to its end, in its thread."""
        with self._lock:
            had_place = self._since.pop(request, None) is not None
        super().shutdown_request(request)
        if had_place:
            self._places.release()

    def service_actions(self) -> None:
        """Called twice a second."""
        before = time.monotonic() - self.request_s
        self._end(lambda since: [each for each in since if each[1] < before])

    def _end(self, chosen: Callable[[list[tuple[socket, float]]], list[tuple[socket, float]]]) -> None:
        """Their threads find that the client has gone."""
        with self._lock:
            for connection, _ in chosen(list(self._since.items())):
                with suppress(OSError):
                    connection.shutdown(SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 -- the library's
        """That clients go, or are sent away, is no news."""
        if not isinstance(sys.exception(), OSError):
            log.error("a request of --metrics failed", peer=client_address[0], exc_info=True)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the library's name
        """Say nothing: a scrape every few seconds is no news."""


class MetricsEndpoint:
    """Listens from the start on. Raises OSError when the address is taken."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        *,
        not_ready: Callable[[], str | None],
        not_well: Callable[[], str | None],
        request_s: float = REQUEST_S,
    ) -> None:
        metrics = make_wsgi_app(registry)

        def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            match environ["PATH_INFO"]:
                case "/metrics":
                    answer: Iterable[bytes] = metrics(environ, start_response)
                    return answer
                case "/healthz":
                    return _verdict(start_response, "ok", not_well())
                case "/readyz":
                    return _verdict(start_response, "ready", not_ready())
                case _:
                    return _answer(start_response, "404 Not Found", "there is /metrics, /healthz and /readyz\n")

        self._server = make_server(host, port, app, server_class=_Server, handler_class=_Quiet)
        self._server.request_s = request_s
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _verdict(start_response: StartResponse, good: str, reason: str | None) -> Iterable[bytes]:
    """`good`, or why not."""
    if reason is None:
        return _answer(start_response, "200 OK", f"{good}\n")
    return _answer(start_response, "503 Service Unavailable", f"{reason}\n")


def _answer(start_response: StartResponse, status: str, text: str) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [text.encode()]
