"""Requests with as many entries as possible, and a client to send them, for tests of both modes.

The client waits for the response in a separate thread: the processor time of the loop's thread is measured
(longest_callback.py).
"""

import socket
from collections.abc import Iterable
from typing import Any

import pytest
from kio.index import load_request_schema

from muster.coordinator.wire.api import Offered
from muster.coordinator.wire.bounds import bound_of
from tests.coordinator.kio_client import with_length
from tests.coordinator.wire.smallest import Path, arrays_of, entry_bytes, request_of

FOUR_MB = 4_194_304
HELD_S_MAX = 0.15
"""Limit of the longest callback, in processor time: far above a slice, for a shared core and the garbage collector."""


def every_array(apis: Iterable[Offered]) -> list[Any]:
    """Key, version and path of every array, in each API's latest version."""
    return [
        pytest.param(api.key, api.versions[-1], path, id=f"{api.name}-v{api.versions[-1]}-{'.'.join(path)}")
        for api in apis
        for path in _arrays(api)
    ]


def smallest_arrays(apis: Iterable[Offered]) -> list[Any]:
    """The array of each API that has the most entries for its bytes."""
    return [
        pytest.param(api.key, api.versions[-1], _smallest(api), id=f"{api.name}-v{api.versions[-1]}")
        for api in apis
        if _arrays(api)
    ]


def four_megabytes(api_key: int, version: int, path: Path) -> bytes:
    """A request with one entry repeated."""
    return request_of(api_key, version, path, FOUR_MB // entry_bytes(api_key, version, path))


def as_many_as_allowed(api_key: int, version: int, path: Path) -> bytes:
    """Entries that are all different."""
    bound = bound_of(api_key)
    entries = min(bound.entries_max - len(path) + 1, bound.bytes_max // (entry_bytes(api_key, version, path) + 8))
    return request_of(api_key, version, path, entries, are_distinct=True)


def _arrays(api: Offered) -> list[Path]:
    return list(arrays_of(load_request_schema(api.key, api.versions[-1])))


def _smallest(api: Offered) -> Path:
    return min(_arrays(api), key=lambda path: entry_bytes(api.key, api.versions[-1], path))


def exchange(port: int, content: bytes) -> bytes:
    """Send bytes in a separate thread; return one response, or b"" if the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(with_length(content))
            got = exactly(connection, 4)
            return exactly(connection, int.from_bytes(got, "big")) if got else b""
        except ConnectionError:
            return b""


def exactly(connection: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = connection.recv(min(size - len(got), 1_048_576))
        if not piece:
            return b""
        got += piece
    return bytes(got)
