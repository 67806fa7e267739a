"""HOST:PORT, as settings have it."""

import errno
import os
from typing import Annotated

from pydantic import AfterValidator

PORT_MAX = 65_535


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
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.rpartition(":")[2])

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
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > PORT_MAX:
        raise ValueError("should be HOST:PORT, for example 127.0.0.1:9092")
    return Address(text)


def read_servers(text: str) -> str:
    """Several with commas between them, white space wherever it stands (known bug P13). Raises ValueError."""
    servers = [server.strip() for server in text.split(",")]
    for server in servers:
        try:
            connectable = read_address(server).port > 0
        except ValueError:
            connectable = False
        if not connectable:
            raise ValueError(f"{server!r} should be HOST:PORT, for example kafka:9092; several are separated by commas")
    return ",".join(servers)


HostPort = Annotated[str, AfterValidator(read_address)]
Servers = Annotated[str, AfterValidator(read_servers)]
