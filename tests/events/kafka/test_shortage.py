"""Exhausted local ports or files are reported as such, and not as a silent broker."""

import asyncio
import errno
import os
from types import SimpleNamespace

import pytest

from muster.events.kafka import shortage as told
from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import OwnShortage
from muster.events.kafka.security import NOT_SECURED
from muster.events.kafka.shortage import log_shortage, shortage
from tests.events.kafka.test_connections import question, unexplained

OURS = (errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.ENOBUFS)
PLACE = BrokerAddress("kafka-1", 9092)


def failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def of_two_addresses(*numbers: int) -> OSError:
    """As the event loop reports it."""
    return OSError(f"Multiple exceptions: {', '.join(str(failed(number)) for number in numbers)}")


@pytest.fixture(autouse=True)
def nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "_logged_s", {})


@pytest.mark.parametrize("number", OURS)
def test_each_shortage_has_its_way_out(number: int) -> None:
    words = shortage(failed(number))
    assert words is not None
    assert any(way in words for way in ("ip_local_port_range", "ulimit -n", "fs.file-max", "tcp_mem"))
    assert shortage(of_two_addresses(number, number)) == words


def test_it_is_logged_in_the_first_minute_of_a_machine_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The monotonic clock counts from its start."""
    lines = []
    for now_s in (5.0, 64.9, 65.0):
        monkeypatch.setattr(told, "time", SimpleNamespace(monotonic=lambda now_s=now_s: now_s))
        log_shortage("kafka-1:9092", failed(errno.EMFILE))
        lines.append(len(caplog.records))
    assert lines == [1, 1, 2]


def test_errors_of_a_broker_or_the_network_are_not_a_shortage() -> None:
    for error in (
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        failed(errno.EHOSTUNREACH),
        of_two_addresses(errno.EADDRNOTAVAIL, errno.ECONNREFUSED),
        TimeoutError(),
        OSError("closed"),
        ValueError("[Errno 24]"),
    ):
        assert shortage(error) is None


async def test_a_connection_that_we_cannot_open_is_logged_once_and_has_its_own_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connections = Connections(NOT_SECURED, connect_timeout_ms=1_000, explain=unexplained)

    async def create_connection(*_: object, **__: object) -> None:
        raise failed(errno.EMFILE)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
    for lane in range(3):
        with pytest.raises(OwnShortage, match="kafka-1:9092: this process has reached its limit of open files"):
            await connections.ask(PLACE, question("g"), lane=lane, timeout_ms=1_000)
    await connections.close()
    (line,) = caplog.messages
    assert line.startswith(
        "no connection to the broker at kafka-1:9092: this process has reached its limit of open files (`ulimit"
    )
