"""The HTTP side door: /metrics for Prometheus, /healthz (the event loop turns), /readyz (every partition is served).

In a thread of its own, so that it answers while the loop is busy; it reads counters and two flags, nothing else.
"""

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds for a client to say what it wants: each holds a thread

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
