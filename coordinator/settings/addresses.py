"""Parses and checks HOST:PORT in settings."""

import errno
import os
import socket
from typing import Annotated

from pydantic import AfterValidator

from muster.events.kafka import addresses


def why_not_bound(error: OSError, other_port: str = "choose another port, 0 takes a free one") -> str:
    """Explain why an address cannot be bound; `other_port` is the advice if the port is in use."""
    reason = error.strerror or str(error)
    if error.errno is not None and error.errno in errno.errorcode:
        reason = os.strerror(error.errno)  # asyncio's own text is longer
    if error.errno == errno.EADDRINUSE:
        return f"{reason}; {other_port}"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"{reason}; name an address of this machine; 0.0.0.0 is all of IPv4, [::] all of both families"
    return reason


class Address(str):
    """A checked HOST:PORT."""

    __slots__ = ()

    @property
    def host(self) -> str:
        return addresses.read_address(self).host

    @property
    def port(self) -> int:
        return addresses.read_address(self).port

    @property
    def is_wildcard(self) -> bool:
        """True if it stands for every address of the machine, so that it can be bound but not advertised."""
        return self.host in {"0.0.0.0", "::"}  # noqa: S104 -- looked for, not bound

    def shares_port_with(self, other: "Address") -> bool:
        """Return whether only one of the two can be bound; compares host names without resolving them."""
        same_host = self.host == other.host or self.is_wildcard or other.is_wildcard
        return same_host and self.port == other.port != 0


def read_address(text: str) -> Address:
    """Parse HOST:PORT. Raises ValueError."""
    addresses.read_address(text)
    return Address(text)


def read_servers(text: str) -> str:
    """Normalize comma-separated HOST:PORTs, with white space anywhere (known bug P13). Raises ValueError."""
    return ",".join(map(str, addresses.read_servers(text)))


HostPort = Annotated[str, AfterValidator(read_address)]
Servers = Annotated[str, AfterValidator(read_servers)]
