"""Why a cluster cannot be reached: the reason is in the one line that is shown."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.connections import OtherCluster
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity, kafka_security
from muster.events.log.base import LogError, LogMismatch, LogUnavailable
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from tests.brokers.certificates import Authority
from tests.coordinator.upstream.fake_broker import fake_broker
from tests.events.log.kafka.client.test_metadata import answer, topic


@asynccontextmanager
async def listening(context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that completes handshakes, and closes the connection after any request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def reason(address: str, security: KafkaSecurity, *, kind: type[LogError] = LogUnavailable) -> str:
    """`kind` is LogUnavailable if waiting can help, LogMismatch if it cannot."""
    link = KafkaLink([address], security, Timeouts(connect_timeout_ms=5_000))
    with pytest.raises(kind) as unavailable:
        await link.open()
    text = str(unavailable.value)
    what = "no broker answers at" if kind is LogUnavailable else "no connection to"
    assert text.startswith(f"{what} {address}: ")
    assert "\n" not in text
    return text


class HearsOnce(KafkaLink):
    """Its Metadata response has two topics, whatever it requests."""

    async def refresh(self) -> None:
        self._apply_metadata(answer(topic((2, 0)), topic((1, 0), name="other")))


async def test_a_closed_port_is_reported() -> None:
    """In the system's words."""
    async with listening() as address:
        pass
    assert "Connect call failed" in await reason(address, NOT_SECURED)


async def test_a_mismatched_certificate_is_reported(tmp_path: Path) -> None:
    """One of an authority that is not trusted, and one for another name."""
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b", name="Another")
    elsewhere = authority.issue("elsewhere", names="DNS:elsewhere.example")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(elsewhere.certificate, elsewhere.key)

    def trusting(whom: Authority) -> KafkaSecurity:
        return kafka_security({"security.protocol": "SSL", "ssl.ca.location": str(whom.certificate)}, "here")

    async with listening(context) as address:
        text = await reason(address, trusting(other), kind=LogMismatch)
        assert "CERTIFICATE_VERIFY_FAILED" in text
        assert "(ssl.ca.location)" in text
        assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in await reason(
            address, trusting(authority), kind=LogMismatch
        )


async def test_a_broker_that_disconnects_is_reported() -> None:
    """Like a broker that expects TLS. The property is named, the address once."""
    async with listening() as address:
        text = await reason(address, NOT_SECURED)
    wanted = "does it want credentials or TLS (--kafka-config security.protocol=...)?"
    assert text == f"no broker answers at {address}: hung up: {wanted}"


async def test_a_broker_that_disconnects_after_api_versions_requires_something() -> None:
    """Like a broker with SASL for a client that has not authenticated."""
    async with fake_broker() as fake:
        fake.hangs_up_at = 3
        text = await reason(fake.address, NOT_SECURED)
    assert "closed the connection before it answered anything: does it want credentials or TLS (--kafka-config " in text


async def test_followed_topics_are_looked_up() -> None:
    """Its leaders are known then, and those of nothing else."""
    link = HearsOnce([], NOT_SECURED, Timeouts())
    await link.follow(["t"])
    assert link.leader_said("t", 0) == "broker 2 at h:9002"
    assert link.leader_said("other", 0) == "a partition leader, of which none is known,"
    assert list(link._topics()) == ["t"]


async def test_a_broker_of_another_cluster_is_reported() -> None:
    """The error and the remedy, in the connection's words, which already have the address."""
    link = KafkaLink([], NOT_SECURED, Timeouts())
    foreign = OtherCluster("h:1 is a broker of cluster b, where one of a was expected")
    assert str(link._explained(BrokerAddress("h", 1), foreign)) == str(foreign)
