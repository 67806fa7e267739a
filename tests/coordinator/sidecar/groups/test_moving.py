"""`muster adopt` and `muster release` at a sidecar in front of a real broker: refusals, aborts, and what is kept."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka.errors
import confluent_kafka
import kafka.errors
import msgspec
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without saying so
from typer.testing import CliRunner

from muster import cli as command
from muster.coordinator.client.group_admin import GroupAdmin
from muster.coordinator.client.group_moves import described_move
from muster.coordinator.group.configs import COORDINATOR
from tests.brokers.broker import Broker, lasting_base
from tests.clients.consumers import LIBRARIES, Confluent, RunningConsumer
from tests.clients.probe import described
from tests.conformance.member import subscription
from tests.conformance.wire import Connection, Fields, ms
from tests.coordinator.sidecar.admin_stage import PARTITIONS, Front, new_name, talking
from tests.muster_process import running_muster, sqlite_log
from tests.waiting import until_so

pytestmark = [pytest.mark.broker, pytest.mark.clients]

WIDE = {"COLUMNS": "200", "TERM": "dumb", "MUSTER_BOOTSTRAP": ""}
SHADOW = "muster"
PATTERNS = ("moving-*", "orders")
MEANWHILE = (
    confluent_kafka.KafkaException,
    aiokafka.errors.CommitFailedError,
    aiokafka.errors.RebalanceInProgressError,
    kafka.errors.CommitFailedError,
    kafka.errors.RebalanceInProgressError,
)
"""Exceptions of a commit during a rebalance; confluent-kafka has one type for all errors."""
MEANWHILE_CODES = (
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
    confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID,
    confluent_kafka.KafkaError._ASSIGNMENT_LOST,
)
PAGE = (Path(__file__).parents[4] / "docs" / "moving-groups.md").read_text(encoding="utf-8")


class NewerConsumer(Confluent):
    """A consumer of the newer protocol (KIP-848), in which the broker assigns."""

    def _open(self) -> None:
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.group_id, "group.protocol": "consumer"}
        )
        self._consumer.subscribe(
            [self.topic],
            on_assign=lambda _, partitions: self._assigned_now(partitions),
            on_revoke=lambda _consumer, _partitions: None,
        )


@pytest.fixture(scope="module")
def front(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """On a file log, so that the sidecar can be restarted. It is only for groups that match a pattern."""
    directory: Path = tmp_path_factory.mktemp("moving")
    topic = new_name("topic")
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    at = ["--upstream", kafka_broker.bootstrap, "--broker-base-port", str(lasting_base())]
    for pattern in PATTERNS:
        at += ["--groups", pattern]
    with running_muster(log=sqlite_log(directory), options=at) as muster:
        yield Front(broker=kafka_broker, muster=muster, topic=topic)


class Group:
    """A group of consumers that are connected to the sidecar, or to the broker."""

    def __init__(self, front: Front, name: str = "moving") -> None:
        self.front, self.group_id = front, new_name(name)
        self.consumers: list[RunningConsumer] = []

    def add(
        self, bootstrap: str, kind: type[RunningConsumer] = Confluent, *, instance: str | None = None
    ) -> RunningConsumer:
        consumer = kind(bootstrap, self.group_id, self.front.topic, instance=instance).start()
        self.consumers.append(consumer)
        return consumer

    def until_shared(self, protocol_type: str) -> None:
        """Wait until each has a partition, and upstream agrees."""

        def shared() -> bool:
            assert [each.error for each in self.consumers if each.error] == []
            shares = [each.assigned for each in self.consumers]
            is_there = self.protocol_type_upstream == protocol_type
            return is_there and all(shares) and sum(map(len, shares)) == PARTITIONS

        until_so(shared, lambda: ([each.assigned for each in self.consumers], self.protocol_type_upstream))

    def until_committed(self, offset: int) -> None:
        """Wait until each has committed its position. Commits fail during a rebalance, as usual."""
        refused: list[BaseException] = []

        def committed() -> bool:
            try:
                for each in self.consumers:
                    for partition in sorted(each.assigned)[:1]:
                        each.commit(partition, offset)
                        assert each.committed(partition) == offset
            except MEANWHILE as error:
                if isinstance(error, confluent_kafka.KafkaException) and error.args[0].code() not in MEANWHILE_CODES:
                    raise
                refused.append(error)
                return False
            return all(each.assigned for each in self.consumers)

        until_so(committed, lambda: refused[-3:])

    @property
    def protocol_type_upstream(self) -> str:
        return str(described(self.front.broker.bootstrap, self.group_id)["protocol_type"])

    def run(self, *arguments: str) -> tuple[int, str]:
        """The exit code, and the output on either stream."""
        at = ["--bootstrap", self.front.muster.bootstrap]
        done = CliRunner().invoke(command.app, [arguments[0], self.group_id, *arguments[1:], *at], env=WIDE)
        return done.exit_code, done.output

    def members(self, *arguments: str) -> tuple[int, str]:
        """`muster members COMMAND GROUP ARGUMENTS...`: the exit code, and the output."""
        at = ["--bootstrap", self.front.muster.bootstrap]
        arguments = ("members", arguments[0], self.group_id, *arguments[1:])
        done = CliRunner().invoke(command.app, [*arguments, *at], env=WIDE)
        return done.exit_code, done.output

    def coordinated(self) -> str:
        """The coordinator, from the last line of `muster members config`."""
        done = CliRunner().invoke(
            command.app, ["members", "config", self.group_id, "--bootstrap", self.front.muster.bootstrap], env=WIDE
        )
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()[-1].removeprefix(f"Group {self.group_id} is ")

    def coordinator(self) -> str | None:
        """The coordinator, from `muster members config`."""

        async def ask() -> str | None:
            async with GroupAdmin(self.front.muster.bootstrap) as admin:
                (reported,) = await admin.describe_group_config(self.group_id, (COORDINATOR,))
                return reported.value

        return asyncio.run(ask())


@pytest.fixture
def group(front: Front) -> Iterator[Group]:
    """A group that matches the sidecar's pattern."""
    made = Group(front)
    yield made
    for consumer in made.consumers:
        consumer.end()


def test_a_group_is_released_and_adopted_by_command(front: Front, group: Group) -> None:
    """The consequences for members are printed first; with --dry-run nothing else is done."""
    group.add(front.muster.bootstrap)
    group.until_shared(SHADOW)
    assert group.coordinated() == "coordinated by this Muster."
    code, result = group.run("release", "--dry-run")
    assert code == 0, result
    assert "its only member rejoins at the cluster upstream" in result
    assert group.protocol_type_upstream == SHADOW
    code, result = group.run("release", "--format", "json")
    (reported,) = msgspec.json.decode(result)["groups"]
    assert (code, reported["done"], reported["members"], reported["back"]) == (0, True, 1, 1), result
    group.until_shared("consumer")
    assert group.coordinator() == "upstream"
    assert group.coordinated() == "coordinated by the cluster upstream: it was released."
    assert (
        "this takes effect when Muster adopts the group" in group.members("config", "members.expansion.delay.ms=1s")[1]
    )
    for refused in (("add", "web-9"), ("rebalance",)):
        code, result = group.members(*refused)
        assert (code, "it was released, adopt it first" in result) == (1, True), result
    until_so(
        lambda: group.run("adopt", "--dry-run")[0] == 0, lambda: group.run("adopt", "--dry-run")
    )  # it may still join
    code, result = group.run("adopt", "--timeout", "2m")
    assert code == 0, result
    assert re.search(
        r"coordinated by this Muster: its only member has rejoined after .* s, the join phase follows", result
    )
    group.until_shared(SHADOW)
    assert group.coordinator() == "muster"
    assert "no member has to rejoin" in group.run("adopt")[1]


# Not mixed: where the cluster lists them in any order, kafka-python as a leader loses members (see the design notes).
@pytest.mark.parametrize("instances", [("web-1", "web-2", "web-3"), (None, None, None)], ids=["static", "dynamic"])
def test_members_of_all_libraries_move(front: Front, group: Group, instances: tuple[str | None, ...]) -> None:
    """In one group; each commits its position."""
    for kind, instance in zip(LIBRARIES, instances, strict=True):
        group.add(front.muster.bootstrap, kind, instance=instance)
    group.until_shared(SHADOW)
    for verb, there in (("release", "consumer"), ("adopt", SHADOW), ("release", "consumer")):
        before = [each.assignments for each in group.consumers]
        code, output = group.run(verb)
        assert (code, "all its 3 members have rejoined after" in output) == (0, True), output
        until_so(
            lambda before=before: all(  # type: ignore[misc]
                each.assignments > earlier for each, earlier in zip(group.consumers, before, strict=True)
            ),
            lambda: [(each.assignments, each.error) for each in group.consumers],
        )
        group.until_shared(there)
        group.until_committed(sum(before))


def test_the_commands_of_the_page(front: Front, group: Group) -> None:
    """Unchanged and in order, for a group whose members are connected to the sidecar."""
    group.group_id = "orders"
    group.add(front.muster.bootstrap)
    group.until_shared(SHADOW)
    commands = re.findall(r"^\$ muster (.+)$", PAGE, re.MULTILINE)
    assert [shlex.split(each)[0] for each in commands] == ["adopt", "adopt", "release", "release"]
    for each in commands:
        done = CliRunner().invoke(command.app, [*shlex.split(each), "--bootstrap", front.muster.bootstrap], env=WIDE)
        assert done.exit_code == 0, done.output
    group.until_shared("consumer")


def test_members_that_are_connected_elsewhere_are_named(front: Front, group: Group) -> None:
    """They would not be notified, and would keep partitions that others get."""
    group.add(front.broker.bootstrap)
    group.until_shared("consumer")
    group.add(front.muster.bootstrap)
    group.until_shared("consumer")
    until_so(lambda: "1 of its 2" in group.run("adopt", "--dry-run")[1], lambda: group.run("adopt", "--dry-run"))
    for arguments in (("adopt", "--dry-run"), ("adopt",)):
        code, output = group.run(*arguments)
        assert code == 1
        assert "1 of its 2 members was not seen here" in output
        assert re.search(r"rdkafka at [\d.]+\.", output)
    group.until_shared("consumer")


def test_a_group_of_the_newer_protocol_is_refused(front: Front, group: Group) -> None:
    """It has no classic members that could be sent here."""
    group.add(front.muster.bootstrap, NewerConsumer)
    until_so(lambda: bool(group.consumers[0].assigned), lambda: group.consumers[0].error)
    code, output = group.run("adopt")
    assert code == 1
    assert "type consumer" in output


def test_all_groups_that_have_members_here_are_released(front: Front, group: Group) -> None:
    """No others: neither groups whose members are upstream, nor groups without members."""
    group.add(front.muster.bootstrap)
    elsewhere = Group(front)
    elsewhere.add(front.broker.bootstrap)
    try:
        group.until_shared(SHADOW)
        elsewhere.until_shared("consumer")
        assert elsewhere.coordinated() == "coordinated by the cluster upstream: it has its members there."
        at = ["--bootstrap", front.muster.bootstrap]
        done = CliRunner().invoke(command.app, ["release", "--all", "--format", "json", *at], env=WIDE)
        assert [each["group_id"] for each in msgspec.json.decode(done.stdout)["groups"]] == [group.group_id]
        group.until_shared("consumer")
        again = CliRunner().invoke(command.app, ["release", "--all", *at], env=WIDE)
        assert (again.exit_code, again.stdout) == (0, "")
        assert "nothing to release" in again.stderr
        both = CliRunner().invoke(command.app, ["release", "--all", group.group_id, *at], env=WIDE)
        assert (both.exit_code, "not both" in both.stderr) == (2, True)
    finally:
        for consumer in elsewhere.consumers:
            consumer.end()


@pytest.mark.parametrize("verb", ["adopt", "release"])
def test_a_group_that_this_sidecar_is_not_for_is_refused(front: Front, verb: str) -> None:
    """The sidecar's `--groups` does not match it."""
    code, reported = Group(front, "others").run(verb)
    assert code == 1
    assert "--groups" in reported


def test_an_unknown_group_is_adopted_for_when_it_is_created(group: Group) -> None:
    """The output says so: the name may have been mistyped."""
    code, output = group.run("adopt")
    assert code == 0  # groups of other tests may have similar names, which are listed
    assert output.startswith(f"{group.group_id}: there is no such group; if it is created, this Muster coordinates it")


def test_a_group_that_was_never_ours_cannot_be_released(group: Group) -> None:
    """Nothing would change."""
    code, output = group.run("release")
    assert code == 1
    assert "nothing to release" in output


def test_a_mistyped_group_is_answered_with_the_groups_of_similar_names(front: Front, group: Group) -> None:
    """Those with members here, and those with members upstream."""
    upstream = Group(front)
    group.add(front.muster.bootstrap)
    upstream.add(front.broker.bootstrap)
    try:
        group.until_shared(SHADOW)
        upstream.until_shared("consumer")
        for each in (group, upstream):
            mistyped = Group(front)
            mistyped.group_id = f"{each.group_id}s"
            for *arguments, code in (("adopt", "--dry-run", 0), ("release", "--dry-run", 1), ("release", 1)):
                exit_code, output = mistyped.run(*map(str, arguments))
                assert (exit_code, f"; did you mean {each.group_id}" in output) == (code, True), output
    finally:
        for consumer in upstream.consumers:
            consumer.end()


def test_a_released_group_is_upstreams_after_a_restart(front: Front, group: Group) -> None:
    """Even if a former process has left its shadow in it, which makes the broker refuse joins."""
    consumer = group.add(front.muster.bootstrap)
    group.until_shared(SHADOW)
    name = asyncio.run(_name_of_the_shadow(front.broker.bootstrap, group.group_id))
    assert group.run("release")[0] == 0
    group.until_shared("consumer")
    group.consumers.remove(consumer)
    consumer.close()
    front.muster.kill()
    asyncio.run(_leave_a_shadow(front.broker.bootstrap, group.group_id, name))
    assert group.protocol_type_upstream == SHADOW
    front.muster.start()
    group.add(front.muster.bootstrap)
    group.until_shared("consumer")
    assert group.coordinator() == "upstream"
    assert group.run("adopt")[0] == 0
    group.until_shared(SHADOW)


def test_a_process_that_is_killed_in_the_middle_of_a_move_loses_nothing(front: Front, group: Group) -> None:
    """A release is in the log, and continues; an adoption is over, and can be requested again. Commits stay."""
    for _ in range(2):
        group.add(front.muster.bootstrap)
    group.until_shared(SHADOW)
    group.until_committed(7)
    asyncio.run(_killed_in_a_move(group, "release"))
    group.until_shared("consumer")
    assert group.coordinator() == "upstream"
    asyncio.run(_killed_in_a_move(group, "adopt"))
    asyncio.run(_left(group, "quiet"))
    group.until_shared("consumer")
    assert group.coordinator() == "upstream"
    code, output = group.run("adopt")
    assert code == 0, output
    group.until_shared(SHADOW)
    assert {each.committed(sorted(each.assigned)[0]) for each in group.consumers} == {7}


async def _killed_in_a_move(group: Group, verb: str) -> None:
    """End the process with SIGKILL while it waits for a member that does not come, and restart it."""
    muster = group.front.muster
    async with talking(muster.bootstrap) as connection:
        await _quiet_member(connection, group)
        moving = asyncio.create_task(asyncio.to_thread(group.run, verb))
        async with GroupAdmin(muster.bootstrap) as admin:
            while (reported := await described_move(admin, group.group_id)) is None or reported.state != "moving":
                assert not moving.done(), moving.result()
                await asyncio.sleep(0.05)
        muster.kill()
        muster.start()
        code, outcome = await moving
    assert code != 0, outcome


async def _quiet_member(connection: Connection, group: Group) -> None:
    """A static member that joined, sent one heartbeat, and stays silent."""
    who = {"protocol_type": "consumer", "group_instance_id": "quiet"}
    joined = await _joined(connection, group.group_id, metadata=subscription(group.front.topic), **who)
    me = {"group_id": group.group_id, "member_id": joined["member_id"], "group_instance_id": "quiet"}
    heartbeat = await connection.ask("Heartbeat", 4, generation_id=joined["generation_id"], **me)
    assert heartbeat["error_code"] in (0, 27)


async def _left(group: Group, instance_id: str) -> None:
    async with talking(group.front.muster.bootstrap) as connection:
        left = [{"member_id": "", "group_instance_id": instance_id, "reason": None}]
        await connection.ask("LeaveGroup", 5, group_id=group.group_id, members=left)


async def _name_of_the_shadow(bootstrap: str, group_id: str) -> tuple[str, str]:
    """Its instance id and its protocol's name upstream."""
    async with talking(bootstrap) as connection:
        body = {"groups": [group_id], "include_authorized_operations": False}
        (described,) = (await connection.ask("DescribeGroups", 5, **body))["groups"]
    ((name,),) = {(member["group_instance_id"],) for member in described["members"]}
    return name, described["protocol_data"]


async def _leave_a_shadow(bootstrap: str, group_id: str, name: tuple[str, str]) -> None:
    async with talking(bootstrap) as connection:
        instance_id, protocol_name = name
        who = {"protocol_type": SHADOW, "group_instance_id": instance_id}
        await _joined(connection, group_id, metadata=b"", protocol_name=protocol_name, **who)


async def _joined(
    connection: Connection, group_id: str, *, metadata: bytes, protocol_name: str = "range", **who: Any
) -> Fields:
    """Join a member that stays silent after that; return its response."""
    body = {
        "group_id": group_id,
        "session_timeout": ms(300_000),
        "rebalance_timeout": ms(300_000),
        "member_id": "",
        "protocols": [{"name": protocol_name, "metadata": metadata}],
        "reason": None,
        **who,
    }
    joined = await connection.ask("JoinGroup", 9, **body)
    assert joined["error_code"] == 0, joined
    return joined


def test_an_adoption_is_abandoned_if_a_member_does_not_return(front: Front, group: Group) -> None:
    """Notified members return upstream; those that did not come are named."""
    group.add(front.muster.bootstrap)
    group.until_shared(SHADOW)
    assert group.run("release")[0] == 0
    group.until_shared("consumer")
    reported = asyncio.run(_adopt_with_somebody_silent(group))
    assert reported.state == "given up", reported
    assert reported.reason is not None
    assert "quiet at " in reported.reason
    group.until_shared("consumer")
    assert group.coordinator() == "upstream"


async def _adopt_with_somebody_silent(group: Group) -> Any:
    async with talking(group.front.muster.bootstrap) as connection:
        await _quiet_member(connection, group)
        code, reported = await asyncio.to_thread(group.run, "adopt", "--timeout", "2s")
        assert (code, "given up after" in reported) == (1, True), reported
        await _left(group, "quiet")
        async with GroupAdmin(group.front.muster.bootstrap) as admin:
            return await described_move(admin, group.group_id)


def test_a_hanging_member_dropped_by_the_cluster_is_named(front: Front, group: Group) -> None:
    """It has not left: it treats its partitions as lost only when it resumes."""
    group.add(front.muster.bootstrap)
    group.until_shared(SHADOW)
    assert group.run("release")[0] == 0
    group.until_shared("consumer")
    code, output = asyncio.run(_adopt_with_somebody_hung(group))
    assert code == 0, output
    assert "1 has been dropped by the cluster after" in output
    assert "dropped by the cluster (its session ended): quiet at " in output


async def _adopt_with_somebody_hung(group: Group) -> tuple[int, str]:
    async with talking(group.front.muster.bootstrap) as connection:
        who: dict[str, Any] = {"protocol_type": "consumer", "group_instance_id": "quiet", "session_timeout": ms(8_000)}
        joined = await _joined(connection, group.group_id, metadata=subscription(group.front.topic), **who)
        me = {"group_id": group.group_id, "member_id": joined["member_id"], "group_instance_id": "quiet"}
        await connection.ask("Heartbeat", 4, generation_id=joined["generation_id"], **me)
        return await asyncio.to_thread(group.run, "adopt", "--timeout", "2m")
