"""The listening sockets of one process, kept for its successor when it exits, and the process's reports.

This is the supervisor's end of the connection (net/kept_sockets.py).
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from muster.coordinator.net.kept_sockets import (
    END,
    METRICS,
    SOCKETS,
    SOCKETS_AT_ONCE,
    BoundAt,
    bound_at,
    receive,
    send,
)

QUEUE_WAITS_S: Final = 10.0
"""How long clients wait for a process that is being started: less than their session timeout."""


class SocketStore:
    """The supervisor's end of the channel to one process: its listening sockets and its reports."""

    def __init__(self) -> None:
        self.metrics_port: int | None = None
        """The port of the process's metrics, once reported."""
        self.serves = False
        """True if the current (or last) process has reported that it serves."""
        self.has_served = False
        """True if any of the processes has ever reported that it serves."""
        self._kept: dict[BoundAt, socket.socket] = {}
        self._reported: set[BoundAt] = set()
        """Where the current process listens."""
        self._is_closed = False

    @contextmanager
    def lent_to(self, channel: socket.socket) -> Iterator[None]:
        """Hand the sockets to the process at the other end, and keep those that it reports, while the block lasts."""
        loop = asyncio.get_running_loop()
        channel.settimeout(0)
        self._reported.clear()
        self.serves = False
        sockets = list(self._kept.values())
        while sockets:
            send(channel, SOCKETS, min(len(sockets), SOCKETS_AT_ONCE), sockets[:SOCKETS_AT_ONCE])
            del sockets[:SOCKETS_AT_ONCE]
        send(channel, END)
        loop.add_reader(channel, self._receive, channel)
        timer = loop.call_later(QUEUE_WAITS_S, self._refuse_untaken)
        try:
            yield
        finally:
            timer.cancel()
            self._receive(channel)  # its last reports
            loop.remove_reader(channel)
            channel.close()
            self.metrics_port = None

    def give_up(self) -> None:
        """Close all sockets: clients queued there reconnect, to other processes."""
        while self._kept:
            self._kept.popitem()[1].close()

    def _refuse_untaken(self) -> None:
        """Send clients to other processes until this one takes the sockets. It has copies of them, so closing them
        would have no effect.
        """
        for at in self._kept.keys() - self._reported:
            with suppress(OSError):  # only works on Linux
                self._kept[at].shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close all sockets, and accept no more."""
        self._is_closed = True
        self.give_up()

    def _receive(self, channel: socket.socket) -> None:
        while True:
            try:
                received = receive(channel)
            except BlockingIOError:
                return
            if received is None:
                asyncio.get_running_loop().remove_reader(channel)
                return
            self._handle(*received)

    def _handle(self, kind: int, number: int, sockets: list[socket.socket]) -> None:
        for each in sockets:
            self._keep(each)
        if kind == METRICS:
            self.metrics_port = number
        elif kind == END:
            self.serves = self.has_served = True
            for at in self._kept.keys() - self._reported:
                self._kept.pop(at).close()

    def _keep(self, bound: socket.socket) -> None:
        if self._is_closed:
            bound.close()
            return
        at = bound_at(bound)
        before = self._kept.pop(at, None)
        if before is not None:
            before.close()
        self._kept[at] = bound
        self._reported.add(at)
