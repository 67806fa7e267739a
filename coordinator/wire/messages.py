"""One version of one API: its request read from bytes, its response written as bytes.

What belongs here: which kio classes a version has, and the headers. What an API means is not known here. Everything
that can be worked out once per version is, when the version is first spoken.
"""

from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import readers
from kio.serial.errors import SerialError

from coordinator.wire.api import Body, Fault, Fields, ProtocolError
from coordinator.wire.reading import lenient_reader, tagged_fields_size
from coordinator.wire.writing import Unwritable, response_writer

HEADER_START_BYTES = 8
"""The API key, the version and the correlation id come first, in every version of the header."""

_NO_TAGGED_FIELDS = b"\x00"


class Message:
    """A version of an API. Get it from `message`, which makes each of them once."""

    def __init__(self, api_key: int, api_version: int) -> None:
        request: Any = load_request_schema(api_key, api_version)
        response: Any = load_response_schema(api_key, api_version)
        self._name = f"{request.__name__} v{api_version}"
        self._has_flexible_header = bool(request.__header_schema__.__flexible__)
        self._read_body = lenient_reader(request)
        self._write_body = response_writer(response)
        self._header_rest = _NO_TAGGED_FIELDS if response.__header_schema__.__flexible__ else b""

    def read(self, frame: bytes) -> tuple[str, Body]:
        """The client id ("" for null, as in Kafka) and the body of a frame without its length.

        Bytes behind the body are left alone, as Kafka 4.3.1 does. Raises ProtocolError.
        """
        try:
            # The client id is written in the old form in every version of the header.
            client_id, size = readers.read_nullable_legacy_string(frame, HEADER_START_BYTES)
            at = HEADER_START_BYTES + size
            if self._has_flexible_header:
                at += tagged_fields_size(frame, at)
            body, _ = self._read_body(frame, at)
        except (SerialError, ValueError) as error:
            raise ProtocolError(Fault.MALFORMED_REQUEST, f"{self._name} cannot be read: {error}") from error
        return client_id or "", body

    def write(self, response: Fields) -> bytes:
        """All that follows the correlation id: the rest of the header, and the body.

        Raises ProtocolError when a value does not fit into this version, as a string of 40,000 bytes into one that
        counts with 16 bits.
        """
        out = bytearray(self._header_rest)
        try:
            self._write_body(out, response)
        except Unwritable as error:
            raise ProtocolError(Fault.UNWRITABLE_RESPONSE, f"{self._name} cannot be answered: {error}") from error
        return bytes(out)


@cache
def message(api_key: int, api_version: int) -> Message:
    """The message of this version; made when it is first asked for. Raises kio's KioIndexError for unknown ones."""
    return Message(api_key, api_version)
