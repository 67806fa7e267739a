"""`[::]` listens on every address of the machine in both families, as in Kafka: for clients, peers and metrics."""

import asyncio
import socket
from http.client import HTTPConnection
from typing import Any

import confluent_kafka
import pytest
from prometheus_client import CollectorRegistry

from muster.coordinator.net.listening import addresses_of
from muster.coordinator.observability.metrics_endpoint import MetricsEndpoint
from muster.coordinator.peers.link.peer_listener import PeerListener
from muster.coordinator.standalone.server import ServerSettings
from tests.brokers.broker import lasting_ports
from tests.coordinator.running_server import HEARTBEAT, Client, Running
from tests.muster_process import running_muster
from tests.waiting import until

LOOPBACKS = ("127.0.0.1", "::1")


async def test_clients_come_by_either() -> None:
    """On one port, even if it was chosen by the system; each client is known by its own address."""
    subject = Running(ServerSettings(host="::", port=0))
    await subject.server.start()
    try:
        for host in LOOPBACKS:
            client = Client(*await asyncio.open_connection(host, subject.server.port))
            client.send("Heartbeat", 4, **HEARTBEAT)
            await client.answer()
            client.writer.close()
        assert [command.caller.client_host for command in subject.groups.commands] == ["/127.0.0.1", "/0:0:0:0:0:0:0:1"]
    finally:
        await subject.server.close(within_s=1)


async def test_an_address_of_one_family_is_that_alone() -> None:
    assert await addresses_of("::1") == [(socket.AF_INET6, "::1")]
    assert await addresses_of("0.0.0.0") == [(socket.AF_INET, "0.0.0.0")]


async def test_a_port_that_is_taken_in_one_family_is_not_half_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        subject = Running(ServerSettings(host="::", port=port))
        with pytest.raises(OSError, match="in use"):
            await subject.server.start()
        with socket.create_server(("::", port), family=socket.AF_INET6):
            pass


async def test_other_processes_come_by_either() -> None:
    ended: list[Any] = []
    listener = PeerListener(
        secret=lambda: b"s" * 32,
        node_id=1,
        message_bytes_max=1_000,
        monotonic_ms=lambda: 0,
        accepted=ended.append,
        lost=ended.append,
    )
    port = await listener.start("::", 0, None)
    for host in LOOPBACKS:
        reader, writer = await asyncio.open_connection(host, port)
        assert await reader.read(1)  # the challenge
        writer.close()
    await listener.close()


@pytest.mark.parametrize(("listen", "hosts"), [("::", LOOPBACKS), ("::1", ("::1",)), ("0.0.0.0", ("127.0.0.1",))])
def test_metrics_are_served_over_either_family(listen: str, hosts: tuple[str, ...]) -> None:
    endpoint = MetricsEndpoint(listen, 0, CollectorRegistry(), not_ready=lambda: None, not_well=lambda: None)
    try:
        for host in hosts:
            connection = HTTPConnection(host, endpoint.port, timeout=60)
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            connection.close()
    finally:
        endpoint.close()


@pytest.mark.clients
async def test_a_whole_process_is_reached_by_either() -> None:
    port, metrics = lasting_ports(2)
    options = ["--listen", f"[::]:{port}", "--advertise", f"127.0.0.1:{port}", "--metrics", f"[::]:{metrics}"]
    with running_muster(log="memory:", topics=["orders:1"], options=options):
        for host in LOOPBACKS:
            name = f"[{host}]" if ":" in host else host
            consumer = confluent_kafka.Consumer({"bootstrap.servers": f"{name}:{port}", "group.id": "both"})
            assert "orders" in consumer.list_topics(timeout=60).topics
            consumer.close()
            connection = HTTPConnection(host, metrics, timeout=60)

            def is_ready(connection: HTTPConnection = connection) -> bool:
                connection.request("GET", "/readyz")
                answer = connection.getresponse()
                answer.read()
                return answer.status == 200

            await until(is_ready)
            connection.close()
