"""Parsing HOST:PORT in bootstrap servers, URLs of logs and settings. Nothing else parses it."""

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
    """Parse `kafka:9092` or `[::1]:9092`; port 0 is one to listen at. Raises ValueError, without the text in it."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()):
        raise ValueError("should be HOST:PORT, for example 127.0.0.1:9092")
    if int(port) > PORT_MAX:
        raise ValueError(f"should be HOST:PORT with a port of {PORT_MAX} at most")
    return BrokerAddress(host.strip("[]"), int(port))


def read_servers(text: str) -> tuple[BrokerAddress, ...]:
    """Parse as Kafka's bootstrap.servers: commas between, white space anywhere. Raises ValueError."""
    return tuple(_read_server(server.strip()) for server in text.split(","))


def _read_server(text: str) -> BrokerAddress:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not int(port):
        raise ValueError(f"{text!r} should be HOST:PORT, for example kafka:9092; several are separated by commas")
    try:
        return read_address(text)
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None
