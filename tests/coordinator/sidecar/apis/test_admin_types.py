"""Groups that were ours and have another type upstream now: the broker describes and deletes them."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from kio.schema.consumer_group_heartbeat.v0.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v0.response import ConsumerGroupHeartbeatResponse
from kio.schema.errors import ErrorCode
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.schema.streams_group_heartbeat.v0.request import StreamsGroupHeartbeatRequest, Subtopology, Topology
from kio.schema.streams_group_heartbeat.v0.response import StreamsGroupHeartbeatResponse
from kio.schema.types import GroupId as KafkaGroupId
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta

from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from tests.brokers.broker import Broker
from tests.conformance.wire import Connection, Fields, ms
from tests.coordinator.sidecar.admin_stage import Front, formed, front_of, new_name, talking, until_empty_at
from tests.coordinator.upstream.stage import unexpected

pytestmark = pytest.mark.broker

JOINS, LEAVES = 0, -1
NON_EMPTY_GROUP = 68
GROUP, CONFIG, VALUE = 32, "target.group.size", "3"
SESSION = i32Timedelta.parse(ms(60_000))

Heartbeat = Callable[[str, dict[str, Any]], tuple[Any, type[Any]]]
"""From a topic and a member to the request and its response."""


def consumer(topic: str, member: dict[str, Any]) -> tuple[Any, type[Any]]:
    """KIP-848."""
    request = ConsumerGroupHeartbeatRequest(
        **member, subscribed_topic_names=(TopicName(topic),), topic_partitions=(), rebalance_timeout=SESSION
    )
    return request, ConsumerGroupHeartbeatResponse


def share(topic: str, member: dict[str, Any]) -> tuple[Any, type[Any]]:
    """KIP-932."""
    subscribed = (TopicName(topic),)
    return ShareGroupHeartbeatRequest(**member, subscribed_topic_names=subscribed), ShareGroupHeartbeatResponse


def streams(topic: str, member: dict[str, Any]) -> tuple[Any, type[Any]]:
    """KIP-1071."""
    others = ("state_changelog_topics", "repartition_sink_topics", "repartition_source_topics", "copartition_groups")
    part = Subtopology(subtopology_id="0", source_topics=(TopicName(topic),), **dict.fromkeys(others, ()))
    joins = member["member_epoch"] == JOINS
    tasks = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), () if joins else None)
    request = StreamsGroupHeartbeatRequest(
        **member,
        **tasks,
        client_tags=() if joins else None,
        task_offsets=None,
        task_end_offsets=None,
        endpoint_information_epoch=i32(-1),
        rebalance_timeout=SESSION,
        process_id=str(uuid.uuid4()) if joins else None,
        topology=Topology(epoch=i32(0), subtopologies=(part,)) if joins else None,
    )
    return request, StreamsGroupHeartbeatResponse


class DirectMember:
    """A direct member of a group upstream, of the type that `heartbeat` determines."""

    def __init__(self, link: UpstreamLink, topic: str) -> None:
        self._link = link
        self._topic = topic
        self._member_id = str(uuid.uuid4())

    async def beat(self, heartbeat: Heartbeat, group_id: str, epoch: int) -> None:
        """Send the first heartbeat, or the last one."""
        member = {"group_id": KafkaGroupId(group_id), "member_id": self._member_id, "member_epoch": i32(epoch)}
        request, response = heartbeat(self._topic, member)
        answer = await self._link.ask_coordinator(
            group_id, request, response, error_of=lambda reported: reported.error_code
        )
        assert answer.error_code is ErrorCode.none, answer


@pytest.fixture(scope="module")
def front(kafka_broker: Broker) -> Iterator[Front]:
    with front_of(kafka_broker) as front:
        yield front


@pytest.fixture
async def direct_member(front: Front) -> AsyncIterator[DirectMember]:
    link = UpstreamLink(front.broker.bootstrap, give_up=unexpected)
    await link.open()
    try:
        yield DirectMember(link, front.topic)
    finally:
        await link.close()


async def once_ours(front: Front, through: Connection, direct: Connection) -> GroupId:
    """A group that is Empty here, with a Muster config, and unknown upstream."""
    group_id = GroupId(new_name("converted"))
    member = await formed(through, group_id, front.topic)
    change = {"name": CONFIG, "config_operation": 0, "value": VALUE}
    resource = {"resource_type": GROUP, "resource_name": group_id, "configs": [change]}
    altered = await through.ask("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
    assert [each["error_code"] for each in altered["responses"]] == [0], altered
    await member.leave()
    await until_empty_at(front.broker, group_id)
    assert await deleted(direct, group_id) == 0
    return group_id


async def deleted(connection: Connection, group_id: str) -> int:
    """The error of a DeleteGroups."""
    answer = await connection.ask("DeleteGroups", 2, groups_names=[group_id])
    return int(answer["results"][0]["error_code"])


async def described(connection: Connection, group_id: str, version: int) -> Fields:
    """Describe the group."""
    answer = await connection.ask("DescribeGroups", version, groups=[group_id], include_authorized_operations=True)
    (group,) = answer["groups"]
    return dict(group)


async def listed(connection: Connection, group_id: str, *types: str) -> list[Fields]:
    """The group's entry in ListGroups, if any."""
    answer = await connection.ask("ListGroups", 5, states_filter=[], types_filter=list(types))
    return [each for each in answer["groups"] if each["group_id"] == group_id]


async def setting(connection: Connection, group_id: str) -> str | None:
    """Set a Muster config, so that the group is known here."""
    request = {"resource_type": GROUP, "resource_name": group_id, "configuration_keys": [CONFIG]}
    answer = await connection.ask(
        "DescribeConfigs", 4, resources=[request], include_synonyms=False, include_documentation=False
    )
    (config,) = answer["results"][0]["configs"]
    value: str | None = config["value"]
    return value


async def assert_told_alike(through: Connection, direct: Connection, group_id: str, type_name: str) -> None:
    """Check that the sidecar refuses it like the broker."""
    for version in (4, 5, 6):
        assert await described(through, group_id, version) == await described(direct, group_id, version)
    for types in ((), ("classic",), ("classic", type_name)):
        assert await listed(through, group_id, *types) == await listed(direct, group_id, *types)


@pytest.mark.parametrize("heartbeat", [consumer, share, streams], ids=lambda heartbeat: heartbeat.__name__)
async def test_a_group_that_is_of_another_type_upstream_is_the_brokers(
    front: Front, direct_member: DirectMember, heartbeat: Heartbeat
) -> None:
    """With and without members: what Muster knows of it is not shown as that group, nor deleted with it."""
    async with talking(front.muster.bootstrap) as through, talking(front.broker.bootstrap) as direct:
        group_id = await once_ours(front, through, direct)
        assert (await described(through, group_id, 5))["group_state"] == "Empty"

        await direct_member.beat(heartbeat, group_id, JOINS)
        await assert_told_alike(through, direct, group_id, heartbeat.__name__)
        assert await deleted(through, group_id) == NON_EMPTY_GROUP
        assert await setting(through, group_id) == VALUE

        await direct_member.beat(heartbeat, group_id, LEAVES)
        await assert_told_alike(through, direct, group_id, heartbeat.__name__)
        assert await deleted(through, group_id) == 0
        assert await setting(through, group_id) == VALUE

        assert (await described(through, group_id, 5))["group_state"] == "Empty"
        assert await deleted(through, group_id) == 0
        assert await listed(through, group_id) == []
