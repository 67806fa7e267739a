"""For tests of administrators' requests: a sidecar in front of a real broker, and groups on both sides of it.

It creates groups, and waits until the broker has them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from typing import Any, Final
from uuid import uuid4

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without saying so

from tests.brokers.broker import Broker, lasting_base
from tests.conformance.member import subscription
from tests.conformance.wire import Connection, Fields, ms
from tests.muster_process import MusterProcess, running_muster

PARTITIONS: Final = 3
WITHIN_S: Final = 30.0
CHECK_INTERVAL_S: Final = 0.02
_SESSION_MS: Final = 60_000


class Front(msgspec.Struct, frozen=True, kw_only=True):
    """`muster` in front of `broker`; `topic` exists for this test alone."""

    broker: Broker
    muster: MusterProcess
    topic: str


@contextmanager
def front_of(broker: Broker) -> Iterator[Front]:
    """A sidecar for one module."""
    topic = new_name("topic")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WITHIN_S)
    asyncio.run(until_coordinated(broker.bootstrap))
    options = ["--upstream", broker.bootstrap, "--broker-base-port", str(lasting_base())]
    with running_muster(log="memory:", options=options) as muster:
        yield Front(broker=broker, muster=muster, topic=topic)


async def until_coordinated(bootstrap: str) -> None:
    """Wait until the broker coordinates groups: it creates the offsets topic on first use."""
    async with talking(bootstrap) as connection, asyncio.timeout(WITHIN_S):
        while True:
            found = await connection.ask("FindCoordinator", 4, key_type=0, coordinator_keys=["any"])
            (coordinator,) = found["coordinators"]
            if coordinator["error_code"] == 0:
                async with talking(f"{coordinator['host']}:{coordinator['port']}") as requested:
                    response = await requested.ask(
                        "DescribeGroups", 5, groups=["any"], include_authorized_operations=False
                    )
                if response["groups"][0]["error_code"] == 0:
                    return
            await asyncio.sleep(CHECK_INTERVAL_S)


def new_name(what: str) -> str:
    """A unique name."""
    return f"{what}-{uuid4().hex[:8]}"


@asynccontextmanager
async def talking(bootstrap: str) -> AsyncIterator[Connection]:
    """A connection while the block lasts."""
    connection = await Connection.open(bootstrap, client_id="admin")
    try:
        yield connection
    finally:
        connection.close()


class Member:
    """The only member of a group, static, so that it is the same on both sides."""

    def __init__(self, connection: Connection, group_id: str, joined: Fields) -> None:
        self.connection = connection
        self.group_id = group_id
        self._me: dict[str, Any] = {"member_id": joined["member_id"], "group_instance_id": "one"}
        self._generation_id: int = joined["generation_id"]

    def on(self, connection: Connection) -> "Member":
        """The same member on another connection."""
        same = copy(self)
        same.connection = connection
        return same

    async def commit(self, topic: str, offsets: Mapping[int, int]) -> list[int]:
        """Return the error of each partition."""
        return await _commit(
            self.connection, self.group_id, topic, offsets, generation_id=self._generation_id, **self._me
        )

    async def leave(self) -> None:
        """Leave; the group is Empty then."""
        left = await self.connection.ask(
            "LeaveGroup", 5, group_id=self.group_id, members=[{**self._me, "reason": "done"}]
        )
        assert [each["error_code"] for each in left["members"]] == [0], left


async def formed(connection: Connection, group_id: str, topic: str) -> Member:
    """A stable group of one member that subscribes to the topic."""
    body: dict[str, Any] = {
        "group_id": group_id,
        "session_timeout": ms(_SESSION_MS),
        "rebalance_timeout": ms(_SESSION_MS),
        "member_id": "",
        "group_instance_id": "one",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(topic)}],
        "reason": None,
    }
    joined = await connection.ask("JoinGroup", 9, **body)
    assert joined["error_code"] == 0, joined
    synced = await connection.ask(
        "SyncGroup",
        5,
        **{name: body[name] for name in ("group_id", "group_instance_id", "protocol_type")},
        generation_id=joined["generation_id"],
        member_id=joined["member_id"],
        protocol_name="range",
        assignments=[{"member_id": joined["member_id"], "assignment": b"\x00\x00all"}],
    )
    assert synced["error_code"] == 0, synced
    return Member(connection, group_id, joined)


async def emptied(connection: Connection, group_id: str, topic: str, offsets: Mapping[int, int]) -> None:
    """A group whose member has committed and left."""
    member = await formed(connection, group_id, topic)
    assert set(await member.commit(topic, offsets)) == {0}
    await member.leave()


async def committed_by_nobody(connection: Connection, group_id: str, topic: str, offsets: Mapping[int, int]) -> None:
    """A group that has never had a member."""
    errors = await _commit(connection, group_id, topic, offsets, generation_id=-1, member_id="", group_instance_id=None)
    assert set(errors) == {0}


async def _commit(
    connection: Connection, group_id: str, topic: str, offsets: Mapping[int, int], *, generation_id: int, **me: Any
) -> list[int]:
    partitions = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        for partition, offset in offsets.items()
    ]
    answer = await connection.ask(
        "OffsetCommit",
        9,
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        topics=[{"name": topic, "partitions": partitions}],
        **me,
    )
    return [each["error_code"] for each in answer["topics"][0]["partitions"]]


async def committed(connection: Connection, group_id: str, topic: str) -> dict[int, int]:
    """The committed offsets of the topic, by partition."""
    request = {"name": topic, "partition_indexes": list(range(PARTITIONS))}
    answer = await connection.ask(
        "OffsetFetch", 8, groups=[{"group_id": group_id, "topics": [request]}], require_stable=False
    )
    (group,) = answer["groups"]
    return {
        each["partition_index"]: each["committed_offset"]
        for topic in group["topics"]
        for each in topic["partitions"]
        if each["committed_offset"] >= 0
    }


async def until_empty_at(broker: Broker, group_id: str) -> None:
    """Wait until the broker has no member in the group."""
    async with talking(broker.bootstrap) as connection, asyncio.timeout(WITHIN_S):
        while True:
            answer = await connection.ask("DescribeGroups", 5, groups=[group_id], include_authorized_operations=False)
            if answer["groups"][0]["group_state"] == "Empty":
                return
            await asyncio.sleep(CHECK_INTERVAL_S)
