"""The configs of a group, altered and described with tools that do not know Muster: Kafka's own, and two libraries'."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigSource,
)
from confluent_kafka.admin import ConfigResource as ConfluentResource  # type: ignore[attr-defined]
from confluent_kafka.admin import ResourceType as ConfluentType  # type: ignore[attr-defined]
from kafka.admin import ConfigResource, KafkaAdminClient, MemberToRemove
from kafka.errors import NoError, UnknownMemberIdError

from muster.coordinator.group.configs import GROUP_CONFIGS
from tests.brokers.java_tools import JavaTool, run_tool
from tests.clients.conftest import TOPIC
from tests.clients.probe import described
from tests.coordinator.formed import form_group
from tests.muster_process import MusterProcess

pytestmark = pytest.mark.clients

ANSWERED_WITHIN_S = 30
TIMEOUT = "members.registration.timeout.ms"


@pytest.fixture
def group_id(muster: MusterProcess) -> str:
    """A stable group of two static members."""
    name = f"configs-{uuid4().hex[:8]}"
    form_group(muster.bootstrap, name, "web-1", "web-2")
    return name


# ---- kafka-configs.sh ---------------------------------------------------------------------------


def kafka_configs(muster: MusterProcess, *arguments: str, code: int = 0) -> str:
    """Run `kafka-configs.sh`; return its output without errors, which go to the other stream."""
    done = run_tool(JavaTool.CONFIGS, "--bootstrap-server", muster.bootstrap, *arguments)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def dynamic_configs(printed: str) -> dict[str, str]:
    """The configs in the output of `--describe`, by name."""
    lines = [line.strip().split(" ")[0] for line in printed.splitlines() if line.startswith("  ")]
    return dict(line.split("=", 1) for line in lines)


def test_kafka_configs_sets_shows_and_deletes(muster: MusterProcess, group_id: str) -> None:
    """A list is in brackets, and a config that was set differs from a default."""
    group = ("--entity-type", "groups", "--entity-name", group_id)
    added = kafka_configs(
        muster, *group, "--alter", "--add-config", f"{TIMEOUT}=60000,members.registered=[web-3,web-4]"
    )
    assert added.strip() == f"Completed updating config for group {group_id}."
    reported = dynamic_configs(kafka_configs(muster, *group, "--describe"))
    assert reported == {TIMEOUT: "60000", "members.registered": "web-3,web-4"}
    kafka_configs(muster, *group, "--alter", "--delete-config", "members.registered")
    printed = kafka_configs(muster, *group, "--describe", "--all")
    reported = dynamic_configs(printed)
    assert reported.keys() == GROUP_CONFIGS.keys()
    assert (reported[TIMEOUT], reported["members.registered"], reported["target.group.size"]) == ("60000", "", "null")
    assert f"synonyms={{DYNAMIC_GROUP_CONFIG:{TIMEOUT}=60000, DEFAULT_CONFIG:{TIMEOUT}=300000}}" in printed


def test_kafka_configs_shows_why_it_was_refused(muster: MusterProcess, group_id: str) -> None:
    """With the value and the limits; nothing is changed."""
    group = ("--entity-type", "groups", "--entity-name", group_id)
    refused = kafka_configs(muster, *group, "--alter", "--add-config", f"{TIMEOUT}=60000,target.group.size=0", code=1)
    assert "InvalidConfigurationException: target.group.size=0: should be a whole number from 1" in refused
    assert dynamic_configs(kafka_configs(muster, *group, "--describe")) == {}
    unknown = ("--entity-type", "groups", "--entity-name", "it-never-was")
    refused = kafka_configs(muster, *unknown, "--alter", "--add-config", "target.group.size=3", code=1)
    assert "GroupIdNotFoundException" in refused
    refused = kafka_configs(
        muster, "--entity-type", "topics", "--entity-name", TOPIC, "--alter", "--add-config", "retention.ms=1", code=1
    )
    assert f"InvalidRequestException: The configs of topic '{TOPIC}' cannot be altered here" in refused


def test_kafka_tools_that_ask_for_settings_along_with_what_they_describe(muster: MusterProcess) -> None:
    """Topics and brokers have none, which is no error."""
    topics = run_tool(JavaTool.TOPICS, "--bootstrap-server", muster.bootstrap, "--describe", "--topic", TOPIC)
    assert topics.returncode == 0, topics.stderr
    assert f"Topic: {TOPIC}" in topics.stdout
    brokers = kafka_configs(muster, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    assert brokers.strip() == "All configs for broker 1 are:"


# ---- confluent-kafka ----------------------------------------------------------------------------


class Confluent:
    """confluent-kafka's AdminClient, for one group."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap})
        self._group_id = group_id

    def alter(self, *changes: tuple[AlterConfigOpType, str, str | None], validate_only: bool = False) -> None:
        """All changes of the group in one request. Raises KafkaException."""
        entries = [ConfigEntry(name, value, incremental_operation=operation) for operation, name, value in changes]
        resource = ConfluentResource(ConfluentType.GROUP, self._group_id, incremental_configs=entries)
        answers = self._client.incremental_alter_configs([resource], validate_only=validate_only)
        answers[resource].result(ANSWERED_WITHIN_S)

    def refused(self, *changes: tuple[AlterConfigOpType, str, str | None]) -> tuple[str, str]:
        """Kafka's name of the error, and the coordinator's message."""
        with pytest.raises(KafkaException) as raised:
            self.alter(*changes)
        return raised.value.args[0].name(), raised.value.args[0].str()

    def told(self) -> dict[str, tuple[str | None, ConfigSource]]:
        """Each config with its value and source."""
        resource = ConfluentResource(ConfluentType.GROUP, self._group_id)
        entries = self._client.describe_configs([resource])[resource].result(ANSWERED_WITHIN_S)
        return {name: (entry.value, ConfigSource(entry.source)) for name, entry in entries.items()}

    def is_set(self) -> dict[str, str | None]:
        """The configs set for the group."""
        return {name: value for name, (value, source) in self.told().items() if source is ConfigSource.GROUP_CONFIG}


def test_confluent_kafka_alters_and_describes(muster: MusterProcess, group_id: str) -> None:
    """Every operation, all changes or none; `validate_only` changes nothing."""
    confluent, op = Confluent(muster.bootstrap, group_id), AlterConfigOpType
    confluent.alter((op.SET, TIMEOUT, "60000"), (op.APPEND, "members.registered", "web-3,web-4"))
    assert confluent.is_set() == {TIMEOUT: "60000", "members.registered": "web-3,web-4"}
    confluent.alter((op.SUBTRACT, "members.registered", "web-3"), validate_only=True)
    assert confluent.is_set()["members.registered"] == "web-3,web-4"
    confluent.alter((op.SUBTRACT, "members.registered", "web-3"), (op.DELETE, TIMEOUT, None))
    assert confluent.is_set() == {"members.registered": "web-4"}
    found = confluent.told()
    assert found.keys() == GROUP_CONFIGS.keys()
    assert found[TIMEOUT] == ("300000", ConfigSource.DEFAULT_CONFIG)
    assert found["target.group.size"] == (None, ConfigSource.DEFAULT_CONFIG)

    error, message = confluent.refused((op.SET, TIMEOUT, "1000"), (op.APPEND, "members.registered", "web-1"))
    assert error == "DUPLICATE_RESOURCE"
    assert "'web-1' is a member already" in message
    error, message = confluent.refused((op.APPEND, "target.group.size", "1"))
    assert error == "INVALID_CONFIG"
    assert "not a LIST" in message
    assert confluent.refused((op.SUBTRACT, "members.registered", "web-9"))[0] == "UNKNOWN_MEMBER_ID"
    assert confluent.is_set() == {"members.registered": "web-4"}


def test_confluent_kafka_with_a_group_that_does_not_exist(muster: MusterProcess) -> None:
    """It has the defaults, as in Kafka, but they cannot be altered."""
    confluent = Confluent(muster.bootstrap, "it-never-was")
    assert confluent.is_set() == {}
    assert confluent.refused((AlterConfigOpType.SET, "target.group.size", "3"))[0] == "GROUP_ID_NOT_FOUND"


# ---- kafka-python -------------------------------------------------------------------------------


@pytest.fixture
def kafka_python(muster: MusterProcess) -> Iterator[Any]:
    """kafka-python's admin client."""
    client = KafkaAdminClient(bootstrap_servers=muster.bootstrap)
    yield client
    client.close()


def group_resource(group_id: str, configs: Any = None) -> Any:
    return ConfigResource("GROUP", group_id, configs)


def values(kafka_python: Any, group_id: str) -> dict[str, str]:
    """The configs set for the group."""
    reported = kafka_python.describe_configs([group_resource(group_id)])["group"][group_id]
    assert {entry["config_source"] for entry in reported.values()} <= {"DYNAMIC_GROUP_CONFIG"}
    return {name: entry["value"] for name, entry in reported.items()}


def test_kafka_python_alters_describes_and_resets(kafka_python: Any, group_id: str) -> None:
    """Each group has its own result."""
    changes = {TIMEOUT: "60000", "members.registered": ("APPEND", "web-3,web-4")}
    requested = [group_resource(group_id, changes), group_resource("it-never-was", {TIMEOUT: "60000"})]
    answered = kafka_python.alter_configs(requested)["group"]
    assert answered[group_id] == "OK"
    assert "GroupIdNotFoundError" in answered["it-never-was"]
    assert values(kafka_python, group_id) == {TIMEOUT: "60000", "members.registered": "web-3,web-4"}
    answered = kafka_python.alter_configs([group_resource(group_id, {"target.group.size": "0"})])
    assert "target.group.size=0: should be a whole number from 1" in answered["group"][group_id]
    assert kafka_python.reset_configs([group_resource(group_id, [TIMEOUT])]) == {"group": {group_id: "OK"}}
    assert values(kafka_python, group_id) == {"members.registered": "web-3,web-4"}


def test_kafka_python_lists_the_members_on_request(kafka_python: Any, group_id: str) -> None:
    """It is the only one of these that can request a config by name."""
    reported = kafka_python.describe_configs([group_resource(group_id, ["members"])])["group"][group_id]["members"]
    assert reported["read_only"]
    members = msgspec.json.decode(reported["value"])
    assert {each["group_instance_id"]: each["standing"] for each in members} == {"web-1": "Active", "web-2": "Active"}
    assert [each["client_id"] for each in members] == ["shop", "shop"]


def test_kafka_python_removes_members(muster: MusterProcess, kafka_python: Any, group_id: str) -> None:
    """KIP-345's LeaveGroup, with a result for each."""
    members = [MemberToRemove(group_instance_id=name, reason="disk full") for name in ("web-1", "web-9")]
    assert kafka_python.remove_group_members(group_id, members) == {"web-1": NoError, "web-9": UnknownMemberIdError}
    assert [each["group_instance_id"] for each in described(muster.bootstrap, group_id)["members"]] == ["web-2"]
