"""Raw requests over a socket, and their responses, in any version; uses only kio, so it shares no code with Muster."""

import asyncio
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from io import BytesIO
from typing import Any, Final, cast
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from tests.coordinator.kio_client import filled

API_KEYS: Final[Mapping[str, int]] = {
    "Produce": 0,
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
    "SaslHandshake": 17,
    "ApiVersions": 18,
    "CreateTopics": 19,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
    "DescribeConfigs": 32,
    "SaslAuthenticate": 36,
    "DeleteGroups": 42,
    "IncrementalAlterConfigs": 44,
    "OffsetDelete": 47,
    "ConsumerGroupHeartbeat": 68,
}
ANSWER_WITHIN_S: Final = 20.0
CONDITION_WITHIN_S: Final = 20.0
CHECK_INTERVAL_S: Final = 0.005
LOOK_AT_LAST_EVERY_S: Final = 0.05
_LENGTH = struct.Struct(">i")

Fields = dict[str, Any]
"""A message as plain values: error codes as numbers, durations in ms, nested messages as dicts in lists."""


class Pending:
    """A request that was sent."""

    def __init__(self, name: str, version: int) -> None:
        self.name, self.version = name, version
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    @property
    def is_answered(self) -> bool:
        return self._answer.done()

    @property
    def is_good(self) -> bool:
        """True if a response has arrived, rather than the end of the connection."""
        return self._answer.done() and self._answer.exception() is None

    async def get(self) -> Fields:
        """The response, when it is there. Raises `TimeoutError`, and `ConnectionResetError` if the server
        disconnected.
        """
        return decoded(self.name, self.version, await self.frame())

    async def frame(self) -> bytes:
        """The bytes of the response, starting with the correlation id. Raises like `get`."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await asyncio.shield(self._answer)
        except TimeoutError:
            raise TimeoutError(f"{self.name} v{self.version} was not answered in {ANSWER_WITHIN_S} s") from None

    def arrived(self, frame: bytes) -> None:
        """The response's frame has arrived."""
        self._answer.set_result(frame)

    def lost(self) -> None:
        """The connection is lost; a response that is not awaited raises nothing."""
        self._answer.set_exception(ConnectionResetError(f"the server hung up on {self.name} v{self.version}"))
        self._answer.exception()


class Connection(asyncio.Protocol):
    """One connection: requests are sent at once, responses come back in order."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._sent: deque[tuple[int, Pending]] = deque()
        self._correlation_id = 0

    @classmethod
    async def open(cls, bootstrap: str, *, client_id: str = "conformance") -> "Connection":
        """A connection to `host:port`."""
        host, _, port = bootstrap.rpartition(":")
        _, connection = await asyncio.get_running_loop().create_connection(lambda: cls(client_id), host, int(port))
        return connection

    @property
    def is_lost(self) -> bool:
        """Return whether the other side has disconnected: requests sent now get no response."""
        return self._transport is None or self._transport.is_closing()

    def send(self, name: str, version: int, **body: Any) -> Pending:
        """Send a request; `body` may have fields that this version lacks."""
        return self.send_frame(name, version, self.frame(name, version, **body))

    def frame(self, name: str, version: int, **body: Any) -> bytes:
        """The bytes of a request, which can be sent repeatedly."""
        return _request(API_KEYS[name], version, 0, self._client_id, body)

    def send_frame(self, name: str, version: int, frame: bytes) -> Pending:
        """Send the result of `frame`."""
        assert self._transport is not None
        self._correlation_id += 1
        correlation_id = _LENGTH.pack(self._correlation_id)
        self._transport.write(_LENGTH.pack(len(frame)) + frame[:4] + correlation_id + frame[8:])
        pending = Pending(name, version)
        self._sent.append((self._correlation_id, pending))
        return pending

    async def ask(self, name: str, version: int, **body: Any) -> Fields:
        """Send a request and wait for its response."""
        return await self.send(name, version, **body).get()

    def close(self) -> None:
        """Close it."""
        assert self._transport is not None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            frame = bytes(self._received[_LENGTH.size : end])
            del self._received[:end]
            correlation_id, pending = self._sent.popleft()
            assert _LENGTH.unpack_from(frame)[0] == correlation_id, "answers came out of order"
            pending.arrived(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        for _, pending in self._sent:
            pending.lost()
        self._sent.clear()


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


def decoded(name: str, version: int, frame: bytes) -> Fields:
    """A response from its bytes, starting with the correlation id, to the last byte."""
    response: Any = load_response_schema(API_KEYS[name], version)
    _, header_size = entity_reader(response.__header_schema__)(frame, 0)
    entity, size = entity_reader(response)(frame, header_size)
    assert header_size + size == len(frame), f"{len(frame) - header_size - size} bytes follow {response.__name__}"
    answer = plain(entity)
    assert isinstance(answer, dict)
    return answer


def plain(value: Any) -> Any:
    """A kio message as plain values; see `Fields`."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, ErrorCode):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    return value


def ms(duration: int) -> timedelta:
    """A duration as kio expects it."""
    return timedelta(milliseconds=duration)
