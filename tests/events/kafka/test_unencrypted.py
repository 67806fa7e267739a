"""An unencrypted password is reported once, in our own words."""

import inspect
import logging
import socket

import aiokafka.conn
import pytest

from muster.events.kafka import connect as kafka_connect
from muster.events.kafka.connect import connect, warn_unencrypted

PLAIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}


@pytest.fixture(autouse=True)
def nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_connect, "_warned_of", set())


def test_it_is_logged_once_with_the_address_and_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    for port in (9092, 9093):
        warn_unencrypted("kafka-1", port, PLAIN)
    assert caplog.messages == [
        "the password goes unencrypted to kafka-1:9092 (security.protocol=SASL_PLAINTEXT; SASL_SSL encrypts it)"
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"security_protocol": "PLAINTEXT"},
        {"security_protocol": "SASL_SSL"},
        {"security_protocol": "SSL"},
        {"sasl_mechanism": "SCRAM-SHA-256"},
    ],
)
def test_without_a_password_or_with_encryption_nothing_is_logged(
    caplog: pytest.LogCaptureFixture, other: dict[str, str]
) -> None:
    warn_unencrypted("kafka-1", 9092, PLAIN | other)
    assert not caplog.messages


def test_aiokafkas_own_line_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    """Which still has those words; others of its lines are."""
    line = "Sending username and password in the clear"
    assert f'log.warning("{line}")' in inspect.getsource(aiokafka.conn)
    for message in (line, "another"):
        logging.getLogger("aiokafka.conn").warning(message)
    assert caplog.messages == ["another"]


async def test_every_kind_of_client_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    """A log, a sidecar, and an administrator's command."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        await connect("127.0.0.1", port, **PLAIN)
    assert [message for message in caplog.messages if message.startswith("the password goes unencrypted")] != []
