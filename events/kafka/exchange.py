"""Sending kio's requests through aiokafka's connections, and reading every answer of a broker.

aiokafka keeps a connection (security, correlation ids, ApiVersions), kio has the messages, in versions that aiokafka
lacks. `Exchange` is what stands between the two: it is to aiokafka a request and its header at once.

aiokafka decodes an answer at once, while it reads from the socket, and one that it cannot decode ends the connection as
if the broker had closed it. So every request is sent as an `Undecoded` one: aiokafka hands out the bytes of its answer,
which the caller reads in slices, and an unreadable one is an error of its own.

What belongs here: the interface that aiokafka expects, and the reading. What it must not know: connections, and the
purpose of requests.
"""

import asyncio
import struct
from collections.abc import Awaitable
from io import BytesIO
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from aiokafka.errors import CorrelationIdError
from kio.serial import entity_writer
from kio.serial.errors import SerialError

from muster.events.kafka.asked_entries import OtherEntries, check_entries, check_tuples
from muster.events.kafka.codec.primitives import tagged_fields_size
from muster.events.kafka.codec.reading import reader_in_steps
from muster.events.steps import Allowance, Steps

R = TypeVar("R")

_CORRELATION_ID: Final = struct.Struct(">i")
_ENTRIES_AT_ONCE: Final = 500
"""The entries of an answer that are read before others have their turns: some 5 ms of work at most."""
_UNREADABLE: Final = (SerialError, ValueError, struct.error)


class NotOffered(Exception):
    """The broker does not offer the request that the text names."""


class UnreadableAnswer(Exception):
    """An answer cannot be read, or is about something else; the text names the API and its version."""


class _Encoded(msgspec.Struct, frozen=True):
    """Encoded bytes, with the interface of aiokafka's encoders."""

    content: bytes

    def encode(self) -> bytes:
        return self.content


class Exchange(Generic[R]):
    """A request of kio's and the class of its response, with the interface of aiokafka's requests."""

    def __init__(self, request: Any, response: type[R]) -> None:  # noqa: ANN401 -- any of kio's requests
        self._request = request
        self._response: Any = response
        self.API_KEY: int = request.__api_key__
        self.API_VERSION: int = request.__version__
        self.name = f"{type(request).__name__.removesuffix('Request')} v{self.API_VERSION}"

    def prepare(self, versions: dict[int, tuple[int, int]]) -> "Exchange[R]":
        """Choose the version; called by the connection with the versions that the broker offers."""
        between = versions.get(self.API_KEY)
        if between is None or not between[0] <= self.API_VERSION <= between[1]:
            raise NotOffered(self.name)
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Encoded:
        header = self._request.__header_schema__(
            request_api_key=self.API_KEY,
            request_api_version=self.API_VERSION,
            correlation_id=correlation_id,
            client_id=client_id,
        )
        return _Encoded(_encoded(header))

    def encode(self) -> bytes:
        return _encoded(self._request)

    def read(self, frame: bytes) -> Steps[R]:
        """Read the answer; durations are ints, in ms. Raises the errors in `_UNREADABLE`."""
        at = _CORRELATION_ID.size
        if self._response.__header_schema__.__flexible__:
            at += tagged_fields_size(frame, at)
        allowance = Allowance(len(frame))  # of what a broker says, its bytes are the bound
        answer: R
        answer, _ = yield from reader_in_steps(self._response)(frame, at, allowance)
        check_entries(self._request, answer)
        return answer


class _Header(NamedTuple):
    correlation_id: int | None


class Undecoded:
    """Any request, with the interface of aiokafka's, whose answer is handed out as bytes; see the module."""

    def __init__(self, request: Any) -> None:  # noqa: ANN401 -- one of aiokafka's requests, an Exchange, or what prepares one
        self._request = request
        self._prepared: Any = None

    def prepare(self, versions: dict[int, tuple[int, int]]) -> "Undecoded":
        self._prepared = self._request.prepare(versions)
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> Any:  # noqa: ANN401 -- aiokafka's, or ours
        return self._prepared.build_request_header(correlation_id=correlation_id, client_id=client_id)

    def encode(self) -> bytes:
        encoded: bytes = self._prepared.encode()
        return encoded

    def parse_response_header(self, frame: BytesIO) -> _Header:
        start = frame.read(_CORRELATION_ID.size)
        return _Header(*_CORRELATION_ID.unpack(start)) if len(start) == _CORRELATION_ID.size else _Header(None)

    @property
    def RESPONSE_TYPE(self) -> "Undecoded":  # noqa: N802 -- aiokafka's word
        return self

    def decode(self, frame: BytesIO) -> bytes:
        return frame.getvalue()

    async def answer(self, answering: Awaitable[bytes]) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """Wait for the broker's answer, and read it. Raises Unreadable, and the connection's errors."""
        try:
            return await _in_slices(self._read(await answering))
        except OtherEntries as error:
            raise UnreadableAnswer(f"its answer to {self._name} {error}") from error
        except (*_UNREADABLE, CorrelationIdError) as error:
            raise UnreadableAnswer(f"its answer to {self._name} cannot be read: {error.__cause__ or error}") from error

    def _read(self, frame: bytes) -> Steps[Any]:
        if isinstance(self._prepared, Exchange):
            return (yield from self._prepared.read(frame))
        rest = BytesIO(frame)
        self._prepared.parse_response_header(rest)
        answer = self._prepared.RESPONSE_TYPE.decode(rest)
        check_tuples(self._prepared, answer)
        return answer

    @property
    def _name(self) -> str:
        if isinstance(self._prepared, Exchange):
            return self._prepared.name
        api, _, _ = type(self._prepared).__name__.partition("Request")
        return f"{api} v{self._prepared.API_VERSION}"


async def _in_slices(steps: Steps[R]) -> R:
    entries = 0
    while True:
        try:
            entries += next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        if entries >= _ENTRIES_AT_ONCE:
            await asyncio.sleep(0)
            entries = 0


def _encoded(entity: Any) -> bytes:  # noqa: ANN401 -- any of kio's
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
