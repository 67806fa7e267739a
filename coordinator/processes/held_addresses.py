"""Waits at startup until the addresses of the processes are free, and holds them while the supervisor runs.

The frontends listen with SO_REUSEPORT, so each would silently share its address with any other process that uses it,
even with the frontends of a second supervisor, which have another secret and another owner. So the addresses must be
free at startup. Then those of the frontends are bound here, on a socket that does not listen: it takes no connections
from the frontends, clients are refused until the first frontend serves, and a second supervisor finds the address taken
even before that.
"""

import asyncio
import errno
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import structlog

from muster.coordinator.assembly import CannotServe
from muster.coordinator.net.listening import Address as SocketAddress
from muster.coordinator.net.listening import addresses_of
from muster.coordinator.settings.addresses import Address, why_not_bound
from muster.coordinator.settings.settings import Settings

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

FREE_WITHIN_S: Final = 20.0
"""The maximum time that processes take to stop after their supervisor was killed."""
CHECK_INTERVAL_S: Final = 0.2
TAKEN: Final = "an address is in use, waiting: processes of a supervisor that was killed may be stopping"
CAN_HOLD: Final = sys.platform == "linux"
"""On other systems a bound socket that does not listen may get connections, which are then refused."""

_Found = Mapping[str, tuple[Address, Sequence[SocketAddress]]]
"""The addresses to bind, by the setting that gave each."""


async def hold_addresses(settings: Settings, stopping: asyncio.Event, stack: ExitStack) -> bool:
    """Wait until no process listens on the addresses, and hold those of the frontends until the stack is left.

    Returns False if it is stopped before that. Raises CannotServe.
    """
    found = await _resolve(settings)
    until_s, is_logged = time.monotonic() + FREE_WITHIN_S, False
    while (taken := _first_unbindable(found)) is not None:
        setting, at, error = taken
        if error.errno != errno.EADDRINUSE or time.monotonic() >= until_s:
            raise _cannot(settings, setting, at, error) from error
        if not is_logged:
            log.warning(TAKEN, at=str(at))
            is_logged = True
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_INTERVAL_S):
                await stopping.wait()
                return False
    at, addresses = found["listen"]
    for family, host in addresses if CAN_HOLD else ():
        try:
            stack.enter_context(held(family, host, at.port))
        except OSError as error:  # another process was faster
            raise _cannot(settings, "listen", at, error) from error
    return True


@contextmanager
def held(family: socket.AddressFamily, host: str, port: int) -> Iterator[None]:
    """Hold an address for processes that share it (SO_REUSEPORT). Raises OSError."""
    with socket.socket(family, socket.SOCK_STREAM) as holds:
        holds.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Set only while binding, so that recently closed connections do not prevent that.
        holds.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            holds.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        holds.bind((host, port))
        holds.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        yield


async def _resolve(settings: Settings) -> _Found:
    found = {}
    for setting, address in (("listen", settings.listen), ("peer_listen", settings.peer_listen)):
        if address is not None:
            at = Address(address)
            try:
                found[setting] = at, await addresses_of(at.host)
            except OSError as error:
                raise _cannot(settings, setting, at, error) from error
    return found


def _first_unbindable(found: _Found) -> tuple[str, Address, OSError] | None:
    """Return the first address that cannot be bound, its setting, and the error."""
    for setting, (at, addresses) in found.items():
        for family, host in addresses:
            try:
                socket.create_server((host, at.port), family=family).close()
            except OSError as error:
                return setting, at, error
    return None


def _cannot(settings: Settings, setting: str, at: Address, error: OSError) -> CannotServe:
    return CannotServe(f"{settings.name_of(setting)} {at}: {why_not_bound(error)}")
