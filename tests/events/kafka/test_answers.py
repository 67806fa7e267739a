"""Unexpected responses of brokers: newer brokers' are read, and invalid ones are reported as such."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.consumer_group_describe.v0.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v0.response import ConsumerGroupDescribeResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse, DescribeConfigsResult
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.incremental_alter_configs.v1.request import AlterConfigsResource, IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import StreamsGroupDescribeResponse
from kio.schema.types import GroupId
from kio.static.primitive import i8, i32Timedelta

from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.kafka.addresses import BrokerAddress, read_servers
from muster.events.kafka.asked_entries import check_entries
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import AnswerLost, LinkError, TryAgain
from muster.events.kafka.exchange import Exchange, Undecoded
from muster.events.kafka.metadata import MetadataQuestion
from muster.events.kafka.requests import api_versions
from muster.events.kafka.security import NOT_SECURED
from tests.coordinator.upstream.fake_broker import FakeBroker, fake_broker, heartbeat

METADATA, HEARTBEAT, DESCRIBE_GROUPS, API_VERSIONS = 3, 12, 15, 18
UNKNOWN_ERROR = 9_999
TAGGED_FIELD = b"\x01\x7d\x02hi"
"""An unknown one, at the end of a struct."""

Ask = Callable[[Any], Any]


def unexplained(address: BrokerAddress, error: Exception) -> LinkError:
    return TryAgain(f"{address}: {error}")


@asynccontextmanager
async def asking() -> AsyncIterator[tuple[FakeBroker, Ask, Connections]]:
    """A broker, and a function that sends it requests on an open connection."""
    async with fake_broker() as broker:
        connections = Connections(NOT_SECURED, connect_timeout_ms=10_000, explain=unexplained)
        (address,) = read_servers(broker.address)

        def ask(request: Any) -> Any:
            return connections.ask(address, request, lane=0, timeout_ms=10_000)

        await ask(heartbeat_question())
        try:
            yield broker, ask, connections
        finally:
            await connections.close()


def heartbeat_question() -> Exchange[HeartbeatResponse]:
    return Exchange(heartbeat("g"), HeartbeatResponse)


def with_error(answer: bytes) -> bytes:
    """Heartbeat v4: correlation id, tagged fields, throttle time, error, tagged fields."""
    return answer[:9] + struct.pack(">h", UNKNOWN_ERROR) + answer[11:]


async def test_an_unassigned_error_code_is_unknown() -> None:
    async with asking() as (broker, ask, _):
        broker.changed_answers[HEARTBEAT] = with_error
        assert (await ask(heartbeat_question())).error_code is ErrorCode.unknown_server_error
        assert broker.connections == 1


async def test_unknown_tagged_fields_are_skipped() -> None:
    """Also in the header, which has the first one, after the correlation id."""
    async with asking() as (broker, ask, _):
        broker.changed_answers[HEARTBEAT] = lambda answer: answer[:4] + TAGGED_FIELD + answer[5:-1] + TAGGED_FIELD
        assert (await ask(heartbeat_question())).error_code is ErrorCode.none
        assert broker.connections == 1


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        (b"", "'g' is missing"),
        (b"x", "'g' is missing, 'x' was not asked about"),
        (b"gxyz", "'x' and 2 more were not asked about"),
    ],
    ids=["none", "another", "more"],
)
async def test_a_response_about_other_groups_than_requested_is_refused(groups: bytes, told: str) -> None:
    request = DescribeGroupsRequest(groups=(GroupId("g"),), include_authorized_operations=False)
    entries = [b"\0\0\x02" + bytes([each]) + b"\x01\x01\x01\x01" + bytes(4) + b"\0" for each in groups]
    changed = bytes([len(groups) + 1]) + b"".join(entries) + b"\0"
    async with asking() as (broker, ask, _):
        broker.changed_answers[DESCRIBE_GROUPS] = lambda answer: answer[:9] + changed
        with pytest.raises(
            AnswerLost, match=f"to DescribeGroups v5 is not about the groups that were asked about: {told}$"
        ):
            await ask(Exchange(request, DescribeGroupsResponse))


GROUP_RESOURCE = i8(32)


def described(name: str) -> DescribeConfigsResponse:
    result = DescribeConfigsResult(
        error_code=ErrorCode.none, error_message=None, resource_type=GROUP_RESOURCE, resource_name=name, configs=()
    )
    return DescribeConfigsResponse(throttle_time=i32Timedelta.parse(timedelta()), results=(result,))


def altered(name: str) -> IncrementalAlterConfigsResponse:
    response = AlterConfigsResourceResponse(
        error_code=ErrorCode.none, error_message=None, resource_type=GROUP_RESOURCE, resource_name=name
    )
    return IncrementalAlterConfigsResponse(throttle_time=i32Timedelta.parse(timedelta()), responses=(response,))


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (
            DescribeConfigsRequest(
                resources=(DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g"),)
            ),
            described,
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=(AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=()),),
                validate_only=False,
            ),
            altered,
        ),
    ],
    ids=["described", "altered"],
)
def test_a_response_about_the_configs_of_another_group_is_refused(request_: Any, answer: Callable[[str], Any]) -> None:
    """Otherwise an administrator would see another group's configs, or believe that this one's were altered."""
    check_entries(request_, answer("g"))
    with pytest.raises(ValueError, match=r"'g' is missing, 'x' was not asked about"):
        check_entries(request_, answer("x"))


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
        (ShareGroupDescribeRequest, ShareGroupDescribeResponse),
        (StreamsGroupDescribeRequest, StreamsGroupDescribeResponse),
    ],
    ids=["consumer", "share", "streams"],
)
def test_a_response_without_the_requested_group_is_refused(request_: Any, response: Any) -> None:
    request = request_(group_ids=(GroupId("g"),), include_authorized_operations=False)
    with pytest.raises(ValueError, match=r"about the group ids that were asked about: 'g' is missing$"):
        check_entries(request, response(throttle_time=i32Timedelta.parse(timedelta()), groups=()))


def lying_brokers(answer: bytes) -> bytes:
    """Metadata v10 that claims two thousand million brokers."""
    return answer[:9] + b"\xff\xff\xff\xff\x07" + answer[10:]


@pytest.mark.parametrize(
    ("request_of", "api_key", "change", "told"),
    [
        (
            lambda: MetadataQuestion(()),
            METADATA,
            lying_brokers,
            "Metadata v10 cannot be read: brokers announces",
        ),
        (heartbeat_question, HEARTBEAT, lambda answer: answer[:7], "Heartbeat v4 cannot be read"),
        (heartbeat_question, HEARTBEAT, lambda answer: answer[:2], "Heartbeat v4 cannot be read"),
        (
            heartbeat_question,
            HEARTBEAT,
            lambda answer: b"\x7f" + answer[1:],
            "Heartbeat v4 cannot be read: .* ids do not",
        ),
        (api_versions, API_VERSIONS, lambda answer: answer[:9], "ApiVersions v0 cannot be read"),
    ],
    ids=["a length that lies", "cut", "cut within the header", "of another request", "one without a version"],
)
async def test_an_unreadable_response_names_its_sender_and_request(
    request_of: Callable[[], Any], api_key: int, change: Callable[[bytes], bytes], told: str
) -> None:
    """Its connection is closed, and the next request uses another one."""
    async with asking() as (broker, ask, _):
        broker.changed_answers[api_key] = change
        with pytest.raises(AnswerLost, match=f"{broker.address}: its answer to {told}"):
            await ask(request_of())
        broker.changed_answers.clear()
        await ask(request_of())
        assert broker.connections == 2


async def test_an_unidentified_server_is_sent_no_other_requests() -> None:
    """Only the request for the broker's cluster was sent."""
    async with asking() as (broker, _, connections):
        broker.stop()
        connections.cluster_id = "fake"
        broker.changed_answers[METADATA] = lying_brokers
        await broker.start()
        (address,) = read_servers(broker.address)
        with pytest.raises(TryAgain, match=f"{address}: its answer to Metadata v10 cannot be read") as raised:
            await connections.ask(address, heartbeat_question(), lane=0, timeout_ms=10_000)
        assert not isinstance(raised.value, AnswerLost)


async def test_unreadable_versions_are_not_a_disconnect() -> None:
    """aiokafka asks for them as it connects; that the broker wants credentials would be a wrong guess."""
    async with fake_broker() as broker:
        broker.changed_answers[API_VERSIONS] = lambda answer: answer[:9]
        failures: list[Exception] = []
        link = UpstreamLink(broker.address, give_up=failures.append)
        with pytest.raises(TryAgain, match=r"its responses cannot be read \(while connecting\)") as raised:
            await link.open()
        assert "security.protocol" not in str(raised.value)
        await link.close()
        assert failures == []


async def test_a_long_answer_gives_others_their_turns() -> None:
    groups = 10_000
    listed = b"\x91\x4e" + groups * b"\x02g\x01\x01\x00"  # ids, protocol types, states, and no tagged fields
    question = Undecoded(Exchange(ListGroupsRequest(states_filter=()), ListGroupsResponse))
    question.prepare({ListGroupsRequest.__api_key__: (0, 4)})
    arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    arrived.set_result(bytes(11) + listed + b"\x00")
    reading = asyncio.create_task(question.answer(arrived))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert len((await reading).groups) == groups
    assert turns > groups / 1_000
