"""One version of one API: its request read from bytes, its response written as bytes.

What belongs here: which kio classes a version has, and the headers. What an API means is not known here. Everything
that can be worked out once per version is, when the version is first spoken.
"""

from dataclasses import Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from io import BytesIO
from typing import Any, cast, get_args

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32Timedelta
from kio.static.protocol import Entity

from coordinator.wire.api import Body, Fault, Fields, ProtocolError
from coordinator.wire.reading import request_reader

_NO_THROTTLE = i32Timedelta.parse(timedelta())
_NO_TAGGED_FIELDS = b"\x00"


class Message:
    """A version of an API. Get it from `message`, which makes each of them once."""

    def __init__(self, api_key: int, api_version: int) -> None:
        request: Any = load_request_schema(api_key, api_version)
        response: Any = load_response_schema(api_key, api_version)
        self._name = f"{request.__name__} v{api_version}"
        self._read_header = entity_reader(request.__header_schema__)
        self._read_body = request_reader(request)
        self._shape = Shape(response)
        self._write_body = entity_writer(response)
        self._header_rest = _NO_TAGGED_FIELDS if response.__header_schema__.__flexible__ else b""

    def read(self, frame: bytes) -> tuple[str, Body]:
        """The client id ("" for null, as in Kafka) and the body of a frame without its length.

        Bytes behind the body are left alone, as Kafka 4.3.1 does. Raises ProtocolError.
        """
        try:
            header, size = self._read_header(frame, 0)
            body, _ = self._read_body(frame, size)
        except (SerialError, ValueError) as error:
            raise ProtocolError(Fault.MALFORMED_REQUEST, f"{self._name} cannot be read: {error}") from error
        return header.client_id or "", body

    def write(self, response: Fields) -> bytes:
        """All that follows the correlation id: the rest of the header, and the body.

        Raises ProtocolError when a value does not fit into this version, as a string of 40,000 bytes into one that
        counts with 16 bits.
        """
        buffer = BytesIO()
        buffer.write(self._header_rest)
        try:
            self._write_body(buffer, self._shape.filled(response))
        except SerialError as error:
            raise ProtocolError(Fault.UNWRITABLE_RESPONSE, f"{self._name} cannot be answered: {error}") from error
        return buffer.getvalue()


class Shape:
    """A kio class to be filled from a mapping that may hold more than this version has."""

    def __init__(self, entity: type[Entity]) -> None:
        self._entity: Any = entity
        self._parts = tuple((field.name, _nested(field)) for field in fields(entity))
        self._throttled = any(name == "throttle_time" for name, _ in self._parts)

    def filled(self, values: Fields) -> Entity:
        """An instance; a field that is missing from `values` has its default. Throttling is never asked for."""
        arguments: dict[str, object] = {"throttle_time": _NO_THROTTLE} if self._throttled else {}
        for name, nested in self._parts:
            if name in values:
                value = values[name]
                arguments[name] = value if nested is None else tuple(nested.filled(item) for item in value)
        entity: Entity = self._entity(**arguments)
        return entity


@cache
def message(api_key: int, api_version: int) -> Message:
    """The message of this version; made when it is first asked for. Raises kio's KioIndexError for unknown ones."""
    return Message(api_key, api_version)


def _nested(field: Field[Any]) -> Shape | None:
    for candidate in get_args(field.type):
        if is_dataclass(candidate) and isinstance(candidate, type):
            return Shape(cast("type[Entity]", candidate))
    return None
