"""The requests of the Java consumer and of Kafka's administrators' tools, and the behaviour that they rely on."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from muster.events.events import GroupEvent, MemberEvent, MemberJoined, MemberRemoved
from muster.events.ids import GroupId
from muster.events.log.url import open_log
from muster.replay.history.items import Happened
from tests.brokers.java_tools import JavaTool, RunningTool, ToolLine, run_tool, running_tool
from tests.clients.conftest import PARTITIONS, TOPIC
from tests.clients.probe import described, generation_of, until_stable
from tests.muster_process import MusterProcess, running_muster, sqlite_log
from tests.replay.whole import read_histories
from tests.waiting import until_so

pytestmark = pytest.mark.clients

COOPERATIVE: Final = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of the event log."""
    directory: Path = tmp_path_factory.mktemp("muster")
    return sqlite_log(directory)


@pytest.fixture(scope="module")
def muster(log: str) -> Iterator[MusterProcess]:
    """A coordinator whose event log can be read."""
    with running_muster(log=log, topics=[f"{TOPIC}:{PARTITIONS}"]) as running:
        yield running


@pytest.fixture
def group_id() -> str:
    return f"java-{uuid4().hex[:8]}"


def verifiable(muster: MusterProcess, group_id: str, *more: str) -> Any:
    """A VerifiableConsumer, while the block lasts."""
    arguments = ("--bootstrap-server", muster.bootstrap, "--topic", TOPIC, "--group-id", group_id)
    return running_tool(JavaTool.VERIFIABLE_CONSUMER, *arguments, *more)


def partitions(line: ToolLine, event: str) -> set[int]:
    """The line's partitions, if it is about this event."""
    reported = line.event.get("partitions", []) if line.event.get("name") == event else []
    return {each["partition"] for each in reported}


def history(log: str, group_id: str) -> list[GroupEvent | MemberEvent]:
    """The group's events in the log."""

    async def read() -> list[Any]:
        opened = open_log(log, read_only=True)
        await opened.open()
        try:
            histories = await read_histories(opened, group=GroupId(group_id))
        finally:
            await opened.close()
        return [item.event for item in histories[GroupId(group_id)].items if isinstance(item, Happened)]

    return asyncio.run(read())


def test_a_java_consumer_identifies_itself_and_its_reasons(muster: MusterProcess, log: str, group_id: str) -> None:
    """Default timeouts, assignors in order, its reasons to join and to leave (CA7, CB1, CE1, RS21, RS23)."""
    arguments = ("--bootstrap-server", muster.bootstrap, "--topic", TOPIC, "--group", group_id)
    with running_tool(JavaTool.CONSOLE_CONSUMER, *arguments) as tool:
        until_stable(muster.bootstrap, group_id, members=1)
        tool.signal(signal.SIGTERM)
        tool.wait()
    (joined,) = (event for event in history(log, group_id) if isinstance(event, MemberJoined))
    (left,) = (event for event in history(log, group_id) if isinstance(event, MemberRemoved))
    assert (joined.member.session_timeout_ms, joined.member.rebalance_timeout_ms) == (45_000, 300_000)
    assert [protocol.name for protocol in joined.member.protocols] == ["range", "cooperative-sticky"]
    assert (joined.why.api_version, left.why.api_version) == (9, 5)
    assert joined.why.client_reason == f"need to re-join with the given member-id: {joined.member.member_id}"
    assert left.why.client_reason == "the consumer is being closed"


def test_a_java_consumer_moves_partitions_in_two_rebalances(muster: MusterProcess, group_id: str) -> None:
    """Cooperative: members only revoke partitions that move, then all rejoin (CS7, CB2, CG1)."""
    cooperative = ("--assignment-strategy", COOPERATIVE)
    with verifiable(muster, group_id, *cooperative) as first:
        first.wait_for(lambda line: len(partitions(line, "partitions_assigned")) == PARTITIONS)
        before = generation_of(muster.bootstrap, group_id)
        with verifiable(muster, group_id, *cooperative) as second:
            revoked = partitions(
                first.wait_for(lambda line: bool(partitions(line, "partitions_revoked"))), "partitions_revoked"
            )
            taken = partitions(
                second.wait_for(lambda line: bool(partitions(line, "partitions_assigned"))), "partitions_assigned"
            )
            assert (revoked, len(revoked)) == (taken, PARTITIONS // 2)
            until_stable(muster.bootstrap, group_id, members=2)
            assert generation_of(muster.bootstrap, group_id) == before + 2


def test_the_older_of_two_java_consumers_with_one_instance_id_ends(muster: MusterProcess, group_id: str) -> None:
    """82 is fatal to it; the newer one has its partitions (CB13, CD3)."""
    with verifiable(muster, group_id, "--group-instance-id", "a") as older:
        older.wait_for(lambda line: len(partitions(line, "partitions_assigned")) == PARTITIONS)
        with verifiable(muster, group_id, "--group-instance-id", "a") as newer:
            newer.wait_for(lambda line: len(partitions(line, "partitions_assigned")) == PARTITIONS)
            older.wait()
            assert len(until_stable(muster.bootstrap, group_id, members=1)["members"]) == 1


def reset_offsets(muster: MusterProcess, group_id: str) -> str:
    """The output of ConsumerGroupCommand when it resets all offsets to 0."""
    done = run_tool(
        JavaTool.CONSUMER_GROUPS,
        *("--bootstrap-server", muster.bootstrap, "--group", group_id),
        *("--reset-offsets", "--to-earliest", "--topic", TOPIC, "--execute"),
    )
    return done.stdout + done.stderr


def test_the_tools_remove_members_and_reset_offsets(muster: MusterProcess, log: str, group_id: str) -> None:
    """All members at once, static and dynamic; offsets only of an Empty group (CH1, CH3, CH5, CH8, RS23)."""

    def entered(tool: RunningTool) -> None:
        tool.wait_for(lambda line: bool(partitions(line, "partitions_assigned")))

    with verifiable(muster, group_id) as dynamic, verifiable(muster, group_id, "--group-instance-id", "a") as static:
        for tool in (dynamic, static):
            entered(tool)
        until_stable(muster.bootstrap, group_id, members=2)
        refused = reset_offsets(muster, group_id)
        assert "only be reset if the group" in refused
        assert "is inactive" in refused
        for tool in (dynamic, static):
            tool.kill()
        done = run_tool(
            JavaTool.STREAMS_RESET,
            *("--bootstrap-server", muster.bootstrap, "--application-id", group_id, "--force"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        until_so(lambda: not described(muster.bootstrap, group_id)["members"], lambda: "there are members left")
        removed = [event for event in history(log, group_id) if isinstance(event, MemberRemoved)]
        assert [event.why.client_reason for event in removed] == ["member was removed by an admin"] * 2
        assert {event.why.group_instance_id for event in removed} == {None, "a"}
    assert f"{TOPIC}" in reset_offsets(muster, group_id)
    assert described(muster.bootstrap, group_id)["group_state"] == "Empty"
