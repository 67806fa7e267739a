"""A broker for which a test chooses the offered versions and the requests that stay unanswered.

It handles ApiVersions, Metadata, FindCoordinator, heartbeats for unknown groups, and SCRAM with a reply that ignores
the client's message. It coordinates no groups.
"""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from io import BytesIO
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.types import GroupId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from tests.coordinator.kio_client import filled

KAFKA_3_2: Final[Mapping[int, int]] = {3: 12, 10: 4, 11: 9, 12: 4, 13: 5, 14: 5, 15: 5, 16: 4, 18: 3}
"""The latest version of each API; the first is 0."""
UNANSWERED: Final = "unanswered"
_SIZE: Final = struct.Struct(">i")


def heartbeat(group_id: str) -> HeartbeatRequest:
    """A request that changes nothing: the group has no members."""
    return HeartbeatRequest(group_id=GroupId(group_id), generation_id=i32(1), member_id="nobody")


class FakeBroker:
    """See the module. It is node 1."""

    def __init__(self, offered: Mapping[int, int], context: ssl.SSLContext | None) -> None:
        self.connections = 0
        self.asked: list[int] = []
        """The API keys of all requests, in order."""
        self.cluster_id = "fake"
        self.node_at = ""
        """Its advertised address of node 1, if it is another one."""
        self.coordinator = 1
        """The node that it names as the coordinator of any group."""
        self.others_at: list[str] = []
        """Advertised addresses of other nodes, listed before it."""
        self.hangs_up = False
        """True: disconnect new clients."""
        self.silent_at: int | None = None
        """The key of an API that is never answered."""
        self.group_error = ErrorCode.none
        """The error of each described group."""
        self.hangs_up_at: int | None = None
        """The key of an API at which it disconnects, as brokers do with unauthenticated clients."""
        self.changed_answers: dict[int, Callable[[bytes], bytes]] = {}
        """Keyed by API key: changes a response's bytes before they are sent."""
        self._offered = {18: 3, **offered}
        self._context = context
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)

    def stop(self) -> None:
        """Disconnect all clients, and stop listening."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()

    async def ended(self) -> None:
        """Wait until no client is served any more."""
        await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._writers.append(writer)
        try:
            while not self.hangs_up:
                (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
                answer = self._answer(await reader.readexactly(size))
                if self.asked[-1] == self.hangs_up_at:
                    break
                if answer is None:
                    await reader.read()  # nothing after it is answered either
                    break
                writer.write(_SIZE.pack(len(answer)) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    def _answer(self, frame: bytes) -> bytes | None:
        key, version = struct.unpack_from(">hh", frame)
        self.asked.append(key)
        request_class: Any = load_request_schema(key, version)
        header, size = entity_reader(request_class.__header_schema__)(frame, 0)
        request, _ = entity_reader(request_class)(frame, size)
        if key == self.silent_at or getattr(request, "group_id", "") == UNANSWERED:
            return None
        response_class: Any = load_response_schema(key, version)
        buffer = BytesIO()
        header_class = response_class.__header_schema__
        entity_writer(header_class)(buffer, header_class(correlation_id=header.correlation_id))
        entity_writer(response_class)(buffer, filled(response_class, self._body(key, request)))
        return self.changed_answers.get(key, bytes)(buffer.getvalue())

    def _body(self, key: int, request: Any) -> dict[str, Any]:
        at = [*self.others_at, self.node_at or self.address]
        nodes = [
            {"node_id": len(at) - number, "host": host, "port": int(port)}
            for number, (host, _, port) in enumerate(address.rpartition(":") for address in at)
        ]
        known: dict[int, dict[str, Any]] = {
            3: {
                "brokers": nodes,
                "cluster_id": self.cluster_id,
                "topics": [],
            },
            10: {
                "coordinators": [
                    {**nodes[-self.coordinator], "key": each, "error_code": ErrorCode.none, "error_message": None}
                    for each in getattr(request, "coordinator_keys", ())
                ]
            },
            12: {},
            15: {"groups": [self._described(each) for each in getattr(request, "groups", ())]},
            17: {"mechanisms": ["SCRAM-SHA-256"]},
            36: {"error_message": None, "auth_bytes": b"r=nobody's,s=c2FsdA==,i=4096"},
            18: {
                "api_keys": [
                    {"api_key": each, "min_version": 0, "max_version": last} for each, last in self._offered.items()
                ]
            },
        }
        return {"throttle_time": timedelta(0), "error_code": ErrorCode.none, **known[key]}

    def _described(self, group_id: str) -> dict[str, Any]:
        nobody = {"group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": []}
        return {"group_id": group_id, "error_code": self.group_error, "error_message": None, **nobody}


@asynccontextmanager
async def fake_broker(
    offered: Mapping[int, int] = KAFKA_3_2, context: ssl.SSLContext | None = None
) -> AsyncIterator[FakeBroker]:
    """A broker that serves until the block ends; with TLS if a `context` is given."""
    broker = FakeBroker(offered, context)
    await broker.start()
    try:
        yield broker
    finally:
        broker.stop()
        await broker.ended()
