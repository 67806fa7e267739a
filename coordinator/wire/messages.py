"""One version of one API: reading its request from bytes, writing its response as bytes.

It combines the kio classes of the version with the headers, and does not know the meaning of the API. Everything that
depends only on the version is computed when the version is first used.
"""

from functools import cache
from struct import Struct
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.serial import readers
from kio.serial.errors import SerialError

from muster.coordinator.load.answer_memory import AnswerMemory
from muster.coordinator.wire.api import Body, Fault, Fields, ProtocolError
from muster.coordinator.wire.bounds import ANSWER_BYTES_MAX, bound_of
from muster.events.kafka.codec.primitives import NO_TAGGED_FIELDS, tagged_fields_size
from muster.events.kafka.codec.reading import reader_in_steps
from muster.events.kafka.codec.writing import AnswerTooLarge, Output, Unwritable, writer_in_steps
from muster.events.steps import Allowance, Steps, TooManyEntries, finished

KEY_AND_VERSION: Final = Struct(">hh")
"""The API key and the version, with which every request begins."""

HEADER_START_BYTES = 8
"""The API key, the version and the correlation id come first, in every version of the header."""


class MessageVersion:
    """A version of an API. Get it from `message`, which creates each one once."""

    def __init__(self, api_key: int, api_version: int) -> None:
        request: Any = load_request_schema(api_key, api_version)
        response: Any = load_response_schema(api_key, api_version)
        self.name = f"{request.__name__} v{api_version}"
        self._has_flexible_header = bool(request.__header_schema__.__flexible__)
        self._bound = bound_of(api_key)
        self._read_body = reader_in_steps(request)
        self._write_body = writer_in_steps(response)
        self._header_rest = NO_TAGGED_FIELDS if response.__header_schema__.__flexible__ else b""

    def read(self, frame: bytes) -> Steps[tuple[str, Body]]:
        """Read the client id ("" for null, as in Kafka) and the body of a frame without its length.

        Bytes after the body are ignored, as in Kafka 4.3.1. Raises ProtocolError, also for a frame that is longer or
        announces more entries than this API allows: that is detected before any of them is read.
        """
        if len(frame) > self._bound.bytes_max:
            text = f"{self.name} of {len(frame)} bytes; the limit is {self._bound.bytes_max}"
            raise ProtocolError(Fault.OVERSIZED_FRAME, text)
        try:
            # The client id is written in the old form in every version of the header.
            client_id, size = readers.read_nullable_legacy_string(frame, HEADER_START_BYTES)
            at = HEADER_START_BYTES + size
            if self._has_flexible_header:
                at += tagged_fields_size(frame, at)
            body, _ = yield from self._read_body(frame, at, Allowance(self._bound.entries_max))
        except TooManyEntries as error:
            raise ProtocolError(Fault.TOO_MANY_ENTRIES, f"{self.name} is refused: {error}") from error
        except (SerialError, ValueError) as error:
            raise ProtocolError(Fault.MALFORMED_REQUEST, f"{self.name} cannot be read: {error}") from error
        return client_id or "", body

    def write(self, response: Fields) -> bytes:
        """Write a short response, starting after the correlation id. Raises ProtocolError."""
        return b"".join(finished(self.write_in_steps(response)))

    def write_in_steps(self, response: Fields, answer_memory: AnswerMemory | None = None) -> Steps[list[bytes]]:
        """Write a response in chunks, starting after the correlation id; wait until `answer_memory` has memory for it.

        Raises ProtocolError if a value does not fit into this version, such as a string of 40,000 bytes into one with
        16-bit lengths, or if the response exceeds ANSWER_BYTES_MAX.
        """
        output = Output(self._header_rest, answer_bytes_max=ANSWER_BYTES_MAX, answer_memory=answer_memory)
        try:
            yield from self._write_body(output, response)
        except AnswerTooLarge as error:
            raise ProtocolError(Fault.OVERSIZED_ANSWER, f"the answer to {self.name} is not given: {error}") from error
        except Unwritable as error:
            raise ProtocolError(Fault.UNWRITABLE_RESPONSE, f"{self.name} cannot be answered: {error}") from error
        finally:
            output.close()
        return output.chunks()


@cache
def message(api_key: int, api_version: int) -> MessageVersion:
    """Return the message of this version, created at its first use. Raises kio's KioIndexError for unknown ones."""
    return MessageVersion(api_key, api_version)
