"""The parties of a test with a real broker: Muster processes, and clients that connect to the broker directly.

It sends their requests; the tests check the responses.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from kio.schema.consumer_group_heartbeat.v0.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v0.response import ConsumerGroupHeartbeatResponse
from kio.schema.errors import ErrorCode
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.schema.types import GroupId as KafkaGroupId
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta

from muster.coordinator.upstream.shadow import CommitIdentity, ShadowName
from muster.coordinator.upstream.shadows import Shadows
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from tests.conformance.wire import Connection, ms

TOPIC: Final = "followed-upstream"
WITHIN_S: Final = 30.0


NAME: Final = ShadowName.of("log-of-ours")
ANOTHER: Final = ShadowName.of("log-of-another")


class Process:
    """One of our processes, or another service's by its `name`: its link, its shadows, and the reported events."""

    def __init__(self, bootstrap: str, name: ShadowName = NAME, **settings: int) -> None:
        self.lost: list[tuple[GroupId, str]] = []
        self.failures: list[Exception] = []
        self.link = UpstreamLink(bootstrap, give_up=self.failures.append)
        self.shadows = Shadows(
            self.link,
            name,
            lost=lambda group_id, reason: self.lost.append((group_id, reason)),
            give_up=self.failures.append,
            **settings,
        )

    async def bump_to(self, group_id: GroupId, generation_id: int) -> CommitIdentity:
        """Bump to another generation of ours; return its identity."""
        self.shadows.update_generation(group_id, generation_id=generation_id, is_wanted=True)
        await self.shadows.wait_bumped(group_id, generation_id)
        identity = self.shadows.commit_identity(group_id, generation_id)
        assert identity is not None
        return identity

    async def own(self, group_id: GroupId, generation_id: int = 1) -> CommitIdentity:
        """Take a group, and bump it for its first generation."""
        assert await self.shadows.take(group_id) is None
        return await self.bump_to(group_id, generation_id)


@asynccontextmanager
async def process(bootstrap: str, name: ShadowName = NAME, **settings: int) -> AsyncIterator[Process]:
    """One of our processes, or another service's, until the block ends. Checks that it reported no failure."""
    started = Process(bootstrap, name, **settings)
    await started.link.open()
    try:
        yield started
    finally:
        await started.shadows.close()
        await started.link.close()
    assert started.failures == []


def unexpected(error: Exception) -> None:
    """Callback for failures in the background, where there must be none."""
    raise AssertionError("nothing may fail unheard") from error


def new_group() -> GroupId:
    """A unique name."""
    return GroupId(f"followed-{uuid.uuid4().hex[:12]}")


class Direct:
    """A client that is connected to the broker directly."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create_topic(self) -> None:
        """Create the topic of the commits."""
        topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        created = await self.ask("CreateTopics", 5, topics=[topic], timeout=ms(20_000), validate_only=False)
        assert created["topics"][0]["error_code"] in {0, 36}

    async def ask(self, name: str, version: int, **body: Any) -> dict[str, Any]:
        return await self._connection.ask(name, version, **body)

    async def commit(self, group_id: str, identity: CommitIdentity | None = None, *, offset: int = 7) -> int:
        """The error of a commit, without a member or with an identity of ours."""
        who = (identity.generation_id, identity.member_id, identity.group_instance_id) if identity else (-1, "", None)
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
        answer = await self.ask(
            "OffsetCommit",
            9,
            group_id=group_id,
            generation_id_or_member_epoch=who[0],
            member_id=who[1],
            group_instance_id=who[2],
            topics=[{"name": TOPIC, "partitions": [partition]}],
        )
        error: int = answer["topics"][0]["partitions"][0]["error_code"]
        return error

    async def committed(self, group_id: str) -> int:
        """The committed offset of a group at the broker, -1 for none."""
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        groups = [{"group_id": group_id, "topics": topics}]
        answer = await self.ask("OffsetFetch", 8, groups=groups, require_stable=False)
        offset: int = answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"]
        return offset

    async def join(self, group_id: str, **changed: Any) -> dict[str, Any]:
        """JoinGroup of a consumer, repeated with the returned member id if one is required."""
        body: dict[str, Any] = {
            "group_id": group_id,
            "session_timeout": ms(60_000),
            "rebalance_timeout": ms(60_000),
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        } | changed
        answer = await self.ask("JoinGroup", 9, **body)
        if answer["error_code"] == 79:
            return await self.ask("JoinGroup", 9, **(body | {"member_id": answer["member_id"]}))
        return answer

    async def remove_shadow(self, group_id: str) -> int:
        """Send the same request as removeMembersFromConsumerGroup."""
        member = {"member_id": "", "group_instance_id": NAME.group_instance_id, "reason": None}
        answer = await self.ask("LeaveGroup", 5, group_id=group_id, members=[member])
        error: int = answer["members"][0]["error_code"]
        return error

    async def members(self, group_id: str) -> list[tuple[str | None, str]]:
        """The instance id and the member id of each member of a classic group."""
        answer = await self.ask("DescribeGroups", 5, groups=[group_id], include_authorized_operations=False)
        return [(each["group_instance_id"], each["member_id"]) for each in answer["groups"][0]["members"]]


@asynccontextmanager
async def speaking_directly(bootstrap: str) -> AsyncIterator[Direct]:
    """A direct client of the broker, until the block ends; the topic of the commits exists."""
    connection = await Connection.open(bootstrap, client_id="direct")
    speaker = Direct(connection)
    await speaker.create_topic()
    try:
        yield speaker
    finally:
        connection.close()


async def newer_heartbeat(process: Process, group_id: str) -> ConsumerGroupHeartbeatResponse:
    """The first heartbeat of a consumer of the newer protocol (KIP-848)."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=KafkaGroupId(group_id),
        member_id=uuid.uuid4().hex,
        member_epoch=i32(0),
        rebalance_timeout=i32Timedelta.parse(ms(60_000)),
        subscribed_topic_names=(TopicName(TOPIC),),
        topic_partitions=(),
    )
    return await process.link.ask_coordinator(
        group_id, request, ConsumerGroupHeartbeatResponse, error_of=lambda answer: answer.error_code
    )


async def share_heartbeat(process: Process, group_id: str, *, member_epoch: int, member_id: str | None = None) -> str:
    """A heartbeat in a share group (KIP-932): the first, or the last one. Returns its member id."""
    member_id = member_id or str(uuid.uuid4())
    request = ShareGroupHeartbeatRequest(
        group_id=KafkaGroupId(group_id),
        member_id=member_id,
        member_epoch=i32(member_epoch),
        subscribed_topic_names=(TopicName(TOPIC),),
    )
    answer = await process.link.ask_coordinator(
        group_id, request, ShareGroupHeartbeatResponse, error_of=lambda answer: answer.error_code
    )
    assert answer.error_code is ErrorCode.none
    return member_id
