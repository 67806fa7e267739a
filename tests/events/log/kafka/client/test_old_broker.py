"""A broker that is too old, on a socket: opening a log reports it in one line, without a request that it lacks."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka.protocol.admin import ApiVersionResponse_v0  # noqa: TID251 -- written by another library than ours
from aiokafka.protocol.metadata import MetadataResponse_v1  # noqa: TID251 -- written by another library than ours

from muster.events.log.base import LogMismatch
from muster.events.log.kafka.log import KafkaEventLog

METADATA, API_VERSIONS = 3, 18
OFFERED = [(0, 0, 2), (1, 0, 3), (2, 0, 1), (METADATA, 0, 1), (10, 0, 0), (API_VERSIONS, 0, 0)]
"""Like Kafka 0.10: the API key, the first version, the last."""


class OldBroker:
    """One node of a cluster without topics; it knows two requests."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: set[int] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                api_key, _, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
                self.asked.add(api_key)
                answer = struct.pack(">i", correlation_id) + self._answer(api_key)
                writer.write(struct.pack(">i", len(answer)) + answer)
        except asyncio.IncompleteReadError:
            writer.close()

    def _answer(self, api_key: int) -> bytes:
        if api_key == API_VERSIONS:
            answer: bytes = ApiVersionResponse_v0(0, OFFERED).encode()
        else:
            answer = MetadataResponse_v1([(1, "127.0.0.1", self.port, None)], 1, []).encode()
        return answer


@asynccontextmanager
async def old_broker() -> AsyncIterator[OldBroker]:
    broker = OldBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    async with server:
        yield broker


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_broker_that_is_too_old_is_refused(read_only: bool) -> None:
    """The error names the API and the missing version, immediately, without a request that the broker cannot read."""
    async with old_broker() as broker:
        log = KafkaEventLog([f"127.0.0.1:{broker.port}"], "events", read_only=read_only)
        with pytest.raises(
            LogMismatch, match=r"broker 1 at [\d.:]+ is too old to keep an event log: it offers Fetch up to v3, and"
        ):
            await log.open()
    assert broker.asked == {METADATA, API_VERSIONS}
