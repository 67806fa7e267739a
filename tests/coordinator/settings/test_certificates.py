"""Certificates that are renewed while in use: new connections use the new one, at both ends."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from muster.coordinator.settings import certificates as module
from muster.coordinator.settings.certificates import Certificates
from muster.coordinator.settings.sidecar_tls import client_context
from muster.events.kafka.security import kafka_security
from muster.events.kafka.tls_files import FilesContext
from tests.brokers.certificates import Authority, Issued


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def logged() -> Iterator[list[dict[str, object]]]:
    with structlog.testing.capture_logs() as logs:
        yield logs  # type: ignore[misc]  # structlog says less of it


def serial_shown(serving: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str | None, str | None]:
    """The serial numbers of the certificates that server and client present, in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    server_end = serving.wrap_bio(to_server, to_client, server_side=True)
    for end in (client_end, server_end, client_end, server_end):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    servers, clients = client_end.getpeercert() or {}, server_end.getpeercert() or {}
    return str(servers.get("serialNumber")), str(clients.get("serialNumber"))


def both_ends(authority: Authority, server: Issued, client: Issued) -> tuple[FilesContext, FilesContext]:
    """The contexts of a listener that requires certificates, and of a connection to brokers that presents one."""
    serving = client_context(("a", server.certificate), ("b", server.key), ("c", authority.certificate))
    upstream = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(client.certificate),
        "ssl.key.location": str(client.key),
    }
    connecting = kafka_security(upstream, "here").ssl_context
    assert isinstance(serving, FilesContext)
    assert isinstance(connecting, FilesContext)
    return serving, connecting


async def test_a_renewed_certificate_is_shown_from_then_on(
    authority: Authority, logged: list[dict[str, object]]
) -> None:
    serving, connecting = both_ends(authority, authority.issue("server"), authority.issue("client"))
    certificates = Certificates(lambda: (serving, connecting))
    before = serial_shown(serving, connecting)
    await certificates.check()
    assert logged == []
    assert serial_shown(serving, connecting) == before

    authority.issue("server")
    authority.issue("client")
    await certificates.check()
    after = serial_shown(serving, connecting)
    assert set(after).isdisjoint(before)
    assert [each["event"] for each in logged] == ["certificates reloaded"] * 2
    await certificates.check()
    assert len(logged) == 2


async def test_an_authority_more_is_trusted(authority: Authority, tmp_path: Path) -> None:
    """When the authority changes, both are trusted at first; then certificates are renewed."""
    serving, connecting = both_ends(authority, authority.issue("server"), authority.issue("client"))
    other = Authority(tmp_path / "other", name="Another authority")
    shown = other.issue("client")
    stranger = ssl.create_default_context(cafile=authority.certificate)
    stranger.load_cert_chain(shown.certificate, shown.key)
    with pytest.raises(ssl.SSLError):
        serial_shown(serving, stranger)
    authority.certificate.write_bytes(authority.certificate.read_bytes() + other.certificate.read_bytes())
    await Certificates(lambda: (serving, connecting)).check()
    assert None not in serial_shown(serving, stranger)


async def test_files_that_are_being_written_change_nothing_and_are_logged_once(
    authority: Authority, logged: list[dict[str, object]]
) -> None:
    """Half a file, a key without its certificate, none at all: the old pair is used until both are complete."""
    server = authority.issue("server")
    serving, connecting = both_ends(authority, server, authority.issue("client"))
    certificates = Certificates(lambda: (serving, connecting))
    before = serial_shown(serving, connecting)
    old = server.certificate.read_bytes()
    authority.issue("server")
    new = server.certificate.read_bytes()
    for half, reported in (
        (new[: len(new) // 2], "cannot be read from them"),
        (old, "do not match"),
        (None, "cannot be read: No such"),
    ):
        if half is None:
            server.certificate.unlink()
        else:
            server.certificate.write_bytes(half)
        logged.clear()
        for _ in range(3):
            await certificates.check()
        assert serial_shown(serving, connecting) == before
        (line,) = logged
        assert reported in str(line["reason"])
        assert str(server.certificate) in str(line["reason"])
    server.certificate.write_bytes(new)
    await certificates.check()
    assert serial_shown(serving, connecting)[0] != before[0]


async def test_an_unreadable_file_is_retried_soon(
    authority: Authority, logged: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key and its certificate are written one after the other: the next check comes sooner than usual."""
    monkeypatch.setattr(module, "CHECK_INTERVAL_S", 3_600)
    monkeypatch.setattr(module, "RETRY_INTERVAL_S", 0.001)
    server = authority.issue("server")
    serving, connecting = both_ends(authority, server, authority.issue("client"))
    certificates = Certificates(lambda: (serving, connecting))
    before = serial_shown(serving, connecting)
    old = server.certificate.read_bytes()
    authority.issue("server")
    new = server.certificate.read_bytes()
    server.certificate.write_bytes(old)
    await certificates.check()
    looking = asyncio.create_task(certificates.keep_checking())
    server.certificate.write_bytes(new)
    async with asyncio.timeout(30):
        while logged[-1]["event"] != "certificates reloaded":  # noqa: ASYNC110 -- a log has no event
            await asyncio.sleep(0.001)
    assert serial_shown(serving, connecting)[0] != before[0]
    looking.cancel()


@pytest.mark.timeout(30)
async def test_a_hanging_disk_does_not_block_others_and_is_logged(
    authority: Authority, logged: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a pipe blocks until it is written to; meanwhile the loop runs, and there is no second check."""
    monkeypatch.setattr(module, "SLOW_CHECK_S", 0.01)
    server = authority.issue("server")
    serving, connecting = both_ends(authority, server, authority.issue("client"))
    before, certificate = serial_shown(serving, connecting), server.certificate.read_bytes()
    server.certificate.unlink()
    os.mkfifo(server.certificate)
    certificates = Certificates(lambda: (serving, connecting))
    looking = asyncio.create_task(certificates.check())
    while not logged:  # noqa: ASYNC110 -- nothing tells of a line of log
        await asyncio.sleep(0.001)
    assert "does not respond" in str(logged[0]["event"])
    assert str(server.certificate) in str(logged[0]["files"])
    assert serial_shown(serving, connecting) == before
    answering = os.open(server.certificate, os.O_WRONLY)
    server.certificate.unlink()
    server.certificate.write_bytes(certificate)
    os.close(answering)
    await looking
    assert serial_shown(serving, connecting) == before
