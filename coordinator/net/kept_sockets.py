"""The listening sockets of this process, which its supervisor keeps: a successor takes them with their queues.

What belongs here: this process's end of the connection to its supervisor, and the messages there. What it must not
know: what listens.

A socket lives for as long as any process has it open. So connections that the kernel has made for a process that died,
and those that are made until the next one is there, wait for that one. systemd's store of file descriptors does the
same for a single service. The messages, in both directions:

    SOCKETS, with so many sockets   from the supervisor: those of a predecessor; from here: keep it
    END                             from the supervisor: those were all; from here: this process serves, and needs no
                                    others
    METRICS, with a port            from here: where this process's metrics are

The end of the connection is the supervisor's end. Without a supervisor nothing is kept.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

VARIABLE: Final = "MUSTER_SUPERVISOR_FD"
"""The variable of the environment with the descriptor of the connection."""
MESSAGE: Final = struct.Struct(">BH")
SOCKETS: Final = 1
END: Final = 2
METRICS: Final = 3
SOCKETS_AT_ONCE: Final = 100
"""In one message; the kernel takes 253 at most."""

BoundAt = tuple[int, str, int]
"""The address family, the address and the port of a socket."""


def bound_at(bound: socket.socket) -> BoundAt:
    """Return where a socket is bound."""
    address = bound.getsockname()
    return bound.family, address[0], address[1]


def send(channel: socket.socket, kind: int, number: int = 0, sockets: Sequence[socket.socket] = ()) -> None:
    """Send a message; nothing to an end that has gone."""
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
        each.set_inheritable(False)  # else whoever is started from here has it, too, and it lives on with that process
    if len(message) < MESSAGE.size:
        return None
    kind, number = MESSAGE.unpack(message)
    return kind, number, sockets


class KeptSockets:
    """Passes listening sockets to and from the supervisor over `channel`; without one, they end with the process."""

    def __init__(self, channel: socket.socket | None = None) -> None:
        self._channel = channel
        self._left: dict[BoundAt, socket.socket] = {}
        """A predecessor's sockets that nobody has taken."""
        while channel is not None and (received := receive(channel)) is not None and received[0] == SOCKETS:
            self._left |= {bound_at(each): each for each in received[2]}

    @classmethod
    def of_environment(cls) -> "KeptSockets":
        """Make those of this process, once: nobody whom it starts has the supervisor for its own."""
        descriptor = os.environ.pop(VARIABLE, None)
        if descriptor is None:
            return cls()
        os.set_inheritable(int(descriptor), False)  # noqa: FBT003 -- by position alone
        return cls(socket.socket(fileno=int(descriptor)))

    def take(self, family: int, address: str, port: int) -> socket.socket | None:
        """Return the predecessor's socket at this address, if there is one; it is the caller's then."""
        return self._left.pop((family, address, port), None)

    def keep(self, bound: socket.socket) -> None:
        """Have the supervisor keep a socket when this process ends."""
        if self._channel is not None:
            send(self._channel, SOCKETS, 1, [bound])

    def serves(self) -> None:
        """Say that this process serves: nobody needs what it has not taken from its predecessor."""
        while self._left:
            self._left.popitem()[1].close()
        if self._channel is not None:
            send(self._channel, END)

    def tell_metrics(self, port: int) -> None:
        """Say at which port of this host the metrics are."""
        if self._channel is not None:
            send(self._channel, METRICS, port)

    def when_alone(self, alone: Callable[[], None]) -> None:
        """Have `alone` called once the supervisor has ended; until then it says nothing more."""
        channel, loop = self._channel, asyncio.get_running_loop()
        if channel is None:
            return

        def ended() -> None:
            loop.remove_reader(channel)
            alone()

        loop.add_reader(channel, ended)


NOT_KEPT: Final = KeptSockets()
