"""A broker counts as ready when it responds to Metadata and lists itself there.

The request is sent over a plain socket, since a client library would fill the output with warnings until the broker is
up.
"""

import io
import socket
import struct
import time
from collections.abc import Callable
from typing import Final

from kio.schema.metadata.v1.request import MetadataRequest
from kio.schema.metadata.v1.response import MetadataResponse
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

READY_WITHIN_S: Final = 120
ANSWER_WITHIN_S: Final = 5
ASK_EVERY_S: Final = 0.05


class NotReady(Exception):
    """The broker did not respond in time, or ended before it did."""


def wait_until_answering(bootstrap: str, *, alive: Callable[[], bool], ready_within_s: float = READY_WITHIN_S) -> None:
    """Return as soon as the broker at `bootstrap` lists itself in Metadata.

    `alive` tells whether waiting still makes sense. Raises `NotReady` if it does not, or when the time is over.
    """
    deadline = time.monotonic() + ready_within_s
    reason = "it was never asked"
    while time.monotonic() < deadline:
        if not alive():
            raise NotReady("it ended before it answered")
        try:
            brokers = brokers_named_by(bootstrap)
        except OSError as error:
            reason = str(error)
        else:
            if brokers:
                return
            reason = "it names no broker in Metadata"
        time.sleep(ASK_EVERY_S)
    raise NotReady(f"no answer from {bootstrap} within {ready_within_s:.0f} s: {reason}")


def brokers_named_by(bootstrap: str) -> list[str]:
    """The `host:port` of each broker in the Metadata response of `bootstrap`. Raises `OSError` if there is none."""
    return [f"{broker.host}:{broker.port}" for broker in _metadata(bootstrap).brokers]


def node_ids_named_by(bootstrap: str) -> set[int]:
    """The node id of each broker in the Metadata response of `bootstrap`. Raises `OSError` if there is none."""
    return {int(broker.node_id) for broker in _metadata(bootstrap).brokers}


def _metadata(bootstrap: str) -> MetadataResponse:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_WITHIN_S) as connection:
        connection.sendall(_metadata_request())
        size = struct.unpack(">i", _read_exactly(connection, 4))[0]
        answer = _read_exactly(connection, size)
    _, header_size = entity_reader(ResponseHeader)(answer, 0)
    response, _ = entity_reader(MetadataResponse)(answer, header_size)
    return response


def _metadata_request() -> bytes:
    body = io.BytesIO()
    header = RequestHeader(
        request_api_key=i16(MetadataRequest.__api_key__),
        request_api_version=i16(1),
        correlation_id=i32(1),
        client_id="muster-tests",
    )
    entity_writer(RequestHeader)(body, header)
    entity_writer(MetadataRequest)(body, MetadataRequest(topics=()))
    return struct.pack(">i", body.tell()) + body.getvalue()


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the connection was closed before the answer was whole")
        received += piece
    return bytes(received)
