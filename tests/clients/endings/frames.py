"""Requests and responses, as far as the experiment needs them.

It splits a stream into frames, and decodes the few requests that identify a member. It only uses kio, so it shares no
code with Muster.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from kio.index import load_request_schema
from kio.serial import entity_reader

from tests.conformance.wire import API_KEYS, Fields, decoded, plain

_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hhi")
_SIZE: Final = struct.Struct(">h")
_NAMES: Final = {key: name for name, key in API_KEYS.items()} | {1: "Fetch", 2: "ListOffsets"}
READ: Final = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit"})
"""The requests that are decoded beyond their header."""


class SeenRequest(msgspec.Struct, kw_only=True):
    """A request, and its response once there is one. Times are in ms of the recorder's clock."""

    at_ms: float
    api: str
    version: int
    client_id: str
    body: Fields
    """Empty if it is not decoded."""
    answered_ms: float | None = None
    answer: Fields = {}

    @property
    def error(self) -> int | None:
        """The response's error code; None before there is one, or if it is not decoded."""
        return self.answer.get("error_code")


class Frames:
    """Splits a stream into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def cut(self, data: bytes) -> Iterator[bytes]:
        """The complete frames, without their lengths."""
        self._rest += data
        while len(self._rest) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                return
            yield bytes(self._rest[_LENGTH.size : end])
            del self._rest[:end]


def correlation_of(frame: bytes) -> int:
    """The correlation id of a request."""
    correlation: int = _HEAD.unpack_from(frame)[2]
    return correlation


def read_request(frame: bytes, at_ms: float) -> SeenRequest:
    key, version, _ = _HEAD.unpack_from(frame)
    api = _NAMES.get(key, f"api {key}")
    body: Any = {}
    if api in READ:
        schema: Any = load_request_schema(key, version)
        _, size = entity_reader(schema.__header_schema__)(frame, 0)
        entity, _ = entity_reader(schema)(frame, size)
        body = plain(entity)
    return SeenRequest(at_ms=at_ms, api=api, version=version, client_id=_client_id_of(frame), body=body)


def _client_id_of(frame: bytes) -> str:
    """The client id, which is at the same position in every version of the header, even in ones newer than kio's."""
    (size,) = _SIZE.unpack_from(frame, _HEAD.size)
    begin = _HEAD.size + _SIZE.size
    return frame[begin : begin + max(size, 0)].decode()


def read_answer(request: SeenRequest, frame: bytes, at_ms: float) -> None:
    """Store the response with its request."""
    request.answered_ms = at_ms
    if request.api in READ:
        request.answer = decoded(request.api, request.version, frame)
