"""Two sidecars share the log of one cluster: members of one group are at both, whichever owns it."""

import asyncio
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from uuid import uuid4

import msgspec
import pytest
from typer.testing import CliRunner

from muster.cli import app
from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from tests.brokers.broker import HOST, Broker, log_tail
from tests.clients.consumers import Confluent, RunningConsumer
from tests.clients.crew import ALL, Crew, crew
from tests.clients.probe import until_stable
from tests.clients.through_sidecar.member import NO_COORDINATOR_YET, Member, settle
from tests.clients.through_sidecar.sidecar import assert_is_owned, new_topic, offsets_at, produce
from tests.clients.through_sidecar.test_consumers import goes_on_where_it_was, until_consumed
from tests.conformance.wire import Connection, Fields, ms
from tests.muster_process import MusterProcess
from tests.sharing_processes import sharing_sidecar, until_shared
from tests.waiting import WITHIN_S, until_so

pytestmark = [pytest.mark.clients, pytest.mark.broker]

LOG_PARTITIONS = 4
ANSWERED_WITHIN_S = 20.0
"""Some 4 s, doubled for a busy machine."""
NODE_IDS = (1, 2)


class Sidecars(msgspec.Struct, frozen=True):
    """Two sidecars, by node id, and the broker behind both."""

    broker: Broker
    by_node: dict[int, MusterProcess]
    secret: Path

    def owner_of(self, group_id: str) -> int:
        """The node id of the group's owner, from the sidecars' latest log lines."""
        number = partition_for(GroupId(group_id), LOG_PARTITIONS)
        return next(
            node_id
            for node_id, process in self.by_node.items()
            if number in process.events("partitions shared")[-1]["ours"]
        )

    def group_of(self, node_id: int) -> str:
        """A new group id whose owner is this node."""
        while self.owner_of(group_id := f"shared-{uuid4().hex[:8]}") != node_id:
            pass
        return group_id

    def other(self, node_id: int) -> int:
        return next(each for each in NODE_IDS if each != node_id)

    def frontend(self, node_id: int, *more: str, secret: Path | None = None) -> AbstractContextManager[MusterProcess]:
        """A frontend that owns nothing, while the block lasts; `more`: options."""
        return sharing_sidecar(
            self.broker.bootstrap,
            self.by_node[1].log,
            node_id,
            secret=secret or self.secret,
            partitions=LOG_PARTITIONS,
            options=["--role", "edge", *more],
        )


@contextmanager
def sharing_sidecars(broker: Broker, directory: Path) -> Iterator[Sidecars]:
    """Start both, and wait until each has its share."""
    secret = directory / "secret"
    secret.write_text(secrets.token_hex(32))
    log = f"kafka://{broker.bootstrap}/shared-{uuid4().hex[:8]}"
    with ExitStack() as stack:
        by_node = {
            node_id: stack.enter_context(
                sharing_sidecar(broker.bootstrap, log, node_id, secret=secret, partitions=LOG_PARTITIONS)
            )
            for node_id in NODE_IDS
        }
        until_shared(*by_node.values(), partitions=LOG_PARTITIONS)
        yield Sidecars(broker, by_node, secret)


@pytest.fixture(scope="module")
def sidecars(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecars]:
    with sharing_sidecars(kafka_broker, tmp_path_factory.mktemp("peers")) as both:
        yield both


@contextmanager
def crew_at(
    sidecars: Sidecars, node_id: int, *, owner: int, library: type[RunningConsumer] = Confluent
) -> Iterator[Crew]:
    """A group of the owner's, whose first consumers are at this node."""
    topic = new_topic(sidecars.broker.bootstrap)
    with crew(sidecars.by_node[node_id], library, topic) as group:
        group.group_id = sidecars.group_of(owner)
        yield group


def test_consumers_at_both_form_one_group(sidecars: Sidecars) -> None:
    """Each has its share, commits what it consumed, and continues there after a static restart."""
    with crew_at(sidecars, 1, owner=2) as group:
        first = group.add("one")
        group.bootstrap = sidecars.by_node[2].bootstrap
        second = group.add("two")
        group.until_shared()
        assert_is_owned(sidecars.broker.bootstrap, group.group_id)
        produce(sidecars.broker.bootstrap, group.topic, "before")
        until_consumed(group.consumers, "before")
        for consumer in (first, second):
            for partition in consumer.assigned:
                consumer.commit(partition, 1)
        assert offsets_at(sidecars.broker.bootstrap, group.group_id, group.topic) == dict.fromkeys(ALL, 1)
        generation = group.generation
        group.close(first)
        group.bootstrap = sidecars.by_node[1].bootstrap
        group.add("one")
        group.until_shared()
        assert group.generation == generation


def test_consumers_whose_owner_is_the_other_process_restart(sidecars: Sidecars, library: type[RunningConsumer]) -> None:
    """The Python libraries, all of whose requests are forwarded: a static restart causes no rebalance."""
    with crew_at(sidecars, 1, owner=2, library=library) as group:
        goes_on_where_it_was(group, sidecars.broker.bootstrap, is_static=True)


async def _request(address: str, api: str, version: int, **fields: object) -> Fields:
    connection = await Connection.open(address)
    try:
        return await connection.ask(api, version, **fields)
    finally:
        connection.close()


def test_groups_of_both_are_described_listed_and_deleted_through_one(sidecars: Sidecars) -> None:
    """One request for groups of two owners gets a complete response at either."""
    group_ids = [sidecars.group_of(node_id) for node_id in NODE_IDS]
    address = sidecars.by_node[1].bootstrap

    async def scene() -> None:
        members = []
        for group_id in group_ids:
            member = Member(await Connection.open(address), group_id, "orders")
            await member.take_part()
            assert member.is_in
            members.append(member)
        for node_id in NODE_IDS:
            at = sidecars.by_node[node_id].bootstrap
            answer = await _request(at, "DescribeGroups", 5, groups=group_ids, include_authorized_operations=False)
            reported = {each["group_id"]: (each["error_code"], each["group_state"]) for each in answer["groups"]}
            assert reported == dict.fromkeys(group_ids, (0, "Stable"))
            listed = await _request(at, "ListGroups", 4, states_filter=[])
            states = {
                each["group_id"]: each["group_state"] for each in listed["groups"] if each["group_id"] in reported
            }
            assert states == dict.fromkeys(group_ids, "Stable")
        refused = await _request(address, "DeleteGroups", 2, groups_names=group_ids)
        assert {each["group_id"]: each["error_code"] for each in refused["results"]} == dict.fromkeys(group_ids, 68)
        for member in members:
            left = {"member_id": member.member_id, "group_instance_id": None, "reason": None}
            answer = await member.connection.ask("LeaveGroup", 5, group_id=member.group_id, members=[left])
            assert answer["members"][0]["error_code"] == 0
            member.connection.close()
        deleted = await _request(address, "DeleteGroups", 2, groups_names=group_ids)
        assert {each["group_id"]: each["error_code"] for each in deleted["results"]} == dict.fromkeys(group_ids, 0)

    asyncio.run(scene())


def test_an_edge_owns_nothing_and_forwards_all(sidecars: Sidecars) -> None:
    """Its clients are members of groups of both owners; no partition moves when it starts or stops."""
    before = {node_id: each.events("partitions shared")[-1]["ours"] for node_id, each in sidecars.by_node.items()}
    with sidecars.frontend(3) as running:
        for owner in NODE_IDS:
            with crew(running, Confluent, new_topic(sidecars.broker.bootstrap)) as group:
                group.group_id = sidecars.group_of(owner)
                group.add("one")
                group.add("two")
                group.until_shared()
        assert running.events("partitions shared")[-1]["ours"] == []
        assert running.events("partition ready") == []
    after = {node_id: each.events("partitions shared")[-1]["ours"] for node_id, each in sidecars.by_node.items()}
    assert after == before


def test_an_edge_hears_at_once_that_an_owner_is_gone(kafka_broker: Broker, tmp_path: Path) -> None:
    """Otherwise all members of the ownership group would be awaited, and its own next heartbeat is in a minute and a
    half.
    """
    seldom = ("--owner-session-timeout-ms", "1800000")
    with sharing_sidecars(kafka_broker, tmp_path) as sidecars, sidecars.frontend(3, *seldom) as frontend:
        until_so(lambda: frontend.events("partitions shared")[-1:], lambda: log_tail(frontend.output))
        assert frontend.events("partitions shared")[-1]["nodes"] == [1, 2]
        sidecars.by_node[2].kill()
        until_so(
            lambda: frontend.events("partitions shared")[-1]["nodes"] == [1],
            lambda: log_tail(frontend.output) + log_tail(sidecars.by_node[1].output),
        )


def test_an_edge_with_another_secret_is_not_ready_and_reports_it_everywhere(sidecars: Sidecars, tmp_path: Path) -> None:
    """In /readyz, in its metrics and in `muster status`; with the others' secret it is ready, without a restart."""
    secret = tmp_path / "secret"
    secret.write_text(secrets.token_hex(32))
    with sidecars.frontend(4, "--metrics", f"{HOST}:0", secret=secret) as frontend:

        def not_ready() -> str:
            try:
                return frontend.asked("/readyz")
            except HTTPError as error:
                return error.read().decode()

        until_so(lambda: not_ready().count("different peer secrets") == len(NODE_IDS), not_ready)
        assert "this process has reached no owner of a partition for " in not_ready()
        metrics = frontend.asked("/metrics")
        assert 'muster_peer_links{state="not-reached"} 2.0' in metrics
        assert "muster_ready 0.0" in metrics
        assert "muster_owners_not_reached_seconds 0.0" not in metrics
        address = frontend.wait_for_event("metrics")["listen"]
        result = CliRunner().invoke(app, ["status", address, "--format", "json"])
        assert result.exit_code == 1
        assert result.stdout.count('"it cannot reach node') == len(NODE_IDS)
        secret.write_text(sidecars.secret.read_text())
        until_so(lambda: not_ready() == "ready\n", not_ready)
        assert 'muster_peer_links{state="reached"} 2.0' in frontend.asked("/metrics")


def test_consumers_of_the_newer_protocol_are_answered_through_both(sidecars: Sidecars) -> None:
    """KIP-848: by the broker if the group is free, and told to retry if it has members of the classic protocol."""

    async def scene() -> None:
        for node_id in NODE_IDS:
            free, taken = sidecars.group_of(node_id), sidecars.group_of(node_id)
            member = Member(await Connection.open(sidecars.by_node[node_id].bootstrap), taken, "orders")
            await member.take_part()
            for at in NODE_IDS:
                address = sidecars.by_node[at].bootstrap
                for group_id, error in ((free, 0), (taken, NO_COORDINATOR_YET[1])):
                    answer = await _request(address, "ConsumerGroupHeartbeat", 0, **_joins(group_id, f"member-{at}"))
                    assert answer["error_code"] == error, answer
            member.connection.close()

    asyncio.run(scene())


def _joins(group_id: str, member_id: str) -> dict[str, object]:
    return {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": ms(60_000),
        "subscribed_topic_names": ("orders",),
        "server_assignor": None,
        "topic_partitions": (),
    }


def test_members_keep_their_place_when_the_owner_restarts(kafka_broker: Broker, tmp_path: Path) -> None:
    """It hands its groups over, and gets its share again, cleanly both times."""
    with sharing_sidecars(kafka_broker, tmp_path) as sidecars, crew_at(sidecars, 1, owner=2) as group:
        first, second = group.add("one"), group.add()
        group.until_shared()
        generation, assignments = group.generation, (first.assignments, second.assignments)
        assert sidecars.by_node[2].stop() == 0
        survivor = sidecars.by_node[1]
        assert len(survivor.events("partitions shared")[-1]["ours"]) == LOG_PARTITIONS
        until_stable(survivor.bootstrap, group.group_id, members=2)
        sidecars.by_node[2].start()
        until_shared(*sidecars.by_node.values(), partitions=LOG_PARTITIONS)
        until_stable(sidecars.by_node[2].bootstrap, group.group_id, members=2)
        produce(kafka_broker.bootstrap, group.topic, "after")
        until_consumed(group.consumers, "after")
        assert (group.generation, (first.assignments, second.assignments)) == (generation, assignments)


def test_members_keep_their_place_when_the_owner_is_killed(kafka_broker: Broker, tmp_path: Path) -> None:
    """They are connected to the other process, which takes their group over: same generation, no partition is
    revoked.
    """
    with sharing_sidecars(kafka_broker, tmp_path) as sidecars, crew_at(sidecars, 1, owner=2) as group:
        first, second = group.add("one"), group.add()
        group.until_shared()
        generation, assignments = group.generation, (first.assignments, second.assignments)
        sidecars.by_node[2].kill()
        survivor = sidecars.by_node[1]
        until_so(
            lambda: len(survivor.events("partitions shared")[-1]["ours"]) == LOG_PARTITIONS,
            lambda: log_tail(survivor.output),
        )
        until_stable(survivor.bootstrap, group.group_id, members=2)
        produce(kafka_broker.bootstrap, group.topic, "after")
        until_consumed(group.consumers, "after")
        for consumer in (first, second):
            for partition in consumer.assigned:
                consumer.commit(partition, 1)
        assert offsets_at(kafka_broker.bootstrap, group.group_id, group.topic) == dict.fromkeys(ALL, 1)
        assert (group.generation, (first.assignments, second.assignments)) == (generation, assignments)


@contextmanager
def suspended(process: MusterProcess) -> Iterator[None]:
    """Stopped by SIGSTOP: its connections stay open, and it is silent."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


async def until_heard(member: Member) -> None:
    """Each heartbeat is answered in time, and in the end one is accepted."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                answer = await member.send_heartbeat().get()
            if answer["error_code"] == 0:
                return
            assert answer["error_code"] in NO_COORDINATOR_YET
            await asyncio.sleep(0.1)


def test_members_continue_when_the_owner_is_suspended(kafka_broker: Broker, tmp_path: Path) -> None:
    """No request waits for it for ever; members that join meanwhile are in the next owner's group, and it disturbs
    nothing later.
    """
    with sharing_sidecars(kafka_broker, tmp_path) as sidecars:
        group_id, survivor, owner = sidecars.group_of(2), sidecars.by_node[1], sidecars.by_node[2]

        async def scene() -> None:
            first, second = [
                Member(await Connection.open(survivor.bootstrap), group_id, "orders", instance=name) for name in "ab"
            ]
            await first.take_part()
            assert first.is_in
            generation_id = first.generation_id
            with suspended(owner):
                async with asyncio.timeout(WITHIN_S):
                    while sidecars.owner_of(group_id) != 1:  # the frontend may answer the first heartbeats itself
                        await until_heard(first)
                        await asyncio.sleep(0.1)
                await until_heard(first)
                assert first.generation_id == generation_id
                await settle(first, second)
            generation_id = first.generation_id
            await asyncio.to_thread(lambda: until_shared(*sidecars.by_node.values(), partitions=LOG_PARTITIONS))
            for member in (first, second):
                await until_heard(member)
                assert member.generation_id == generation_id

        asyncio.run(scene())


def test_members_of_a_suspended_sidecar_are_answered_when_it_resumes(kafka_broker: Broker, tmp_path: Path) -> None:
    """The owner answers, which has a longer session for them."""
    with sharing_sidecars(kafka_broker, tmp_path) as sidecars:
        group_id, frontend = sidecars.group_of(2), sidecars.by_node[1]

        async def scene() -> None:
            member = Member(await Connection.open(frontend.bootstrap), group_id, "orders")
            await member.take_part()
            assert member.is_in
            with suspended(frontend):
                heartbeat = member.send_heartbeat()
                await asyncio.to_thread(lambda: until_shared(sidecars.by_node[2], partitions=LOG_PARTITIONS))
            assert (await heartbeat.get())["error_code"] in (0, *NO_COORDINATOR_YET)
            await until_heard(member)

        asyncio.run(scene())
