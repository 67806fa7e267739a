"""Parses HOST:PORT in bootstrap servers, URLs of logs and settings, and remembers the addresses of a cluster's brokers.

All addresses are parsed here. They are remembered by cluster and security protocol, in case all brokers of the last
Metadata response are down, since Metadata names only live brokers. A link that knows just one broker would wait for
that one alone, even if the others have come back when it goes down. So all links of a process note here what they
learn, and a link to a cluster tries the others' addresses last. A link that has not found its cluster yet uses the one
that has a broker at one of its bootstrap addresses.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

PORT_MAX: Final = 65_535


class BrokerAddress(msgspec.Struct, frozen=True):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str) -> BrokerAddress:
    """Parse `kafka:9092` or `[::1]:9092`; port 0 is for listening. Raises ValueError, whose message omits the text."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()):
        raise ValueError("should be HOST:PORT, for example 127.0.0.1:9092")
    if int(port) > PORT_MAX:
        raise ValueError(f"should be HOST:PORT with a port of {PORT_MAX} at most")
    return BrokerAddress(host.strip("[]"), int(port))


def read_servers(text: str) -> tuple[BrokerAddress, ...]:
    """Parse like Kafka's bootstrap.servers: separated by commas, with optional white space. Raises ValueError."""
    return tuple(_read_server(server.strip()) for server in text.split(","))


def _read_server(text: str) -> BrokerAddress:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not int(port):
        raise ValueError(f"{text!r} should be HOST:PORT, for example kafka:9092; several are separated by commas")
    try:
        return read_address(text)
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None


ADDRESSES_MAX: Final = 16
"""How many addresses of a cluster are kept, the latest: brokers may keep returning under new ones, and each may
hang.
"""

_Listeners = tuple[str, str]
"""The id of a cluster, and the security protocol: a listener with another protocol would not understand our bytes."""


class KnownBrokers:
    """Addresses by cluster id and security protocol, shared by all links of the process."""

    def __init__(self) -> None:
        self._known: defaultdict[_Listeners, dict[BrokerAddress, None]] = defaultdict(dict)

    def note(self, cluster_id: str, protocol: str, named: Iterable[BrokerAddress]) -> None:
        """Note the addresses of a Metadata response."""
        known = self._known[cluster_id, protocol]
        for address in named:
            known.pop(address, None)
            known[address] = None
        for oldest in list(known)[:-ADDRESSES_MAX]:
            del known[oldest]

    def of(
        self, cluster_id: str | None, protocol: str, bootstrap: Collection[BrokerAddress] = ()
    ) -> Sequence[BrokerAddress]:
        """Return the addresses of a cluster, the latest first. `bootstrap` identifies it while its id is unknown."""
        if cluster_id is not None:
            return list(reversed(self._known.get((cluster_id, protocol), {})))
        found = [
            known
            for (_, each), known in self._known.items()
            if each == protocol and not known.keys().isdisjoint(bootstrap)
        ]
        return list(reversed(found[0])) if len(found) == 1 else ()
