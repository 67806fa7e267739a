"""Failures to connect, sorted: what the network did, and what aiokafka made of an answer."""

from typing import Any

import pytest
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError

from muster.events.kafka import connect as connecting
from muster.events.kafka.connect import LibraryFailed, connect


def closed_by(cause: BaseException | None) -> KafkaConnectionError:
    """As aiokafka reports a closed connection, whatever the cause."""
    error = KafkaConnectionError("Connection at kafka:9092 closed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (closed_by(None), KafkaConnectionError),
        (closed_by(ConnectionResetError()), KafkaConnectionError),
        (closed_by(EOFError()), KafkaConnectionError),
        (closed_by(ValueError("no such string")), LibraryFailed),
        (AuthenticationFailedError("no"), AuthenticationFailedError),
        (ConnectionRefusedError(), ConnectionRefusedError),
        (TypeError("no such field"), LibraryFailed),
    ],
    ids=lambda each: repr(each) if isinstance(each, Exception) else each.__name__,
)
async def test_a_response_that_aiokafka_cannot_read_is_distinguished_from_a_disconnect(
    monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    """The one would be the same again; the other may be a broker that is restarting."""

    async def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(connecting, "create_conn", fail)
    with pytest.raises(raised) as reported:
        await connect("kafka", 9092)
    assert type(reported.value) is raised
    assert (reported.value is error) == (raised is not LibraryFailed)
