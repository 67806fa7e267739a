"""A request of kio's through a connection of aiokafka's, and every answer of a broker read here.

aiokafka keeps a connection (security, correlation ids, ApiVersions), kio has the messages, in versions that aiokafka
lacks. `Exchange` is what stands between the two: it is to aiokafka a request and its header at once.

aiokafka reads an answer while it reads from the socket, at once, and whatever it cannot read ends the connection as if
the broker had hung up. So every request is sent as an `Undecoded` one: aiokafka hands out the bytes of its answer,
which are read in slices by whoever asked, and what cannot be read is told as that.

What belongs here: the face that aiokafka asks for, and the reading. What it must not know: connections, and what is
asked.
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

from muster.events.kafka.codec.primitives import tagged_fields_size
from muster.events.kafka.codec.reading import reader_in_steps
from muster.events.steps import Allowance, Steps

R = TypeVar("R")

_CORRELATION_ID: Final = struct.Struct(">i")
_ENTRIES_AT_ONCE: Final = 500
"""Of an answer, that are read before others have their turns: some 5 ms of work at most."""
_UNREADABLE: Final = (SerialError, ValueError, struct.error)


class NotOffered(Exception):
    """The other end does not know the request, which the text names."""


class Unreadable(Exception):
    """An answer has come that makes no sense; the text names the API and its version."""


class _Encoded(msgspec.Struct, frozen=True):
    """Bytes that aiokafka asks for as if it had to make them."""

    content: bytes

    def encode(self) -> bytes:
        return self.content


class Exchange(Generic[R]):
    """A request of kio's, and the class of its response, with the face of a request of aiokafka's."""

    def __init__(self, request: Any, response: type[R]) -> None:  # noqa: ANN401 -- any of kio's requests
        self._request = request
        self._response: Any = response
        self.API_KEY: int = request.__api_key__
        self.API_VERSION: int = request.__version__
        self.name = f"{type(request).__name__.removesuffix('Request')} v{self.API_VERSION}"

    def prepare(self, versions: dict[int, tuple[int, int]]) -> "Exchange[R]":
        """Called by the connection with what the other end offers."""
        first, last = versions.get(self.API_KEY, (0, -1))
        if not first <= self.API_VERSION <= last:
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
        """The answer; durations are ints, in ms. Raises what is in `_UNREADABLE`."""
        at = _CORRELATION_ID.size
        if self._response.__header_schema__.__flexible__:
            at += tagged_fields_size(frame, at)
        allowance = Allowance(len(frame))  # of what a broker says, its bytes are the bound
        answer: R
        answer, _ = yield from reader_in_steps(self._response)(frame, at, allowance)
        return answer


class _Header(NamedTuple):
    correlation_id: int | None


class Undecoded:
    """Any request, with the face of aiokafka's, whose answer is handed out as the bytes it has; see the module."""

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
        """What the broker has answered. Raises Unreadable, and what `answering` raises of the connection."""
        try:
            return await _in_slices(self._read(await answering))
        except (*_UNREADABLE, CorrelationIdError) as error:
            raise Unreadable(f"its answer to {self._name} cannot be read: {error.__cause__ or error}") from error

    def _read(self, frame: bytes) -> Steps[Any]:
        if isinstance(self._prepared, Exchange):
            return (yield from self._prepared.read(frame))
        rest = BytesIO(frame)
        self._prepared.parse_response_header(rest)
        return self._prepared.RESPONSE_TYPE.decode(rest)

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
