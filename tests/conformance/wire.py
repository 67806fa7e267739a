"""Raw requests over a socket, and their answers, in any version; made of kio alone, so it shares nothing with Muster.

What belongs here: bytes. What it must not know: what a group is.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from io import BytesIO
from typing import Any, Final
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from tests.coordinator.kio_client import filled

API_KEYS: Final[Mapping[str, int]] = {
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "DescribeGroups": 15,
    "ListGroups": 16,
    "CreateTopics": 19,
    "DeleteGroups": 42,
    "OffsetDelete": 47,
}
ANSWER_WITHIN_S: Final = 20.0
_LENGTH = struct.Struct(">i")

Fields = dict[str, Any]
"""A message as plain values: error codes as their numbers, durations in ms, nested messages as dicts in lists."""


class Pending:
    """A request that was sent. `answer` is None until it has come."""

    def __init__(self, connection: "Connection", name: str, version: int) -> None:
        self.name, self.version = name, version
        self.answer: Fields | None = None
        self._connection = connection

    async def get(self) -> Fields:
        """The answer, when it is there. Raises `TimeoutError`, and `ConnectionError` when the server hung up."""
        if self.answer is None:
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    await self._connection.read_until(self)
            except TimeoutError:
                raise TimeoutError(f"{self.name} v{self.version} was not answered in {ANSWER_WITHIN_S} s") from None
        assert self.answer is not None
        return self.answer


class Connection:
    """One connection: requests leave at once, answers come back in their order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client_id: str) -> None:
        self._reader, self._writer = reader, writer
        self._client_id = client_id
        self._sent: deque[tuple[int, Pending]] = deque()
        self._correlation_id = 0

    @classmethod
    async def open(cls, bootstrap: str, *, client_id: str = "conformance") -> "Connection":
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)), client_id=client_id)

    def send(self, name: str, version: int, **body: Any) -> Pending:
        """Send a request; `body` may hold fields that this version lacks."""
        self._correlation_id += 1
        frame = _request(API_KEYS[name], version, self._correlation_id, self._client_id, body)
        self._writer.write(_LENGTH.pack(len(frame)) + frame)
        pending = Pending(self, name, version)
        self._sent.append((self._correlation_id, pending))
        return pending

    async def ask(self, name: str, version: int, **body: Any) -> Fields:
        """Send a request and wait for its answer."""
        return await self.send(name, version, **body).get()

    async def read_until(self, pending: Pending) -> None:
        """Read answers until this one is there."""
        while pending.answer is None:
            size = _LENGTH.unpack(await self._exactly(_LENGTH.size))[0]
            frame = await self._exactly(size)
            correlation_id, answered = self._sent.popleft()
            assert _LENGTH.unpack_from(frame)[0] == correlation_id, "answers came out of order"
            answered.answer = _response(API_KEYS[answered.name], answered.version, frame)

    async def close(self) -> None:
        self._writer.close()

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the server closed the connection") from None


def _request(api_key: int, version: int, correlation_id: int, client_id: str, body: Mapping[str, Any]) -> bytes:
    request: Any = load_request_schema(api_key, version)
    header = request.__header_schema__(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    buffer = BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(request)(buffer, filled(request, body))
    return buffer.getvalue()


def _response(api_key: int, version: int, frame: bytes) -> Fields:
    response: Any = load_response_schema(api_key, version)
    _, header_size = entity_reader(response.__header_schema__)(frame, 0)
    entity, size = entity_reader(response)(frame, header_size)
    assert header_size + size == len(frame), f"{len(frame) - header_size - size} bytes follow {response.__name__}"
    plain = _plain(entity)
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, ErrorCode):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    return value


def ms(duration: int) -> timedelta:
    """A duration as kio takes it."""
    return timedelta(milliseconds=duration)
