"""A cluster with authentication: an event log on it, with its offsets, and the commands that connect to it."""

import time
from collections.abc import Iterator, Mapping
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from muster.coordinator.client.commands import members_cli
from muster.coordinator.client.requests import RETRY_MS
from muster.replay import cli as replay_cli
from tests.brokers.secured import SecuredBroker, client_properties, password_of, secured_broker
from tests.clients.probe import described
from tests.coordinator.formed import form_group
from tests.muster_process import running_muster

pytestmark = pytest.mark.broker

WIDE = {"COLUMNS": "160", "TERM": "dumb"}
LISTENER = "SASL_SSL"


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as running:
        yield running


@pytest.fixture(autouse=True)
def password_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no list of processes shows it."""
    monkeypatch.setenv("MUSTER_KAFKA_CONFIG_SASL_PASSWORD", password_of("admin"))


def options(properties: Mapping[str, str]) -> list[str]:
    """Return the command line options, except for the password."""
    given = [f"{name}={value}" for name, value in properties.items() if name != "sasl.password"]
    return [part for entry in given for part in ("--kafka-config", entry)]


def of(broker: SecuredBroker, mechanism: str = "SCRAM-SHA-512") -> list[str]:
    return options(client_properties(LISTENER, authority=broker.authority, mechanism=mechanism))


def run_command(app: object, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env=WIDE)  # type: ignore[arg-type]


def assert_fails(result: Result, *parts: str) -> None:
    assert result.exit_code == 2, result.output
    assert [part for part in parts if part not in result.stderr] == [], result.stderr
    assert "Traceback" not in result.stderr
    assert password_of("admin") not in result.stderr


def test_a_log_and_its_offsets_are_kept_there(broker: SecuredBroker) -> None:
    """The log is created, written, and read by the next process and by `why`."""
    topic, group = f"events-{uuid4().hex[:8]}", "orders"
    url = f"kafka://{broker.address(LISTENER)}/{topic}"
    with running_muster(log=url, topics=["orders:1"], options=of(broker)) as muster:
        form_group(muster.bootstrap, group, "web-1")
        muster.restart()
        assert described(muster.bootstrap, group)["group_state"] == "Stable"
    result = run_command(replay_cli.app, "groups", "--log", url, *of(broker, "PLAIN"))
    assert result.exit_code == 0, result.output
    assert group in result.stdout
    assert f"{topic}_offsets" in broker.admin().list_topics(timeout=30).topics


def test_a_refused_login_is_explained(broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password, a listener that is spoken to in plain text: one line each."""
    url = f"kafka://{broker.address(LISTENER)}/events"
    monkeypatch.setenv("MUSTER_KAFKA_CONFIG_SASL_PASSWORD", "wrong")
    assert_fails(run_command(replay_cli.app, "groups", "--log", url, *of(broker)), "no connection to", "uthentication")
    bootstrap = ["--bootstrap", broker.address(LISTENER)]
    assert_fails(
        run_command(members_cli.app, "list", "orders", *bootstrap, *of(broker)), "no connection to", "uthentication"
    )
    unsecured = ["--kafka-config", "security.protocol=SSL"]
    monkeypatch.delenv("MUSTER_KAFKA_CONFIG_SASL_PASSWORD")
    assert_fails(run_command(members_cli.app, "list", "orders", *bootstrap, *unsecured), "(ssl.ca.location)")
    assert_fails(
        run_command(members_cli.app, "list", "orders", *bootstrap),
        "nobody answers at",
        "--kafka-config if the listener needs TLS",
    )


def test_the_members_of_a_group_are_requested_there(broker: SecuredBroker) -> None:
    """Kafka responds without having the member: the test is about the connection."""
    result = run_command(members_cli.app, "list", "nobody", "--bootstrap", broker.address(LISTENER), *of(broker))
    assert_fails(result, "is a Kafka broker, not Muster: name the sidecar (--bootstrap, MUSTER_BOOTSTRAP)")


@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_client_without_credentials_learns_at_once_that_they_are_required(
    broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    """A broker closes the connection, with or without having sent its versions."""
    monkeypatch.delenv("MUSTER_KAFKA_CONFIG_SASL_PASSWORD")
    address, wants = broker.address(listener), "does it want credentials or TLS ("
    assert_fails(
        run_command(replay_cli.app, "groups", "--log", f"kafka://{address}/events"),
        f"no broker answers at {address}: ",
        wants,
    )
    begun = time.monotonic()
    assert_fails(run_command(members_cli.app, "list", "orders", "--bootstrap", address), f"{address} hung up", wants)
    assert time.monotonic() - begun < RETRY_MS / 1000, "it was not asked again and again"
