"""The rights that the page grants to Muster's own principal: sufficient, and all of them needed."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, exported without saying so
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from muster.replay import cli as replay_cli
from tests.brokers.acls import CLUSTER_NAME, Acl, add_acls, remove_acls
from tests.brokers.broker import properties_text
from tests.brokers.java_tools import JavaTool, run_tool
from tests.brokers.secured import SecuredBroker, java_properties, password_of
from tests.coordinator.sidecar.security.security_stage import (
    LISTENER,
    TOPIC,
    WITHIN_S,
    formed,
    new_group,
    own_ports,
    refused_start,
    shared_broker,
    sidecar,
    speaking,
    upstream_options,
)
from tests.muster_process import MusterProcess

pytestmark = pytest.mark.broker

PAGE: Final = Path(__file__).parents[4] / "docs" / "sidecar-acls.md"
EVENT_TOPIC: Final = "__muster_events"
RESOURCES: Final = {
    "Group": "group",
    "Topic": "topic",
    "TransactionalId": "transactional_id",
    "Cluster": "broker",
}
SAID: Final = {"group": "GROUP", "topic": "TOPIC", "transactional_id": "TRANSACTIONAL_ID", "broker": "CLUSTER"}
"""The names in messages."""


def rows() -> list[Acl]:
    """The first table of the page."""
    cells = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").partition("\n## ")[0].splitlines()
        if line.startswith("|")
    ][2:]
    return [
        Acl("muster", RESOURCES[resource], name, operation, is_prefix=pattern == "prefixed")
        for resource, pattern, name, operation, *_ in cells
    ]


def titled(acl: Acl) -> str:
    return f"{acl.resource}-{acl.operation}"


def for_topic(acl: Acl, topic: str) -> Acl:
    """The same for an event topic of another name."""
    return Acl(acl.user, acl.resource, acl.name.replace(EVENT_TOPIC, topic), acl.operation, is_prefix=acl.is_prefix)


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with shared_broker() as running:
        admin = running.admin()
        remove_acls(admin, Acl("muster", "group", "*", "READ"))  # which the page has, too
        add_acls(admin, Acl("alice", "group", "*", "READ"), Acl("alice", "topic", TOPIC, "READ"))
        yield running


@contextmanager
def allowed(broker: SecuredBroker, *acls: Acl) -> Iterator[None]:
    """While the block lasts, the only rights of Muster's principal."""
    admin = broker.admin()
    add_acls(admin, *acls)
    try:
        yield
    finally:
        remove_acls(admin, *acls)


@pytest.fixture
def topic() -> str:
    """The event topic, which does not exist yet."""
    return f"events-{uuid4().hex[:8]}"


def options(broker: SecuredBroker, topic: str) -> dict[str, Any]:
    """Settings of a sidecar with its events there."""
    return {"log": f"kafka://{broker.address(LISTENER)}/{topic}"}


async def used(muster: MusterProcess) -> str:
    """A group, formed through the sidecar."""
    group_id = new_group()
    async with speaking(muster.bootstrap, "alice") as connection:
        member = await formed(connection, group_id)
        assert await member.beat() == 0
    return group_id


def complaints(muster: MusterProcess) -> list[str]:
    """Log lines above info, except those about the machine: busy, few files, the previous process was killed."""
    levels = ('"level": "warning"', '"level": "error"')
    busy = (
        "event loop ",
        "timer late",
        "serving fewer connections than --connections-max",
        "the previous owner of the event log did not shut down cleanly",
    )
    loud = [line for line in muster.output.splitlines() if any(level in line for level in levels)]
    return [line for line in loud if not any(words in line for words in busy)]


async def test_the_table_is_enough(broker: SecuredBroker, topic: str) -> None:
    """A first start, a group, and a second start that takes over the shadow: no right is missing."""
    rights = [for_topic(acl, topic) for acl in rows()]
    with allowed(broker, *rights), sidecar(broker, "--log-replication", "1", **options(broker, topic)) as muster:
        await used(muster)
        muster.kill()
        muster.start()
        await used(muster)
        assert muster.events("group not taken: upstream has it") == []
        assert muster.events("group not taken: another Muster has it") == []
        assert complaints(muster) == []


@pytest.mark.parametrize("missing", rows(), ids=titled)
async def test_each_row_is_needed(broker: SecuredBroker, topic: str, missing: Acl) -> None:
    """Without it a line names the missing right: the last one, or a warning."""
    text = rf"lacks the ACL Allow {missing.operation} on (this )?{SAID[missing.resource]}\b"
    with allowed(broker, *(for_topic(acl, topic) for acl in rows() if acl != missing)):
        if missing.operation == "DESCRIBE_CONFIGS" or missing.resource == "group":
            with sidecar(broker, "--log-replication", "1", **options(broker, topic)) as muster:
                await used(muster)
                assert re.search(text, muster.output), muster.output
        else:
            log = ["--log", options(broker, topic)["log"], "--log-replication", "1"]
            assert re.search(text, refused_start(*upstream_options(broker), *own_ports(), *log))


def test_the_commands_match_the_table(broker: SecuredBroker, tmp_path: Path) -> None:
    """Kafka's own tool, called as on the page."""
    admin = broker.admin()
    file = tmp_path / "admin.properties"
    properties = java_properties(broker.client(LISTENER))
    file.write_text(properties_text(properties), encoding="utf-8")
    before = of_muster(broker)
    for command in commands():
        done = run_tool(JavaTool.ACLS, *(_here(each, broker, file) for each in command))
        assert done.returncode == 0, done.stderr
    given = of_muster(broker) - before
    assert given == {str(acl.binding()) for acl in rows()}
    remove_acls(admin, *rows())


def of_muster(broker: SecuredBroker) -> set[str]:
    """All entries of Muster's principal."""
    wanted = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # any name
        ResourcePatternType.ANY,
        "User:muster",
        None,  # type: ignore[arg-type]  # any host
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = broker.admin()
    return {str(binding) for binding in admin.describe_acls(wanted).result(WITHIN_S)}


def commands() -> list[list[str]]:
    """Those of the page, without the name of the tool."""
    block = PAGE.read_text(encoding="utf-8").split("```console\n")[1].split("```")[0].replace("\\\n", " ")
    first, *others = (line.removeprefix("$ ") for line in block.splitlines())
    variable, _, every = first.partition("=")
    tool, *shared = shlex.split(shlex.split(every)[0])
    assert (variable, tool) == ("ACLS", "kafka-acls.sh")
    return [[*shared, *shlex.split(line.removeprefix("$ACLS "))] for line in others]


def _here(argument: str, broker: SecuredBroker, file: Path) -> str:
    return {"kafka-1:9092": broker.address(LISTENER), "admin.properties": str(file)}.get(argument, argument)


def test_reading_the_log_needs_no_other_permission(
    broker: SecuredBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """READ on the topic, for `muster replay`."""
    rights = [for_topic(acl, topic) for acl in rows()]
    with allowed(broker, *rights), sidecar(broker, "--log-replication", "1", **options(broker, topic)) as muster:
        group_id = asyncio.run(used(muster))
    monkeypatch.setenv("MUSTER_KAFKA_CONFIG_SASL_PASSWORD", password_of("bob"))
    reading = [f"security.protocol={LISTENER}", "sasl.mechanism=PLAIN", "sasl.username=bob"]
    arguments = ["groups", "--log", options(broker, topic)["log"]]
    arguments += [part for each in reading for part in ("--kafka-config", each)]
    refused = CliRunner().invoke(replay_cli.app, arguments)
    assert (refused.exit_code, f"Allow DESCRIBE on TOPIC {topic}" in refused.stderr) == (2, True), refused.output
    with allowed(broker, Acl("bob", "topic", topic, "READ")):
        result = CliRunner().invoke(replay_cli.app, arguments, env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    assert group_id in result.stdout


def test_the_table_names_the_cluster_as_kafka_does() -> None:
    """It has only one name."""
    assert {acl.name for acl in rows() if acl.resource == "broker"} == {CLUSTER_NAME}
