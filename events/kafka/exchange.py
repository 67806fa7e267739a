"""A request of kio's through a connection of aiokafka's.

aiokafka keeps a connection (security, correlation ids, ApiVersions), kio has the messages, in versions that aiokafka
lacks. `Exchange` is what stands between the two: it is to aiokafka a request and its header at once.

What belongs here: the face that aiokafka asks for. What it must not know: connections, and what is asked.
"""

from io import BytesIO
from typing import Any, Generic, TypeVar

import msgspec
from kio.serial import entity_reader, entity_writer

R = TypeVar("R")


class NotOffered(Exception):
    """The other end does not know the request, which the text names."""


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
        self._name: str = type(request).__name__.removesuffix("Request")
        self.API_KEY: int = request.__api_key__
        self.API_VERSION: int = request.__version__

    def prepare(self, versions: dict[int, tuple[int, int]]) -> "Exchange[R]":
        """Called by the connection with what the other end offers."""
        first, last = versions.get(self.API_KEY, (0, -1))
        if not first <= self.API_VERSION <= last:
            raise NotOffered(f"{self._name} v{self.API_VERSION}")
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

    def parse_response_header(self, frame: BytesIO) -> Any:  # noqa: ANN401 -- kio's, with a correlation id
        header, size = entity_reader(self._response.__header_schema__)(frame.getbuffer().tobytes(), 0)
        frame.seek(size)
        return header

    @property
    def RESPONSE_TYPE(self) -> "Exchange[R]":  # noqa: N802 -- aiokafka's word
        return self

    def decode(self, frame: BytesIO) -> R:
        response: R
        response, _ = entity_reader(self._response)(frame.read(), 0)
        return response


def _encoded(entity: Any) -> bytes:  # noqa: ANN401 -- any of kio's
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
