"""The listening sockets of this process, which its supervisor keeps: the next process takes them with their queues.

This is the process's end of the connection to its supervisor, and the messages on it.

A socket lives as long as any process has it open. So connections that the kernel accepted for a process that died, or
accepts before the next one is ready, wait for the next one. systemd's file descriptor store does the same for a single
service. The messages, in both directions:

    SOCKETS, with that many sockets from the supervisor: sockets of a previous process; from here: a socket to keep
    END                             from the supervisor: there are no more sockets; from here: this process serves, and
                                    needs no others
    METRICS, with a port            from here: the port of this process's metrics

If the connection is closed, the supervisor has ended. Without a supervisor nothing is kept.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

VARIABLE: Final = "MUSTER_SUPERVISOR_FD"
"""The environment variable with the descriptor of the connection."""
MESSAGE: Final = struct.Struct(">BH")
SOCKETS: Final = 1
END: Final = 2
METRICS: Final = 3
SOCKETS_AT_ONCE: Final = 100
"""The limit per message; the kernel takes 253 at most."""

BoundAt = tuple[int, str, int]
"""The address family, the address and the port of a socket."""


def bound_at(bound: socket.socket) -> BoundAt:
    """Return where a socket is bound."""
    address = bound.getsockname()
    return bound.family, address[0], address[1]


def send(channel: socket.socket, kind: int, number: int = 0, sockets: Sequence[socket.socket] = ()) -> None:
    """Send a message; do nothing if the other end is closed."""
    with suppress(BrokenPipeError, ConnectionResetError):
        socket.send_fds(channel, [MESSAGE.pack(kind, number)], [each.fileno() for each in sockets])


def receive(channel: socket.socket) -> tuple[int, int, list[socket.socket]] | None:
    """Return the kind, the number and the sockets of the next message; None at the end. Raises BlockingIOError."""
    try:
        message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE.size, SOCKETS_AT_ONCE)
    except ConnectionResetError:
        return None
    sockets = [socket.socket(fileno=each) for each in descriptors]
    for each in sockets:
        each.set_inheritable(False)  # else child processes inherit the socket and keep it open
    if len(message) < MESSAGE.size:
        return None
    kind, number = MESSAGE.unpack(message)
    return kind, number, sockets


class KeptSockets:
    """Passes listening sockets to and from the supervisor over `channel`; without one, they end with the process."""

    def __init__(self, channel: socket.socket | None = None) -> None:
        self._channel = channel
        self._left: dict[BoundAt, socket.socket] = {}
        """A predecessor's sockets that were not taken yet."""
        while channel is not None and (received := receive(channel)) is not None and received[0] == SOCKETS:
            self._left |= {bound_at(each): each for each in received[2]}

    @classmethod
    def of_environment(cls) -> "KeptSockets":
        """Create the instance of this process, once: the variable is removed so that child processes do not use it."""
        descriptor = os.environ.pop(VARIABLE, None)
        if descriptor is None:
            return cls()
        os.set_inheritable(int(descriptor), False)  # noqa: FBT003 -- positional only
        return cls(socket.socket(fileno=int(descriptor)))

    def take(self, family: int, address: str, port: int) -> socket.socket | None:
        """Return the predecessor's socket at this address, if there is one; the caller then owns it."""
        return self._left.pop((family, address, port), None)

    def keep(self, bound: socket.socket) -> None:
        """Make the supervisor keep a socket when this process exits."""
        if self._channel is not None:
            send(self._channel, SOCKETS, 1, [bound])

    def serves(self) -> None:
        """Report that this process serves, and close the predecessor's sockets that it has not taken."""
        while self._left:
            self._left.popitem()[1].close()
        if self._channel is not None:
            send(self._channel, END)

    def report_metrics(self, port: int) -> None:
        """Report the port at which this process serves its metrics on this host."""
        if self._channel is not None:
            send(self._channel, METRICS, port)

    def when_alone(self, alone: Callable[[], None]) -> None:
        """Call `alone` once the supervisor has ended; it sends nothing before that."""
        channel, loop = self._channel, asyncio.get_running_loop()
        if channel is None:
            return

        def ended() -> None:
            loop.remove_reader(channel)
            alone()

        loop.add_reader(channel, ended)


NOT_KEPT: Final = KeptSockets()
