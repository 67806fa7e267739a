"""Kafka's own tools through the sidecar, with our groups and others in one call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.broker import Broker
from tests.brokers.java_tools import JavaTool, run_tool
from tests.clients.consumers import Confluent, RunningConsumer
from tests.coordinator.sidecar.admin_stage import (
    PARTITIONS,
    Front,
    committed,
    emptied,
    front_of,
    new_name,
    talking,
    until_empty_at,
)
from tests.waiting import until_so

pytestmark = [pytest.mark.broker, pytest.mark.clients]

PAGE = (Path(__file__).parents[4] / "docs" / "sidecar.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def front(own_kafka_broker: Broker) -> Iterator[Front]:
    """`--all-groups` reads the assignments of every group that any test has left at the broker."""
    with front_of(own_kafka_broker) as front:
        yield front


@pytest.fixture(scope="module")
def living(front: Front) -> Iterator[dict[str, str]]:
    """A group of `ours` and one of `theirs`, each with a member that has committed."""
    names = {kind: new_name(kind) for kind in ("ours", "theirs")}
    consumers: list[RunningConsumer] = [
        Confluent(front.muster.bootstrap, names["ours"], front.topic).start(),
        Confluent(front.broker.bootstrap, names["theirs"], front.topic).start(),
    ]
    try:
        until_so(
            lambda: all(len(each.assigned) == PARTITIONS for each in consumers),
            lambda: [(each.assigned, each.error) for each in consumers],
        )
        for consumer in consumers:
            consumer.commit(1, 5)
        yield names
    finally:
        for consumer in consumers:
            consumer.end()


async def left(front: Front, offset: int = 1) -> dict[str, str]:
    """Two groups with an offset and no members: one was `ours`, one `theirs`."""
    names = {kind: new_name(f"left-{kind}") for kind in ("ours", "theirs")}
    async with talking(front.muster.bootstrap) as through, talking(front.broker.bootstrap) as direct:
        await emptied(through, names["ours"], front.topic, {0: offset})
        await emptied(direct, names["theirs"], front.topic, {0: offset})
    await until_empty_at(front.broker, names["ours"])
    return names


def test_tools_describe_our_groups_at_the_brokers(front: Front, living: dict[str, str]) -> None:
    """They are left out, or refused as no consumer groups, as in docs/sidecar.md; kafka-groups lists the shadow."""
    at = ["--bootstrap-server", front.broker.bootstrap]
    listed = run_tool(JavaTool.CONSUMER_GROUPS, *at, "--list").stdout.split()
    assert (living["ours"] in listed, living["theirs"] in listed) == (False, True)
    described = run_tool(JavaTool.CONSUMER_GROUPS, *at, "--describe", "--group", living["ours"])
    assert f"GroupId {living['ours']} is not a consumer group (muster)" in described.stdout
    rows = rows_of(run_tool(JavaTool.GROUPS, *at, "--list").stdout, *living.values())
    assert sorted(rows) == sorted([[living["ours"], "Classic", "muster"], [living["theirs"], "Classic", "consumer"]])
    page = " ".join(PAGE.split())
    for words in ("leaves such a group out", "is not a consumer group (muster)", "`kafka-groups.sh --list`"):
        assert words in page


def tool(front: Front, which: JavaTool, *arguments: str, fails: bool = False) -> str:
    """Run the tool; return its output, both streams if it fails."""
    patience = ("--timeout", "60000") if which is JavaTool.CONSUMER_GROUPS else ()  # 5 s by default, then exit code 0
    done = run_tool(which, "--bootstrap-server", front.muster.bootstrap, *arguments, *patience)
    assert bool(done.returncode) == fails, done.stderr
    return done.stdout + done.stderr if fails else done.stdout


def rows_of(printed: str, *group_ids: str) -> list[list[str]]:
    """The table lines about these groups, as cells, in the order of the groups."""
    lines = [line.split() for line in printed.splitlines()]
    return sorted((cells for cells in lines if cells and cells[0] in group_ids), key=lambda cells: cells[0])


async def test_groups_are_listed_and_described_together(front: Front, living: dict[str, str]) -> None:
    """`--list --state` and `--describe --all-groups`: each once, with its members' state and offsets."""
    gone = await left(front)
    listed = rows_of(tool(front, JavaTool.CONSUMER_GROUPS, "--list", "--state"), *living.values(), *gone.values())
    assert {tuple(cells) for cells in listed} == {
        *((each, "Stable") for each in living.values()),
        *((each, "Empty") for each in gone.values()),
    }
    assert len(listed) == 4
    printed = tool(front, JavaTool.CONSUMER_GROUPS, "--describe", "--all-groups", "--state")
    states = rows_of(printed, *living.values(), *gone.values())
    assert [(cells[-2], cells[-1]) for cells in states] == [
        ("Empty", "0"),
        ("Empty", "0"),
        ("Stable", "1"),
        ("Stable", "1"),
    ], printed
    assert front.broker.bootstrap not in printed, "the coordinator's address is the sidecar's"
    offsets = rows_of(tool(front, JavaTool.CONSUMER_GROUPS, "--describe", "--all-groups"), *living.values())
    assert [cells[2:4] for cells in offsets if cells[3] != "-"] == [["1", "5"], ["1", "5"]]
    assert len(offsets) == 2 * PARTITIONS


async def test_groups_are_reset_and_deleted_together(front: Front, living: dict[str, str]) -> None:
    """Those without members; the tool reports the others as active, on either side."""
    gone = await left(front, offset=3)
    everything = [argument for name in (*gone.values(), *living.values()) for argument in ("--group", name)]
    to_zero = ("--reset-offsets", "--to-offset", "0", "--topic", f"{front.topic}:0", "--execute")
    printed = tool(front, JavaTool.CONSUMER_GROUPS, *everything, *to_zero)
    for name in living.values():
        assert f"'{name}' is inactive, but the current state is Stable" in printed
    async with talking(front.muster.bootstrap) as connection:
        for name in gone.values():
            assert await committed(connection, name, front.topic) == {0: 0}
    printed = tool(front, JavaTool.CONSUMER_GROUPS, "--delete", *everything)
    for name in living.values():
        assert f"Group '{name}' could not be deleted" in printed
    for name in gone.values():
        assert f"'{name}'" in printed[printed.index("deleted successfully") :]
    assert rows_of(tool(front, JavaTool.CONSUMER_GROUPS, "--list"), *gone.values()) == []


def test_offsets_of_a_live_group_are_kept_for_its_topics(front: Front, living: dict[str, str]) -> None:
    """`--delete-offsets` of a subscribed topic is refused for both."""
    for name in living.values():
        printed = tool(
            front, JavaTool.CONSUMER_GROUPS, "--delete-offsets", "--group", name, "--topic", f"{front.topic}:1"
        )
        assert "actively subscribed" in printed


def test_settings_are_altered_and_described_together(front: Front, living: dict[str, str]) -> None:
    """`kafka-configs`: ours and Kafka's of one group in one call, all or none of them."""
    group = ("--entity-type", "groups", "--entity-name", living["ours"])
    good = "target.group.size=3,consumer.session.timeout.ms=50000"
    assert "Completed updating" in tool(front, JavaTool.CONFIGS, "--alter", *group, "--add-config", good)
    refused = tool(
        front,
        JavaTool.CONFIGS,
        *("--alter", *group, "--add-config", "target.group.size=0,consumer.session.timeout.ms=55000"),
        fails=True,
    )
    assert "target.group.size=0: should be a whole number" in refused
    printed = tool(front, JavaTool.CONFIGS, "--describe", *group)
    reported = {line.split()[0] for line in printed.splitlines()[1:] if line.strip()}
    assert reported == {"target.group.size=3", "consumer.session.timeout.ms=50000"}
    deleted = ("--delete-config", "target.group.size,consumer.session.timeout.ms")
    assert "Completed updating" in tool(front, JavaTool.CONFIGS, "--alter", *group, *deleted)
