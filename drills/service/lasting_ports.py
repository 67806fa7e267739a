"""Ports for processes that are restarted: nobody else is given them while their process is away.

Nobody listens on them now, and no outgoing connection is given one: a client that tries again and again to reach a
process that is down could be given that very port, and be connected to itself. Each is held by a socket that does not
listen: who looks for a free port finds it taken, who is to listen there may.
"""

import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Final

HOST: Final = "127.0.0.1"
LASTING_PORTS: Final = range(15_000, 32_768)
"""Below the ephemeral ranges of Linux (from 32768) and macOS (from 49152), above what machines keep for services."""


def held(ports: Sequence[int]) -> list[socket.socket]:
    """Hold all these ports until the sockets are closed; none of them if somebody has one, or takes it meanwhile."""
    with ExitStack() as kept:
        try:
            with ExitStack() as tried:
                for port in ports:
                    tried.enter_context(socket.socket()).bind((HOST, port))
            sockets = [kept.enter_context(_holding(port)) for port in ports]
        except OSError:
            return []
        kept.pop_all()
        return sockets


def some_held(count: int) -> list[socket.socket]:
    """Hold so many ports, or as many as there are."""
    found = (sockets for port in random.sample(LASTING_PORTS, len(LASTING_PORTS)) if (sockets := held((port,))))
    return [each for (each,) in islice(found, count)]


def port_of(holding: socket.socket) -> int:
    """The port that a socket holds."""
    port: int = holding.getsockname()[1]
    return port


def _holding(port: int) -> socket.socket:
    holding = socket.socket()
    holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holding.bind((HOST, port))
    return holding
