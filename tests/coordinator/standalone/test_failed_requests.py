"""Simulated bugs (unexpected errors) end one client's connection, and affect no others."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.coordinator.group.commands import AnyRequest, JoinGroup
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.load.turns import REQUESTS_AT_ONCE
from muster.coordinator.wire.api import Fault
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.running_server import HEARTBEAT, JOIN, outcome, running


@pytest.mark.parametrize("before", [0, REQUESTS_AT_ONCE], ids=["at once", "after others have had their turn"])
async def test_a_bug_of_ours_affects_one_client(before: int) -> None:
    """Its connection is closed, and the log has the request (G24)."""

    def fails(command: AnyRequest) -> Outcome | None:
        if isinstance(command, JoinGroup):
            raise ZeroDivisionError
        return outcome(command)

    async with running() as subject:
        subject.groups.outcome = fails
        client, other = await subject.connect(), await subject.connect()
        requests = [frame("Heartbeat", 4, **HEARTBEAT)] * before + [frame("JoinGroup", 3, **JOIN)]
        with capture_logs() as logged:
            client.writer.write(b"".join(map(with_length, requests)))
            for _ in range(before):
                await client.answer()
            assert await client.is_closed()
        assert [each["request"] for each in logged if each["event"] == "a request failed"] == ["JoinGroupRequest v3"]
        assert subject.metrics.protocol_errors == {Fault.FAILED_REQUEST: 1}
        other.send("Heartbeat", 4, 5, **HEARTBEAT)
        assert (await other.answer())[0] == 5


async def test_a_bug_beside_the_requests_leaves_no_connection_that_hangs() -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    async with running() as subject:
        client = await subject.connect()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)  # the message is expected
        subject.metrics.count_request = fails  # type: ignore[method-assign, assignment]
        client.writer.write(with_length(frame("Heartbeat", 4, **HEARTBEAT)) * (REQUESTS_AT_ONCE + 1))
        assert await client.is_closed()
