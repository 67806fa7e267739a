"""Sends kio's requests over aiokafka's connections, and reads the responses.

aiokafka handles the connection (security, correlation ids, ApiVersions); kio defines the messages. `Exchange` connects
the two: to aiokafka it is both a request and its header.

aiokafka decodes a response while it reads from the socket, and one that it cannot decode closes the connection, as if
the broker had. So every request is sent as `Undecoded`: aiokafka returns the bytes of the response, the caller reads
them in slices, and an unreadable response raises an error of its own.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from aiokafka.errors import CorrelationIdError
from kio.serial import entity_writer
from kio.serial.errors import SerialError

from muster.events.kafka.asked_entries import OtherEntries, check_entries
from muster.events.kafka.codec.primitives import tagged_fields_size
from muster.events.kafka.codec.reading import reader_in_steps
from muster.events.steps import Allowance, Steps

R = TypeVar("R")

_CORRELATION_ID: Final = struct.Struct(">i")
_ENTRIES_AT_ONCE: Final = 500
"""How many entries of a response are read before other tasks run: about 5 ms of work at most."""
_UNREADABLE: Final = (SerialError, ValueError, struct.error)


class NotOffered(Exception):
    """The broker does not offer the request that the text names."""


class UnreadableAnswer(Exception):
    """A response cannot be read, or is about something else; the text names the API and its version."""


class _Encoded(msgspec.Struct, frozen=True):
    """Encoded bytes, with the interface of aiokafka's encoders."""

    content: bytes

    def encode(self) -> bytes:
        return self.content


class Exchange(Generic[R]):
    """A request of kio's and the class of its response, with the interface of aiokafka's requests."""

    def __init__(self, request: Any, response: type[R]) -> None:  # noqa: ANN401 -- any of kio's requests
        self.request = request
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
        header = self.request.__header_schema__(
            request_api_key=self.API_KEY,
            request_api_version=self.API_VERSION,
            correlation_id=correlation_id,
            client_id=client_id,
        )
        return _Encoded(_encoded(header))

    def encode(self) -> bytes:
        return _encoded(self.request)

    def read(self, frame: bytes) -> Steps[R]:
        """Read the response; durations are ints, in ms. Raises the errors in `_UNREADABLE`."""
        at = _CORRELATION_ID.size
        if self._response.__header_schema__.__flexible__:
            at += tagged_fields_size(frame, at)
        allowance = Allowance(len(frame))  # a broker's response is bounded only by its bytes
        answer: R
        answer, _ = yield from reader_in_steps(self._response)(frame, at, allowance)
        check_entries(self.request, answer)
        return answer


class SupportedApi(NamedTuple):
    """An API of Kafka's: its name, its key, and kio's modules for the versions that Muster uses, newest first."""

    name: str
    key: int
    versions: Mapping[int, Any]


class Question:
    """A request in the newest version that the broker offers; `build` makes it from one of the API's modules."""

    def __init__(self, api: SupportedApi, build: Callable[[Any], Exchange[Any]]) -> None:
        self._api = api
        self._build = build

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Exchange[Any]:
        """Choose the version; called by the connection with the versions that the broker offers."""
        first, last = versions.get(self._api.key, (0, -1))
        for number, module in self._api.versions.items():
            if first <= number <= last:
                return self._build(module)
        raise NotOffered(f"{self._api.name} v{min(self._api.versions)}")


class _Header(NamedTuple):
    correlation_id: int | None


class Preparable(Protocol):
    """A request whose version is chosen by the connection: an Exchange, or a Question."""

    def prepare(self, versions: dict[int, tuple[int, int]], /) -> Exchange[Any]: ...


class Undecoded:
    """A request with the interface of aiokafka's, whose response is returned as bytes; see the module."""

    def __init__(self, request: Preparable) -> None:
        self._request = request
        self._prepared: Exchange[Any]

    def prepare(self, versions: dict[int, tuple[int, int]]) -> "Undecoded":
        self._prepared = self._request.prepare(versions)
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Encoded:
        return self._prepared.build_request_header(correlation_id=correlation_id, client_id=client_id)

    def encode(self) -> bytes:
        return self._prepared.encode()

    def parse_response_header(self, frame: BytesIO) -> _Header:
        start = frame.read(_CORRELATION_ID.size)
        return _Header(*_CORRELATION_ID.unpack(start)) if len(start) == _CORRELATION_ID.size else _Header(None)

    @property
    def RESPONSE_TYPE(self) -> "Undecoded":  # noqa: N802 -- aiokafka's word
        return self

    def decode(self, frame: BytesIO) -> bytes:
        return frame.getvalue()

    async def answer(self, answering: Awaitable[bytes]) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """Wait for the broker's response, and read it. Raises UnreadableAnswer, and the connection's errors."""
        try:
            return await _in_slices(self._prepared.read(await answering))
        except OtherEntries as error:
            raise UnreadableAnswer(f"its answer to {self._prepared.name} {error}") from error
        except (*_UNREADABLE, CorrelationIdError) as error:
            reason = error.__cause__ or error
            raise UnreadableAnswer(f"its answer to {self._prepared.name} cannot be read: {reason}") from error


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
