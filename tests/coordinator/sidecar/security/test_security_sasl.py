"""SASL is between the client and the broker: it is passed through, with every mechanism, repeatedly; and observed."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from muster.replay import cli as replay_cli
from tests.brokers.acls import Acl, add_acls
from tests.brokers.broker import properties_text
from tests.brokers.java_tools import JavaTool, ToolLine, running_tool
from tests.brokers.secured import MECHANISMS, SecuredBroker, java_properties, password_of
from tests.clients.consumers import Aiokafka, Confluent, KafkaPython, RunningConsumer
from tests.coordinator.sidecar.security.security_stage import LISTENER, TOPIC, new_group, shared_broker, sidecar
from tests.muster_process import MusterProcess, sqlite_log
from tests.waiting import until_so

pytestmark = [pytest.mark.broker, pytest.mark.clients]

SESSION_MS: Final = 2_000
SESSIONS: Final = 3
"""A client must stay connected through this many sessions."""


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with shared_broker({"connections.max.reauth.ms": str(SESSION_MS)}) as running:
        add_acls(running.admin(), Acl("alice", "group", "*", "READ"), Acl("alice", "topic", TOPIC, "READ"))
        yield running


@pytest.fixture(scope="module")
def muster(broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterProcess]:
    log = sqlite_log(tmp_path_factory.mktemp("log"))
    with sidecar(broker, "--metrics", "127.0.0.1:0", log=log) as running:
        yield running


@contextmanager
def consuming(
    library: type[RunningConsumer], muster: MusterProcess, group_id: str, config: dict[str, Any]
) -> Iterator[RunningConsumer]:
    """A consumer with the topic's partition; it closes cleanly."""
    of_a_user = type(library.__name__, (library,), {"OTHER_CONFIG": config})
    consumer = of_a_user(muster.bootstrap, group_id, TOPIC).start()
    try:
        until_so(lambda: consumer.assigned == {0} or consumer.error is not None, lambda: muster.output[-2000:])
        yield consumer
    finally:
        consumer.close()


def of_librdkafka(broker: SecuredBroker, mechanism: str) -> dict[str, Any]:
    """Alice, in confluent-kafka's configuration."""
    properties = broker.client(LISTENER, user="alice", mechanism=mechanism)
    del properties["bootstrap.servers"]
    return properties


def of_python(mechanism: str) -> dict[str, Any]:
    """Alice, in the configuration of kafka-python and aiokafka."""
    return {
        "security_protocol": LISTENER,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password_of("alice"),
    }


def principals(muster: MusterProcess, group_id: str) -> set[str]:
    """The members' principals in the history."""
    arguments = ["history", group_id, "--log", muster.log, "--format", "jsonl"]
    result = CliRunner().invoke(replay_cli.app, arguments)
    assert result.exit_code == 0, result.output
    return {name for line in result.stdout.splitlines() for name in _principals(json.loads(line))}


def _principals(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.get("client_id"):
            yield value["principal"]
        for each in value.values():
            yield from _principals(each)
    elif isinstance(value, list):
        for each in value:
            yield from _principals(each)


def authentications(muster: MusterProcess) -> int:
    """The number of SaslAuthenticate requests that have passed through."""
    counted = [line for line in muster.asked("/metrics").splitlines() if 'api="SaslAuthenticate"' in line]
    return sum(int(float(line.split()[-1])) for line in counted)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_passes_and_the_history_has_the_name(
    broker: SecuredBroker, muster: MusterProcess, mechanism: str
) -> None:
    """confluent-kafka as alice: joins, commits as herself, and is the principal of her membership."""
    group_id = new_group()
    with consuming(Confluent, muster, group_id, of_librdkafka(broker, mechanism)) as consumer:
        consumer.commit(0, 5)
        assert consumer.committed(0) == 5
    assert principals(muster, group_id) == {"User:alice"}


@pytest.mark.parametrize("library", [Aiokafka, KafkaPython])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_other_libraries_pass(muster: MusterProcess, library: type[RunningConsumer], mechanism: str) -> None:
    """They send the same messages with other code."""
    group_id = new_group()
    with consuming(library, muster, group_id, of_python(mechanism)) as consumer:
        consumer.commit(0, 5)
        assert consumer.committed(0) == 5
    assert principals(muster, group_id) == {"User:alice"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_member_authenticates_again_and_again(broker: SecuredBroker, muster: MusterProcess, mechanism: str) -> None:
    """librdkafka, KIP-368: it stays in its group, on the same connections, without a rebalance."""
    group_id = new_group()
    with consuming(Confluent, muster, group_id, of_librdkafka(broker, mechanism)) as consumer:
        closed = len(muster.events("broker closed the connection"))
        begun = authentications(muster)
        rounds = 2 if mechanism.startswith("SCRAM") else 1
        until_so(lambda: authentications(muster) >= begun + 2 * SESSIONS * rounds, lambda: authentications(muster))
        consumer.commit(0, 6)
        assert consumer.assignments == 1
        assert len(muster.events("broker closed the connection")) == closed
    assert principals(muster, group_id) == {"User:alice"}


def test_a_java_member_authenticates_again_and_again(
    broker: SecuredBroker, muster: MusterProcess, tmp_path: Path
) -> None:
    """The Java client sends its exchange between two requests: it stays in its group, without a rebalance."""
    group_id = new_group()
    file = tmp_path / "alice.properties"
    file.write_text(properties_text(java_properties(of_librdkafka(broker, "SCRAM-SHA-256"))), encoding="utf-8")
    arguments = ("--bootstrap-server", muster.bootstrap, "--topic", TOPIC, "--group-id", group_id)
    with running_tool(JavaTool.VERIFIABLE_CONSUMER, *arguments, "--command-config", str(file)) as consumer:
        consumer.wait_for(lambda line: line.event.get("name") == "partitions_assigned")
        closed = len(muster.events("broker closed the connection"))
        begun = authentications(muster)
        until_so(lambda: authentications(muster) >= begun + 4 * SESSIONS, lambda: authentications(muster))
        assert len(muster.events("broker closed the connection")) == closed
        assert [line for line in consumer.seen if _is_rebalance(line)][1:] == []
        consumer.signal(signal.SIGTERM)
        consumer.wait()
    assert principals(muster, group_id) == {"User:alice"}


def _is_rebalance(line: ToolLine) -> bool:
    return line.event.get("name") == "partitions_assigned"


def test_no_secret_is_logged(broker: SecuredBroker, tmp_path: Path) -> None:
    """Neither a password nor a proof, at any log level; the user's name is not a secret."""
    with sidecar(broker, "--log-level", "debug", log=sqlite_log(tmp_path)) as talkative:
        with consuming(Confluent, talkative, new_group(), of_librdkafka(broker, "PLAIN")):
            pass
        assert talkative.stop() == 0
        assert password_of("alice") not in talkative.output
        assert password_of("muster") not in talkative.output
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"User:alice" in kept
    assert password_of("alice").encode() not in kept
