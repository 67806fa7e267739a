"""A server that listens on a free port, its clients, and their requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, DescribeGroup, Heartbeat
from muster.coordinator.group.outcomes import DescribeGroupOutcome, HeartbeatOutcome, JoinGroupOutcome, Outcome
from muster.coordinator.net.limits import ConnectionLimits
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.standalone.server import Server, ServerSettings
from muster.coordinator.wire.registry import APIS
from muster.events.ids import MemberId
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.scripted import ManualTimers, ScriptedGroups, new_service

WITHIN_S = 20
JOINED = JoinGroupOutcome(member_id=MemberId("m"), generation_id=1)


def outcome(command: AnyRequest) -> Outcome | None:
    """Heartbeats are accepted, descriptions are long, joins are parked."""
    if isinstance(command, Heartbeat):
        return HeartbeatOutcome(error=ErrorCode.none)
    if isinstance(command, DescribeGroup):
        return DescribeGroupOutcome(protocol_type="x" * 30_000)
    return None


class Running:
    """A server on a free port, and what tests read of it."""

    def __init__(self, settings: ServerSettings) -> None:
        self.now_ms = 1_000
        self.groups = ScriptedGroups(outcome)
        self.timers = ManualTimers()
        self.metrics = ServerMetrics(APIS)
        self.service = new_service(self.groups, self.timers, held_bytes_max=settings.limits.queued_max_request_bytes)
        self.service.monotonic_ms = lambda: self.now_ms
        self.server = Server(settings=settings, service=self.service, apis=APIS, metrics=self.metrics)

    async def connect(self) -> "Client":
        return Client(*await asyncio.open_connection("127.0.0.1", self.server.port))


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, name: str, version: int, correlation_id: int = 7, **body: Any) -> None:
        self.writer.write(with_length(frame(name, version, correlation_id=correlation_id, **body)))

    async def answer(self) -> tuple[int, bytes]:
        """The next response's correlation id and body."""
        async with asyncio.timeout(WITHIN_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            content = await self.reader.readexactly(size)
        return int.from_bytes(content[:4], "big"), content[4:]

    async def is_closed(self) -> bool:
        """Wait for the end of the stream; False if data arrives first."""
        async with asyncio.timeout(WITHIN_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True


@asynccontextmanager
async def running(*, waiting_bytes_max: int = 1_048_576, **limits: Any) -> AsyncIterator[Running]:
    settings = ServerSettings(port=0, limits=ConnectionLimits(**limits), waiting_bytes_max=waiting_bytes_max)
    subject = Running(settings)
    await subject.server.start()
    subject.service.cluster = subject.service.cluster.advertised_at("127.0.0.1", subject.server.port)
    try:
        yield subject
    finally:
        await subject.server.close(within_s=1)


HEARTBEAT: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}
JOIN: dict[str, Any] = {
    "group_id": "g",
    "session_timeout": timedelta(seconds=10),
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [],
}
DESCRIBE: dict[str, Any] = {"groups": ["g"], "include_authorized_operations": False}
