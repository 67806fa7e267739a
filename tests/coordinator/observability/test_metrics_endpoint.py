"""The metrics port, and clients that occupy its threads."""

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from muster.coordinator.observability.metrics_endpoint import CONNECTIONS_MAX, RETRY_ACCEPT_S, MetricsEndpoint

WITHIN_S = 60


@contextmanager
def endpoint(request_s: float = WITHIN_S) -> Iterator[int]:
    """Its port."""
    subject = MetricsEndpoint(
        "127.0.0.1", 0, CollectorRegistry(), not_ready=lambda: None, not_well=lambda: None, request_s=request_s
    )
    try:
        yield subject.port
    finally:
        subject.close()


def half_sent(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
    connection.sendall(b"GET /metrics HTT")
    return connection


def status(port: int) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_half_sent_requests_keep_few_threads_and_block_no_others() -> None:
    """Even before any of them reaches its time limit."""
    before = threading.active_count()
    with endpoint() as port, ExitStack() as connections:
        for _ in range(3):
            for _ in range(100):
                connections.enter_context(half_sent(port))
            assert status(port) == 200
            assert threading.active_count() <= before + 1 + CONNECTIONS_MAX


def test_a_scrape_that_waits_for_a_file_descriptor_is_answered_later_and_costs_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The accepting thread would otherwise retry without a pause, and leave little of the interpreter to the event
    loop.
    """
    tries: list[str] = []
    accept = socket.socket.accept

    def few_files(bound: socket.socket) -> Any:
        tries.append("accept")
        if len(tries) < 6:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(bound)

    monkeypatch.setattr(socket.socket, "accept", few_files)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda pause_s: tries.append(f"wait {pause_s}"))
    monkeypatch.setattr("muster.coordinator.observability.metrics_endpoint.time", clock)  # other threads do sleep
    with endpoint() as port:
        assert status(port) == 200
    assert tries == [*["accept", f"wait {RETRY_ACCEPT_S}"] * 3, "accept"]


def test_a_request_that_trickles_in_is_ended(capfd: pytest.CaptureFixture[str]) -> None:
    """However often a byte arrives, and without a traceback."""
    given_up_s = time.monotonic() + WITHIN_S
    with endpoint(request_s=0.2) as port, half_sent(port) as connection, suppress(ConnectionError):
        while time.monotonic() < given_up_s:
            connection.sendall(b"P")
            time.sleep(0.02)
        pytest.fail("it is still read")
    assert capfd.readouterr().err == ""


def test_a_new_scrape_takes_the_place_of_the_oldest() -> None:
    """The newest connection replaces the oldest; the others stay, and get their response."""
    with endpoint() as port, ExitStack() as connections:
        first, *others = [connections.enter_context(half_sent(port)) for _ in range(CONNECTIONS_MAX)]
        assert status(port) == 200
        assert first.recv(1) == b""
        for connection in others:
            connection.sendall(b"P/1.0\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.0 200"


def test_a_request_that_hits_a_bug_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the peer's address. A client that disconnects is not logged."""

    def failing(_: WSGIRequestHandler) -> None:
        raise errors.pop()

    monkeypatch.setattr(WSGIRequestHandler, "handle", failing)
    errors: list[Exception] = [ZeroDivisionError(), ConnectionResetError()]
    with capture_logs() as lines, endpoint() as port:
        for _ in range(2):
            with half_sent(port) as connection, suppress(ConnectionError):
                assert connection.recv(1) == b""
    assert [(line["event"], line["peer"]) for line in lines] == [("a request to --metrics failed", "127.0.0.1")]
