"""A broker controlled by a test: an asyncio server that speaks frames, and remembers the requests it got.

It only has sockets and frames. The script interprets requests: it is called with each one in turn, and answers it,
delays it, or closes the connection. Without a script, a broker offers the versions in `OFFERED`, allows every client
everything with every group, and answers all else with an empty body.

    async with scripted_broker() as broker:
        broker.script = lambda asked: asked.answer(b"...")
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from struct import Struct
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from muster.events.kafka.codec.primitives import tagged_fields_size
from muster.events.kafka.codec.reading import reader_in_steps
from muster.events.steps import Allowance, finished
from tests.coordinator.kio_client import filled

WITHIN_S = 20

API_VERSIONS, DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 15, 16, 17, 36
OFFERED: Mapping[int, tuple[int, int]] = {
    0: (0, 13),
    1: (4, 18),
    3: (0, 13),
    8: (2, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    DESCRIBE_GROUPS: (0, 6),
    LIST_GROUPS: (0, 5),
    SASL_HANDSHAKE: (0, 1),
    API_VERSIONS: (0, 4),
    28: (0, 5),
    SASL_AUTHENTICATE: (0, 2),
    60: (0, 2),
}
ALL_OPERATIONS = 0x7FFF_FFF8

_HEADER = Struct(">hhI")


@dataclass(frozen=True, eq=False)
class ReceivedRequest:
    """A received request. `frame` is without its length."""

    frame: bytes
    connection: "Connection"

    @property
    def api_key(self) -> int:
        return int(_HEADER.unpack_from(self.frame)[0])

    @property
    def api_version(self) -> int:
        return int(_HEADER.unpack_from(self.frame)[1])

    @property
    def correlation_id(self) -> int:
        return int(_HEADER.unpack_from(self.frame)[2])

    @property
    def body(self) -> Any:
        """The request, decoded by kio."""
        request: Any = load_request_schema(self.api_key, self.api_version)
        header = request.__header_schema__
        _, at = entity_reader(header)(self.frame, 0)
        body, _ = finished(reader_in_steps(request)(self.frame, at, Allowance(len(self.frame))))
        return body

    def answer(self, payload: bytes) -> None:
        """Send the bytes after the correlation id."""
        self.connection.send(framed(self.correlation_id, payload))

    def tell(self, answer: Any) -> None:
        """Send a kio response."""
        self.answer(response_bytes(answer))


class Connection:
    """An accepted connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.reads = asyncio.Event()
        self.reads.set()
        self.is_closed = False

    def send(self, data: bytes) -> None:
        """Send any bytes."""
        self.writer.write(data)

    def hang_up(self) -> None:
        """Disconnect, as if the broker had died."""
        self.writer.transport.abort()


class ScriptedBroker:
    """See the module. `reads`: whether connections accepted from now on are read."""

    def __init__(self) -> None:
        self.asked: list[ReceivedRequest] = []
        self.connections: list[Connection] = []
        self.offered = dict(OFFERED)
        self.script: Callable[[ReceivedRequest], None] = self.usual
        self.reads = True
        self.port = 0

    def usual(self, requested: ReceivedRequest) -> None:
        """The response without a script."""
        if requested.api_key == API_VERSIONS:
            requested.tell(offering(requested.api_version, self.offered))
        elif requested.api_key == DESCRIBE_GROUPS:
            requested.tell(allowing(requested, ALL_OPERATIONS))
        elif requested.api_key == LIST_GROUPS:
            requested.tell(response(LIST_GROUPS, requested.api_version, error_code=ErrorCode.none, groups=[]))
        else:
            requested.answer(b"")

    def keys_asked(self) -> list[int]:
        """The API keys of all received requests, in order."""
        return [requested.api_key for requested in self.asked]

    @property
    def open_connections(self) -> int:
        return sum(not each.is_closed for each in self.connections)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to its end."""
        connection = Connection(reader, writer)
        self.connections.append(connection)
        if not self.reads:
            connection.reads.clear()
        try:
            while True:
                await connection.reads.wait()
                size = int.from_bytes(await reader.readexactly(4), "big")
                layer = ReceivedRequest(await reader.readexactly(size), connection)
                self.asked.append(layer)
                self.script(layer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.is_closed = True
            writer.close()


class WithheldResponses:
    """A script that withholds the responses to requests with these API keys until a test sends them."""

    def __init__(self, broker: ScriptedBroker, *api_keys: int) -> None:
        self._broker = broker
        self._api_keys = api_keys
        self.asked: list[ReceivedRequest] = []
        broker.script = self

    def __call__(self, requested: ReceivedRequest) -> None:
        if requested.api_key in self._api_keys:
            self.asked.append(requested)
        else:
            self._broker.usual(requested)


@asynccontextmanager
async def scripted_broker(port: int = 0) -> AsyncIterator[ScriptedBroker]:
    """Listen on 127.0.0.1, on a free port or on this one."""
    broker = ScriptedBroker()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await broker.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for connection in broker.connections:
            connection.hang_up()
            connection.reads.set()
        await asyncio.gather(*tasks)


def framed(correlation_id: int, payload: bytes) -> bytes:
    """A response with its length."""
    return (4 + len(payload)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + payload


def request(api_key: int, api_version: int, correlation_id: int, rest: bytes = b"\x00\x00") -> bytes:
    """A request with its length; `rest` follows the correlation id."""
    content = _HEADER.pack(api_key, api_version, correlation_id) + rest
    return len(content).to_bytes(4, "big") + content


def asking(body: Any, correlation_id: int = 7, client_id: str | None = "shop") -> bytes:
    """A kio request with its length."""
    header = body.__header_schema__(
        request_api_key=body.__api_key__,
        request_api_version=body.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    content = kio_bytes(header) + kio_bytes(body)
    return len(content).to_bytes(4, "big") + content


def kio_bytes(entity: Any) -> bytes:
    """A kio entity, written by kio."""
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def response_bytes(answer: Any) -> bytes:
    """A kio response: the bytes after the correlation id."""
    return kio_bytes(answer.__header_schema__(correlation_id=0))[4:] + kio_bytes(answer)


def read_response(api_key: int, api_version: int, payload: bytes) -> Any:
    """Read the bytes after the correlation id with kio, to the last byte."""
    kind: Any = load_response_schema(api_key, api_version)
    at = tagged_fields_size(payload, 0) if kind.__header_schema__.__flexible__ else 0
    answer, size = entity_reader(kind)(payload, at)
    assert at + size == len(payload)
    return answer


def response(api_key: int, api_version: int, **fields: Any) -> Any:
    """A kio response, with nested entities as mappings; fields that the version lacks are left out."""
    return filled(load_response_schema(api_key, api_version), {"throttle_time": timedelta(0), **fields})


def offering(api_version: int, offered: Mapping[int, tuple[int, int]]) -> Any:
    """An ApiVersions response; in the form of v0 for an unknown version."""
    first, last = offered[API_VERSIONS]
    is_known = first <= api_version <= last
    return response(
        API_VERSIONS,
        api_version if is_known else 0,
        error_code=ErrorCode.none if is_known else ErrorCode.unsupported_version,
        api_keys=[
            {"api_key": key, "min_version": first, "max_version": last}
            for key, (first, last) in offered.items()
            if is_known or key == API_VERSIONS
        ],
    )


def allowing(requested: ReceivedRequest, operations: int, error: ErrorCode = ErrorCode.none) -> Any:
    """A DescribeGroups response with the operations that the client may do with groups that do not exist."""
    described = {"group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": ()}
    groups = [
        {"error_code": error, "group_id": group_id, "authorized_operations": operations, **described}
        for group_id in requested.body.groups
    ]
    return response(DESCRIBE_GROUPS, requested.api_version, groups=groups)
