"""The start of a sidecar whose cluster refuses it, does not exist yet, or is too old: one log line has the reason."""

import asyncio
import urllib.error
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.brokers.broker import HOST, lasting_ports
from tests.brokers.secured import SecuredBroker
from tests.coordinator.sidecar.security.security_stage import (
    LISTENER,
    own_ports,
    refused_start,
    shared_broker,
    speaking,
    upstream_options,
)
from tests.coordinator.upstream.fake_broker import fake_broker
from tests.muster_process import MusterProcess
from tests.waiting import until

pytestmark = pytest.mark.broker

IN_MEMORY = ("--log", "memory:")


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with shared_broker() as running:
        yield running


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sasl_password": "guessed"}, "invalid credentials with SASL mechanism SCRAM-SHA-512"),
        ({"sasl_username": "mustard"}, "invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ],
)
def test_wrong_credentials_end_it(broker: SecuredBroker, changed: dict[str, str], reason: str) -> None:
    """A retry makes no sense; neither the password nor a traceback is shown."""
    line = refused_start(*upstream_options(broker, **changed), *own_ports(), *IN_MEMORY)
    assert line.startswith(f"muster: --upstream {broker.address(LISTENER)}: the broker at ")
    assert "refuses Muster: " in line
    assert reason in line
    assert not any(secret in line for secret in ("guessed", "muster-secret"))


async def test_a_broker_that_is_too_old_ends_it() -> None:
    """With the request that is missing, and the Kafka version that has it."""
    async with fake_broker({3: 12, 10: 4, 11: 5}) as fake:
        address = fake.address
        line = await asyncio.to_thread(refused_start, "--upstream", address, *own_ports(), *IN_MEMORY)
    assert line == (
        f"muster: --upstream {address}: the upstream broker offers JoinGroup v0 to v5, v9 is needed: Kafka 3.2 or newer"
    )


@asynccontextmanager
async def passing_on(port: int, address: str) -> AsyncIterator[None]:
    """Forward connections on this port to the address, while the block lasts."""
    host, _, its_port = address.rpartition(":")
    pumping: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        its_reader, its_writer = await asyncio.open_connection(host, int(its_port))
        for ends in ((reader, its_writer), (its_reader, writer)):
            pumping.add(asyncio.create_task(pump(*ends)))

    server = await asyncio.start_server(accepted, HOST, port)
    try:
        yield
    finally:
        server.close()
        for task in pumping:
            task.cancel()
        await asyncio.gather(*pumping, return_exceptions=True)


async def test_a_cluster_that_comes_later_is_waited_for(broker: SecuredBroker, tmp_path: Path) -> None:
    """/readyz has the reason; then it serves, and logs that."""
    (port,) = lasting_ports(1)
    bootstrap = f"{HOST}:{port}"
    options = [*upstream_options(broker, bootstrap=bootstrap), *own_ports(), *IN_MEMORY, "--metrics", f"{HOST}:0"]
    output = tmp_path / "output"
    output.touch()
    muster = MusterProcess(*options, output=output)
    starting = asyncio.create_task(asyncio.to_thread(muster.start))
    try:

        async def is_explained() -> bool:
            code, text = await asyncio.to_thread(readiness, muster)
            return code == 503 and text.startswith(
                f"--upstream {bootstrap}: no broker of the upstream cluster answers: {bootstrap}: "
            )

        await until(is_explained)
        async with passing_on(port, broker.address(LISTENER)):
            await starting
            assert await asyncio.to_thread(readiness, muster) == (200, "ready")
            async with speaking(muster.bootstrap, "alice") as connection:
                assert (await connection.ask("Metadata", 1, topics=[]))["brokers"] != []
        waited = [event["error"] for event in muster.events("upstream unreachable, retrying")]
        assert waited
        assert all(bootstrap in each for each in waited)
    finally:
        await asyncio.gather(starting, return_exceptions=True)
        muster.end()


def readiness(muster: MusterProcess) -> tuple[int, str]:
    """The response of /readyz; (0, "") before it is there."""
    if muster.output.find('"event": "metrics"') < 0:
        return 0, ""
    try:
        return 200, muster.asked("/readyz").strip()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode().strip()
