"""Members that leave wrongly, and clients with a protocol that is not offered; with real clients too. S17, S20."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import confluent_kafka
import pytest

from muster.coordinator.wire.api import Fault
from muster.coordinator.wire.registry import APIS
from muster.events.causes import Cause
from muster.events.events import MemberRemoved, RebalanceStarted
from tests.brokers.java_tools import JavaTool, run_tool
from tests.clients.consumers import KafkaPython
from tests.clients.probe import described, generation_of, until_stable
from tests.coordinator.group.harness import Harness, story
from tests.coordinator.kio_client import with_length
from tests.coordinator.running_server import running
from tests.coordinator.serving import enter, serving
from tests.muster_process import MusterProcess, running_muster, sqlite_log
from tests.waiting import until_so

TOPIC = "orders"
NEWER_GROUP_APIS = {
    "ConsumerGroupHeartbeat": 68,
    "ConsumerGroupDescribe": 69,
    "ShareGroupHeartbeat": 76,
    "ShareGroupDescribe": 77,
    "StreamsGroupHeartbeat": 88,
    "StreamsGroupDescribe": 89,
}


@pytest.fixture(scope="module")
def muster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterProcess]:
    directory: Path = tmp_path_factory.mktemp("muster")
    door = ("--metrics", "127.0.0.1:0")
    with running_muster(log=sqlite_log(directory), topics=[f"{TOPIC}:4"], options=door) as process:
        yield process


def test_s17_a_static_member_that_leaves_by_itself_is_told_from_one_that_was_removed() -> None:
    """A client library sent LeaveGroup on close for static members too, and each deployment rebalanced for no
    reason that anybody could see: such a leave must be one rebalance, with a cause of its own that names member,
    instance and client.
    """
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    b.instance = None  # as LeaveGroup below v3, which cannot name it
    for client, instance in ((b, "b"), (c, "c")):
        call = client.leave("closing")
        assert story(call.events)[0] == (MemberRemoved, Cause.MEMBER_LEFT)
        assert (call.events[0].why.group_instance_id, call.events[0].why.client_id) == (instance, f"app-{instance}")
    assert sum(isinstance(event, RebalanceStarted) for event in h.events) == 2, "the first one, and one for both"
    assert story(h.leave_instance("a").events)[0] == (MemberRemoved, Cause.MEMBER_REMOVED_BY_ADMIN)
    assert a.join().error.name == "unknown_member_id"


@pytest.mark.clients
def test_s17_kafka_python_stays_when_it_is_closed(muster: MusterProcess) -> None:
    """With the library as it comes, a closed static member keeps its place, and who comes back disturbs nobody."""
    with ExitStack() as stack:
        first, second = (KafkaPython(muster.bootstrap, "s17", TOPIC, instance=name).start() for name in "ab")
        stack.callback(first.end)
        stack.callback(second.end)
        until_stable(muster.bootstrap, "s17", members=2)
        until_so(lambda: len(first.assigned) == len(second.assigned) == 2, lambda: (first.assigned, second.assigned))
        generation = generation_of(muster.bootstrap, "s17")
        second.close()
        assert len(described(muster.bootstrap, "s17")["members"]) == 2
        again = KafkaPython(muster.bootstrap, "s17", TOPIC, instance="b").start()
        stack.callback(again.end)
        until_so(lambda: again.assigned == second.assigned, lambda: again.assigned)
        assert generation_of(muster.bootstrap, "s17") == generation


async def test_s20_no_newer_group_protocol_is_offered_or_half_spoken() -> None:
    """A static member that moved between the classic and the newer protocol was replaced wrongly, or not at all,
    where both owned one group: the newer protocols must not be offered, a request of them must end its connection
    before it touches a group, and no group may be shown as one of theirs.
    """
    assert not set(NEWER_GROUP_APIS.values()) & APIS.keys()
    assert {key for key in APIS if "group" in APIS[key].name.lower()} == {11, 13, 14, 15, 16, 42}
    async with serving() as muster:
        classic = await muster.connect("classic")
        await enter(classic, 9, instance="a")
        groups = (await classic.ask("ListGroups", 5, states_filter=[], types_filter=[]))["groups"]
        assert [(group["group_id"], group["group_type"]) for group in groups] == [("orders", "classic")]
        newer = await classic.ask("ListGroups", 5, states_filter=[], types_filter=["consumer", "share", "streams"])
        assert newer["groups"] == []
    for key in NEWER_GROUP_APIS.values():
        async with running() as subject:
            client = await subject.connect()
            start = key.to_bytes(2, "big") + b"\x00\x00\x00\x00\x00\x07\xff\xff\x00"
            client.writer.write(with_length(start + b"\x07orders"))
            assert await client.is_closed()
            assert subject.metrics.protocol_errors == {Fault.UNKNOWN_API: 1}
            assert subject.groups.commands == []


@pytest.mark.clients
def test_s20_a_java_consumer_is_told_in_words_that_the_newer_protocol_is_not_there(muster: MusterProcess) -> None:
    """It must end and name the setting, and leave no group behind."""
    newer = ("--command-property", "group.protocol=consumer", "--timeout-ms", "10000")
    asked = ("--bootstrap-server", muster.bootstrap, "--topic", TOPIC, "--group", "s20")
    done = run_tool(JavaTool.CONSOLE_CONSUMER, *asked, *newer)
    assert "Set group.protocol=classic" in done.stderr
    assert described(muster.bootstrap, "s20")["group_state"] == "Dead"


@pytest.mark.clients
def test_s20_librdkafka_does_not_join_by_the_newer_protocol(muster: MusterProcess) -> None:
    """It says nothing and waits, as with any broker without the protocol: nothing of it must reach a group."""
    config = {"bootstrap.servers": muster.bootstrap, "group.id": "s20-c", "group.protocol": "consumer", "log_level": 0}
    before = asked_for(muster, "FindCoordinator")
    with closing(confluent_kafka.Consumer(config)) as consumer:
        consumer.subscribe([TOPIC])

        def has_looked_for_its_coordinator() -> bool:
            consumer.poll(0.05)
            return asked_for(muster, "FindCoordinator") >= before + 3

        until_so(has_looked_for_its_coordinator, lambda: muster.asked("/metrics"))
        assert consumer.assignment() == []
    assert described(muster.bootstrap, "s20-c")["group_state"] == "Dead"
    assert 'muster_protocol_errors_total{fault="unknown-api"} 0.0' in muster.asked("/metrics")


def asked_for(muster: MusterProcess, api: str) -> float:
    """How many requests of this API there were."""
    lines = [line for line in muster.asked("/metrics").splitlines() if line.startswith("muster_requests_total{")]
    return sum(float(line.split()[1]) for line in lines if f'api="{api}"' in line)
