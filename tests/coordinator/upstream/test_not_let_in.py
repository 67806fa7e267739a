"""One broker's certificate is not trusted, or it refuses ours: the others are used, and the log names that broker."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from structlog.testing import capture_logs

from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.security import UpstreamSecurity
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.kafka.errors import TryAgain
from muster.events.kafka.security import KafkaSecurity, kafka_security
from muster.events.log.base import LogMismatch, LogUnavailable
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from tests.brokers.certificates import Authority
from tests.coordinator.upstream.fake_broker import KAFKA_3_2, FakeBroker, fake_broker, heartbeat
from tests.coordinator.upstream.stage import unexpected
from tests.coordinator.upstream.test_link import error_of, unused_addresses


class Stage:
    """Brokers behind TLS: one is trusted; the certificates of `bad` and `worse` are not."""

    def __init__(self, well: FakeBroker, bad: FakeBroker, worse: FakeBroker, properties: dict[str, str]) -> None:
        self.well, self.bad, self.worse, self.properties = well, bad, worse, properties

    def link(self, *addresses: str) -> UpstreamLink:
        return UpstreamLink(",".join(addresses), UpstreamSecurity.of(self.properties), give_up=unexpected)

    def log_link(self, *addresses: str) -> KafkaLink:
        return KafkaLink(addresses, self._security(), Timeouts())

    def _security(self) -> KafkaSecurity:
        return kafka_security(self.properties, "here")


@asynccontextmanager
async def stage(directory: Path) -> AsyncIterator[Stage]:
    trusted, other = Authority(directory / "a"), Authority(directory / "b", name="Another")
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(trusted.certificate)}
    async with (
        fake_broker(context=_of(trusted)) as well,
        fake_broker(context=_of(other)) as bad,
        fake_broker(context=_of(other)) as worse,
    ):
        yield Stage(well, bad, worse, properties)


def _of(authority: Authority) -> ssl.SSLContext:
    issued = authority.issue("broker")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate, issued.key)
    return context


async def test_the_cluster_is_found_by_the_others(tmp_path: Path) -> None:
    """The log names that broker, once."""
    async with stage(tmp_path) as at:
        link = at.link(at.bad.address, at.well.address)
        with capture_logs() as lines:
            await link.open()
            await link.refresh()
        assert sorted(link.brokers()) == [1]
        await link.close()
        reported = [line["reasons"] for line in lines if line["log_level"] == "warning"]
        why = "unable to get local issuer certificate (ssl.ca.location)"
        assert reported == [f"the certificate of the broker at {at.bad.address}: {why}"]


async def test_other_brokers_name_the_coordinator_of_a_group(tmp_path: Path) -> None:
    """Even if the bad one is asked first."""
    async with stage(tmp_path) as at:
        at.well.others_at = [at.bad.address]
        link = at.link(at.well.address)
        await link.open()
        assert list(link.brokers()) == [2, 1]
        await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of, retry_ms=0)
        await link.close()


async def test_when_all_refuse_each_is_named(tmp_path: Path) -> None:
    """Waiting makes no sense then."""
    async with stage(tmp_path) as at:
        link = at.link(at.bad.address, at.worse.address)
        with pytest.raises(UpstreamRefused, match=rf"certificate.*{at.bad.address}.*; .*{at.worse.address}"):
            await link.open()
        await link.close()


async def test_while_one_is_not_there_it_is_waited_for(tmp_path: Path) -> None:
    """It may accept us."""
    async with stage(tmp_path) as at:
        absent, _ = unused_addresses()
        link = at.link(at.bad.address, absent)
        with pytest.raises(TryAgain, match=rf"certificate.*{at.bad.address}.*; {absent}"):
            await link.open()
        await link.close()


async def test_the_log_is_found_by_the_others(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        at.well.others_at = [at.bad.address]
        link = at.log_link(at.bad.address, at.well.address)
        await link.open()
        for _ in range(10):
            await link.refresh()  # brokers are asked in any order
        await link.close()


async def test_the_log_is_waited_for_while_one_broker_is_not_there(tmp_path: Path) -> None:
    """When all refuse, each is named, and there is no waiting."""
    async with stage(tmp_path) as at:
        absent, _ = unused_addresses()
        for other, kind in ((absent, LogUnavailable), (at.worse.address, LogMismatch)):
            link = at.log_link(at.bad.address, other)
            with pytest.raises(kind, match=rf"{at.bad.address}.*CERTIFICATE_VERIFY_FAILED.*; {other}") as reported:
                await link.open()
            assert type(reported.value) is kind
            await link.close()


async def test_a_server_that_fails_at_scram_refuses_us() -> None:
    """A wrong secret, or an impostor: one log line each for the log's link and the sidecar's own."""
    user = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "muster", "sasl.password": "secret"}
    properties = {"security.protocol": "SASL_PLAINTEXT", **user}
    async with fake_broker({**KAFKA_3_2, 17: 1, 36: 0}) as impostor:
        link = UpstreamLink(impostor.address, UpstreamSecurity.of(properties), give_up=unexpected)
        with pytest.raises(UpstreamRefused, match=rf"{impostor.address} refuses Muster: user muster .*: Server nonce"):
            await link.open()
        await link.close()
        log_link = KafkaLink([impostor.address], kafka_security(properties, "here"), Timeouts())
        with pytest.raises(LogMismatch, match=rf"{impostor.address}: user muster .*: Server nonce"):
            await log_link.open()
        await log_link.close()
