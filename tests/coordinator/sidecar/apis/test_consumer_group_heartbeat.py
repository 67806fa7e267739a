"""Heartbeats of the newer protocol for a group with a shadow: the broker's response, and the client's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import structlog
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.apis import consumer_group_heartbeat
from muster.coordinator.sidecar.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from tests.coordinator.kio_client import filled
from tests.coordinator.sidecar.relaying import Client, Relay, relaying
from tests.coordinator.sidecar.scripted_broker import (
    ReceivedRequest,
    ScriptedBroker,
    asking,
    read_response,
    request,
    response,
    scripted_broker,
)
from tests.waiting import until

NOT_A_CONSUMER_GROUP = ErrorCode.group_id_not_found
NOT_YET, GONE = ErrorCode.coordinator_not_available, ErrorCode.unknown_member_id
OURS, THEIRS = "orders", "theirs"
FETCH = 1
FOR_EVER_MS = 3_600_000


@asynccontextmanager
async def listening(
    error: ErrorCode = NOT_A_CONSUMER_GROUP, *, delay_ms: int = 1
) -> AsyncIterator[tuple[ScriptedBroker, Relay, Client]]:
    """A broker that answers every heartbeat with this error, and a relay with a shadow in one of the groups."""
    async with (
        scripted_broker() as broker,
        relaying(
            {1: broker},
            delay_ms=delay_ms,
            more=lambda relay: (
                consumer_group_heartbeat.api(lambda group_id: group_id == OURS, relay.relayed, lambda: 0),
            ),
        ) as relay,
    ):

        def script(requested: ReceivedRequest) -> None:
            if requested.api_key == CONSUMER_GROUP_HEARTBEAT:
                fields = {"member_id": "m", "member_epoch": 0, "heartbeat_interval": timedelta(0), "assignment": None}
                requested.tell(response(CONSUMER_GROUP_HEARTBEAT, requested.api_version, error_code=error, **fields))
            else:
                broker.usual(requested)

        broker.script = script
        yield broker, relay, await relay.connect(1)


def beat(member_epoch: int, *, group_id: str = OURS, version: int = 1, number: int = 7) -> bytes:
    """One heartbeat."""
    fields = {"group_id": group_id, "member_id": "m", "member_epoch": member_epoch, "topic_partitions": None}
    return asking(filled(load_request_schema(CONSUMER_GROUP_HEARTBEAT, version), fields), number)


def response_of(payload: bytes, version: int = 1) -> Any:
    """The response, which may have a message only with an error."""
    return read_response(CONSUMER_GROUP_HEARTBEAT, version, payload)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("member_epoch", "group_id", "error", "expected"),
    [
        (0, OURS, NOT_A_CONSUMER_GROUP, NOT_YET),
        (1, OURS, NOT_A_CONSUMER_GROUP, GONE),
        (2**31 - 1, OURS, NOT_A_CONSUMER_GROUP, GONE),
        (-1, OURS, NOT_A_CONSUMER_GROUP, NOT_A_CONSUMER_GROUP),
        (-2, OURS, NOT_A_CONSUMER_GROUP, NOT_A_CONSUMER_GROUP),
        (0, THEIRS, NOT_A_CONSUMER_GROUP, NOT_A_CONSUMER_GROUP),
        (3, THEIRS, NOT_A_CONSUMER_GROUP, NOT_A_CONSUMER_GROUP),
        (0, OURS, ErrorCode.none, ErrorCode.none),
        (0, OURS, ErrorCode.group_authorization_failed, ErrorCode.group_authorization_failed),
        (3, OURS, ErrorCode.fenced_member_epoch, ErrorCode.fenced_member_epoch),
    ],
)
async def test_the_client_gets_an_error(
    version: int, member_epoch: int, group_id: str, error: ErrorCode, expected: ErrorCode
) -> None:
    async with listening(error) as (broker, relay, client):
        sent = beat(member_epoch, group_id=group_id, version=version)
        for times in (1, 2):
            answer = response_of(await client.ask(sent), version)
            assert answer.error_code is expected
            assert ("muster release" in (answer.error_message or "")) is (expected is not error)
            assert [requested.frame for requested in broker.asked] == [sent[4:]] * times
            assert relay.relayed.consumer_group_heartbeats_deferred == times * (expected is not error)


async def test_a_client_that_waits_is_named_once_in_the_log() -> None:
    """Clients retry without a word; a group that is not ours, or a client that leaves, has no line."""
    async with listening() as (_broker, _relay, client):
        with structlog.testing.capture_logs() as logged:
            for group_id, member_epoch in ((THEIRS, 0), (OURS, -1), (OURS, 0), (OURS, 0)):
                await client.ask(beat(member_epoch, group_id=group_id))
    (line,) = logged
    assert line["event"].startswith("join refused for now: the group has classic members, and this consumer has")
    assert (line["group_id"], line["client_id"], line["log_level"]) == (OURS, "shop", "warning")
    assert "group.protocol=classic" in line["way_out"]


async def test_only_a_join_is_delayed_and_no_other_connection() -> None:
    """A former member gets its response at once, like all clients whose response is the broker's own."""
    async with listening(delay_ms=FOR_EVER_MS) as (broker, relay, client):
        client.send(beat(0))
        other = await relay.connect(1)
        for member_epoch, group_id in ((3, OURS), (0, THEIRS)):
            await other.ask(beat(member_epoch, group_id=group_id))
        await other.ask(request(FETCH, 12, 1))
        await until(lambda: len(broker.asked) == 4)


async def test_answers_stay_in_order_behind_one_that_is_held() -> None:
    """Requests sent before it are answered before it."""
    async with listening(delay_ms=FOR_EVER_MS) as (broker, relay, client):
        client.send(request(FETCH, 12, 1), beat(0, number=2), request(FETCH, 12, 3))
        assert (await client.answer())[0] == 1
        await until(lambda: len(broker.asked) == 3)
        (connection,) = relay.listening.connections
        assert connection.is_parked  # not idle
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.reader.readexactly(1)


async def test_held_answers_come_in_their_turn() -> None:
    async with listening(delay_ms=20) as (_, _relay, client):
        client.send(beat(0, number=1), request(FETCH, 12, 2), beat(0, number=3), request(FETCH, 12, 4))
        assert [(await client.answer())[0] for _ in range(4)] == [1, 2, 3, 4]


async def test_shutdown_does_not_wait_for_the_delay() -> None:
    """The response is correct without the delay; so it is sent, and the connection closes."""
    async with listening(delay_ms=FOR_EVER_MS) as (broker, relay, client):
        client.send(beat(0))
        await until(lambda: broker.asked)
        (connection,) = relay.listening.connections
        await until(lambda: connection._conversation.answers.is_delaying)
        relay.drain()
        assert response_of((await client.answer())[1]).error_code is NOT_YET
        assert await client.rest() == b""


async def test_a_disconnected_client_leaves_nothing_behind() -> None:
    async with listening(delay_ms=FOR_EVER_MS) as (broker, relay, client):
        client.send(beat(0))
        await until(lambda: broker.asked)
        (connection,) = relay.listening.connections
        await until(lambda: connection._conversation.answers.is_delaying)
        client.vanish()
        await until(lambda: broker.open_connections == 0)
        assert connection._answering._delay is not None
        assert connection._answering._delay.cancelled()


async def test_the_last_response_of_a_lost_broker_is_delivered() -> None:
    async with listening(delay_ms=FOR_EVER_MS) as (broker, relay, client):
        client.send(beat(0))
        await until(lambda: broker.asked)
        (connection,) = relay.listening.connections
        await until(lambda: connection._conversation.answers.is_delaying)
        broker.connections[0].hang_up()
        assert response_of((await client.answer())[1]).error_code is NOT_YET
        assert await client.rest() == b""
