"""HOST:PORT, as settings have it."""

import errno
import os
from typing import Annotated

from pydantic import AfterValidator

from muster.events.kafka import addresses


def why_not_bound(error: OSError, other_port: str = "choose another port, 0 takes a free one") -> str:
    """Why there is no listening at an address, and `other_port` as the way out where the port is to blame."""
    reason = error.strerror or str(error)
    if error.errno is not None and error.errno in errno.errorcode:
        reason = os.strerror(error.errno)  # asyncio puts other words around them
    return f"{reason}; {other_port}" if error.errno == errno.EADDRINUSE else reason


class Address(str):
    """HOST:PORT, checked."""

    __slots__ = ()

    @property
    def host(self) -> str:
        return addresses.read_address(self).host

    @property
    def port(self) -> int:
        return addresses.read_address(self).port

    @property
    def is_wildcard(self) -> bool:
        """Every address of the machine: one can listen there, but nobody can be told to connect to it."""
        return self.host in {"0.0.0.0", "::"}  # noqa: S104 -- looked for, not bound

    def shares_port_with(self, other: "Address") -> bool:
        """Whether only one of the two can be bound, as far as the names of their hosts tell."""
        same_host = self.host == other.host or self.is_wildcard or other.is_wildcard
        return same_host and self.port == other.port != 0


def read_address(text: str) -> Address:
    """Raises ValueError."""
    addresses.read_address(text)
    return Address(text)


def read_servers(text: str) -> str:
    """Several with commas between them, white space wherever it stands (known bug P13). Raises ValueError."""
    return ",".join(map(str, addresses.read_servers(text)))


HostPort = Annotated[str, AfterValidator(read_address)]
Servers = Annotated[str, AfterValidator(read_servers)]
