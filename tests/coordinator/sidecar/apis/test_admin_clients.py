"""AdminClients through the sidecar, with our groups and others in one call."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from muster.coordinator.client.group_admin import GroupAdmin
from muster.coordinator.group.outcomes import Standing
from tests.brokers.broker import Broker
from tests.clients.consumers import Confluent, KafkaPython, RunningConsumer
from tests.conformance.wire import Connection
from tests.coordinator.sidecar.admin_stage import (
    PARTITIONS,
    Front,
    Member,
    formed,
    front_of,
    new_name,
    talking,
    until_empty_at,
)
from tests.waiting import until_so

pytestmark = [pytest.mark.broker, pytest.mark.clients]

STEPS_OUT, CONNECTIONS = 10, 8
"""How often offsets are deleted while a member commits, and on how many connections it does."""
WITHIN_S = 30


@pytest.fixture(scope="module")
def front(kafka_broker: Broker) -> Iterator[Front]:
    with front_of(kafka_broker) as front:
        yield front


@pytest.fixture(scope="module")
def groups(front: Front) -> Iterator[dict[str, str]]:
    """Groups by kind: `ours` and `theirs` have members; `left` was ours, and its member has left."""
    names = {kind: new_name(kind) for kind in ("ours", "theirs", "left")}
    consumers: list[RunningConsumer] = [
        Confluent(front.muster.bootstrap, names["ours"], front.topic, instance="web-1").start(),
        KafkaPython(front.broker.bootstrap, names["theirs"], front.topic).start(),
        Confluent(front.muster.bootstrap, names["left"], front.topic).start(),
    ]
    try:
        until_so(
            lambda: all(len(each.assigned) == PARTITIONS for each in consumers),
            lambda: [(each.assigned, each.error) for each in consumers],
        )
        for consumer in consumers:
            consumer.commit(1, 5)
        consumers.pop().close()
        yield names
    finally:
        for consumer in consumers:
            consumer.end()


@pytest.fixture
def admin(front: Front) -> AdminClient:
    return AdminClient({"bootstrap.servers": front.muster.bootstrap})


def test_confluent_lists_and_describes_all_the_same(front: Front, groups: dict[str, str], admin: AdminClient) -> None:
    """Each group once, with its members' actual state."""
    listed = admin.list_consumer_groups(request_timeout=WITHIN_S).result()
    assert listed.errors == []
    mine = sorted(each.group_id for each in listed.valid if each.group_id in groups.values())
    assert mine == sorted(groups.values())
    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}, request_timeout=WITHIN_S).result().valid
    found = {each.group_id for each in stable} & set(groups.values())
    assert found == {groups["ours"], groups["theirs"]}

    requested = admin.describe_consumer_groups(list(groups.values()), request_timeout=WITHIN_S)
    described = {kind: requested[group_id].result() for kind, group_id in groups.items()}
    assert [(each.state, len(each.members)) for each in described.values()] == [
        (ConsumerGroupState.STABLE, 1),
        (ConsumerGroupState.STABLE, 1),
        (ConsumerGroupState.EMPTY, 0),
    ]
    assert described["ours"].members[0].group_instance_id == "web-1"
    assert {each.partition_assignor for each in described.values()} == {"range", ""}
    assert {each.coordinator.port for each in described.values()} != {int(front.broker.bootstrap.split(":")[1])}


def test_kafka_python_lists_describes_and_reads_offsets(front: Front, groups: dict[str, str]) -> None:
    """The results are those for Kafka's own groups."""
    client = kafka.KafkaAdminClient(bootstrap_servers=front.muster.bootstrap)
    try:
        names = [each["group_id"] for each in client.list_groups()]
        assert sorted(name for name in names if name in groups.values()) == sorted(groups.values())
        described = client.describe_groups(list(groups.values()))
        states = {kind: described[group_id]["group_state"] for kind, group_id in groups.items()}
        assert states == {"ours": "Stable", "theirs": "Stable", "left": "Empty"}
        offsets = client.list_group_offsets(list(groups.values()))
        for group_id in groups.values():
            assert offsets[group_id][kafka.TopicPartition(front.topic, 1)].offset == 5
    finally:
        client.close()


def test_offsets_are_set_and_read_through_the_sidecar(front: Front, groups: dict[str, str], admin: AdminClient) -> None:
    """Offsets of a group without members can be set; those of a group with members cannot, on either side."""

    def set_to(group_id: str, offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(front.topic, 2, offset)])
        (future,) = admin.alter_consumer_group_offsets([wanted], request_timeout=WITHIN_S).values()
        (reported,) = future.result().topic_partitions
        if reported.error:
            raise KafkaException(reported.error)

    set_to(groups["left"], 9)
    requested = ConsumerGroupTopicPartitions(groups["left"], [TopicPartition(front.topic, 2)])
    (future,) = admin.list_consumer_group_offsets([requested], request_timeout=WITHIN_S).values()
    assert [each.offset for each in future.result().topic_partitions] == [9]
    for kind in ("ours", "theirs"):
        with pytest.raises(KafkaException) as refused:
            set_to(groups[kind], 9)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID


def test_settings_are_altered_and_described_by_confluent(groups: dict[str, str], admin: AdminClient) -> None:
    """Ours and Kafka's of one group in one call."""
    resource = ConfigResource(
        ConfigResource.Type.GROUP,
        groups["ours"],
        incremental_configs=[
            ConfigEntry("members.learner.timeout.ms", "60000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("consumer.session.timeout.ms", "50000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    (altered,) = admin.incremental_alter_configs([resource], request_timeout=WITHIN_S).values()
    altered.result()
    requested = ConfigResource(ConfigResource.Type.GROUP, groups["ours"])

    def reported() -> tuple[str, str]:
        (described,) = admin.describe_configs([requested], request_timeout=WITHIN_S).values()
        entries = described.result()
        return entries["members.learner.timeout.ms"].value, entries["consumer.session.timeout.ms"].value

    until_so(
        lambda: reported() == ("60000", "50000"), reported
    )  # a broker shows a change when it has followed the controller


async def test_members_are_administered_through_the_sidecar(front: Front, groups: dict[str, str]) -> None:
    """Everything that `muster members` does: listing, registering, withdrawing, settings, removing."""
    async with GroupAdmin(front.muster.bootstrap) as members:
        (added,) = await members.add_members_to_group(groups["ours"], ["web-2"])
        assert added.done, added
        standing = {each.group_instance_id: each.standing for each in await members.list_members(groups["ours"])}
        assert standing == {"web-1": Standing.ACTIVE, "web-2": Standing.EXPECTED}
        (withdrawn,) = await members.withdraw_registrations(groups["ours"], ["web-2"])
        assert withdrawn.done, withdrawn
        await members.set_target_group_size(groups["ours"], 4)
        settings = {each.name: each.value for each in await members.describe_group_config(groups["ours"])}
        assert settings["target.group.size"] == "4"
        (unknown,) = await members.remove_members_from_group(groups["ours"], ["nobody"])
        assert not unknown.done


async def test_a_group_with_settings_alone_is_listed(front: Front) -> None:
    """Upstream has deleted it with its last offset; the broker that would coordinate it lists it all the same."""
    group_id = new_name("forgotten")
    async with talking(front.muster.bootstrap) as through, talking(front.broker.bootstrap) as direct:
        member = await formed(through, group_id, front.topic)
        await member.leave()

        async def listed() -> list[str]:
            answer = await through.ask("ListGroups", 5, states_filter=["Empty"], types_filter=[])
            return [
                f"{each['protocol_type']} {each['group_type']}"
                for each in answer["groups"]
                if each["group_id"] == group_id
            ]

        await until_empty_at(front.broker, group_id)
        assert (await direct.ask("DeleteGroups", 2, groups_names=[group_id]))["results"][0]["error_code"] == 0
        assert await listed() == ["consumer classic"]
        response = await through.ask("DescribeGroups", 6, groups=[group_id], include_authorized_operations=True)
        (described,) = response["groups"]
        assert (described["error_code"], described["group_state"], described["protocol_type"]) == (
            0,
            "Empty",
            "consumer",
        )
        assert described["authorized_operations"] > 0
        deleted = await through.ask("DeleteGroups", 2, groups_names=[group_id])
        assert deleted["results"][0]["error_code"] == 0
        assert await listed() == []


def test_commits_wait_while_offsets_are_deleted(front: Front) -> None:
    """A member keeps committing while an administrator deletes offsets of its group: some commits wait, none is
    refused.

    It uses several connections, so that a commit is in flight whenever the shadow is about to be withdrawn; and the
    administrator asks twice in a row, so that it finds the shadow joining again.
    """
    group_id = new_name("busy")
    durations: list[float] = []
    refused: list[int] = []
    deleting, has_gone_on = threading.Event(), threading.Event()

    async def commit_on(member: Member, connection: Connection) -> None:
        while deleting.is_set():
            began = time.monotonic()
            errors = await member.on(connection).commit(front.topic, {0: len(durations), 1: 1})
            durations.append(time.monotonic() - began)
            has_gone_on.set()
            refused.extend(each for each in errors if each)

    async def be_member() -> None:
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(talking(front.muster.bootstrap)) for _ in range(CONNECTIONS)]
            member = await formed(connections[0], group_id, "another-topic")
            deleting.set()
            await asyncio.gather(*(commit_on(member, each) for each in connections))
            await member.leave()

    committing = threading.Thread(target=lambda: asyncio.run(be_member()))
    committing.start()
    try:
        assert deleting.wait(WITHIN_S)
        for _ in range(STEPS_OUT):
            for _ in range(2):
                asyncio.run(_delete_offset(front, group_id))
            has_gone_on.clear()
            assert has_gone_on.wait(WITHIN_S)
    finally:
        deleting.clear()
        committing.join(WITHIN_S)
    assert refused == []
    assert max(durations) > 0.02, "no commit has met a shadow that was out: upstream's join phase takes 50 ms"


async def _delete_offset(front: Front, group_id: str) -> None:
    topics = [{"name": front.topic, "partitions": [{"partition_index": 1}]}]
    async with talking(front.muster.bootstrap) as connection:
        answer = await connection.ask("OffsetDelete", 0, group_id=group_id, topics=topics)
    assert answer["error_code"] == 0, answer
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer
