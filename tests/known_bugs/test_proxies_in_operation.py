"""Bugs of proxies in operation: ports, restarts, stopping, settings, idle and full ones (P10 to P13, P15, P17, P18).

Each test has a sidecar in process between scripted brokers and frame-level clients; the listeners and connections are
real.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.settings.loading import BadSettings, load_settings
from muster.coordinator.sidecar.relay.broker_side import CONNECT_TIMEOUT_S
from muster.coordinator.sidecar.relay.conversation import IN_FLIGHT_MAX
from muster.coordinator.sidecar.relay.listeners import CannotListen
from muster.events.ids import MemberId
from tests.brokers.broker import lasting_base
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.running_server import JOIN
from tests.coordinator.sidecar.relaying import BASE_PORTS, HOST, MORE_THAN_SOCKETS_TAKE, Client, relaying
from tests.coordinator.sidecar.scripted_broker import (
    DESCRIBE_GROUPS,
    ReceivedRequest,
    ScriptedBroker,
    read_response,
    request,
    response,
    scripted_broker,
)
from tests.waiting import until

METADATA, FIND_COORDINATOR, FETCH, NOBODYS = 3, 10, 1, 9_999
ID_BEYOND_ALL_PORTS = 70_000
JOINED = JoinGroupOutcome(member_id=MemberId("m"), generation_id=1)


def join(correlation_id: int) -> bytes:
    return with_length(frame("JoinGroup", 3, correlation_id=correlation_id, **JOIN))


def advertising(brokers: Mapping[int, ScriptedBroker]) -> Any:
    """A script that returns these in Metadata v12, and the last one as the coordinator in FindCoordinator v4."""
    places = [{"node_id": number, "host": HOST, "port": each.port, "rack": None} for number, each in brokers.items()]

    def script(requested: ReceivedRequest) -> None:
        if requested.api_key == METADATA:
            fields: dict[str, Any] = {"brokers": places, "cluster_id": "c", "controller_id": 1, "topics": []}
        else:
            found = {**places[-1], "key": "orders", "error_code": ErrorCode.none, "error_message": None}
            fields = {"coordinators": [found]}
        requested.tell(response(requested.api_key, requested.api_version, **fields))

    return script


async def brokers_told(client: Client) -> dict[int, int]:
    """The ports by node id, from Metadata."""
    response = read_response(METADATA, 12, await client.ask(request(METADATA, 12, 1, bytes(12))))
    assert {broker.host for broker in response.brokers} <= {"sidecar"}
    return {broker.node_id: broker.port for broker in response.brokers}


async def test_p10_a_node_id_without_a_port_takes_no_other_broker_with_it() -> None:
    """A node id outside the port range, as KRaft assigns them, broke every response that named it: the broker must be
    left out like one that is down, with one log line, and the others be served.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = advertising({1: broker, 2: broker, ID_BEYOND_ALL_PORTS: broker})
        client = await relay.connect()
        with structlog.testing.capture_logs() as logged:
            for _ in range(3):
                assert await brokers_told(client) == {1: relay.port_of(1), 2: relay.port_of(2)}
                found = read_response(FIND_COORDINATOR, 4, await client.ask(request(FIND_COORDINATOR, 4, 2, bytes(12))))
                (coordinator,) = found.coordinators
                assert coordinator.error_code is ErrorCode.coordinator_not_available
                assert (coordinator.node_id, coordinator.host, coordinator.port) == (-1, "", -1)
        (line,) = logged
        assert line["node_id"] == ID_BEYOND_ALL_PORTS
        assert f"--listener-map {ID_BEYOND_ALL_PORTS}=PORT" in line["reason"]


async def test_p11_a_broker_can_be_reached_as_soon_as_it_is_advertised() -> None:
    """Clients were sent to ports that were not bound yet, and failed: those of the known brokers must be bound before
    the start completes, and a later broker must have its port before any response names it.
    """
    async with scripted_broker() as first, scripted_broker() as late, relaying({1: first}) as relay:
        client = await relay.connect(1)
        first.script = advertising({1: first, 2: late})
        assert await brokers_told(client) == {1: relay.port_of(1), 2: relay.port_of(2)}
        with socket.create_connection((HOST, relay.port_of(2))):  # in the same turn of the loop
            pass
        assert await (await relay.connect(2)).ask(request(NOBODYS, 0, 1)) == b""
        relay.listeners.follow({1: (HOST, first.port), 2: (HOST, late.port), 3: (HOST, late.port)})
        assert await (await relay.connect(3)).ask(request(NOBODYS, 0, 1)) == b""


async def test_p11_no_client_is_sent_to_a_port_of_another_program() -> None:
    """At the start that is an error; later the broker is left out, until it has its port."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = advertising({1: broker, 2: broker})
        client = await relay.connect(1)
        with socket.create_server((HOST, relay.port_of(2))):
            assert await brokers_told(client) == {1: relay.port_of(1)}
            with pytest.raises(CannotListen, match=f"node id 2 cannot have port {relay.port_of(2)}"):
                async with relaying({2: broker}, base_port=relay.base_port):
                    pass
        assert await brokers_told(client) == {1: relay.port_of(1), 2: relay.port_of(2)}


async def test_p12_connections_on_their_way_to_a_broker_do_not_outlive_the_end() -> None:
    """Connections not yet in use were overlooked when a proxy stopped, and stayed: even before the broker is reached,
    both sides must be closed, and no attempt may continue.
    """
    context = ssl.create_default_context()  # the broker never answers the first request
    async with scripted_broker() as broker, relaying({1: broker}, broker_context=context) as relay:
        broker.reads = False
        clients = [await relay.connect(1) for _ in range(5)]
        for client in clients:
            client.send(request(NOBODYS, 0, 1))
        await until(lambda: len(broker.connections) == len(clients))
        assert broker.open_connections == len(clients)
        relay.drain()
        assert [await client.rest() for client in clients] == [b""] * len(clients)
        assert await relay.listening.wait_until_closed(5)
        async with asyncio.timeout(CONNECT_TIMEOUT_S / 2):  # before the attempts end by themselves
            await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "connect-upstream"])
        for connection in broker.connections:
            connection.reads.set()
        await until(lambda: broker.open_connections == 0)


def test_p13_white_space_between_servers_means_nothing_and_unknown_properties_are_refused() -> None:
    """A list with a blank in it gave an unknown host, and a mistyped property was silently ignored."""
    settings = load_settings({"upstream": " kafka-1:9092 ,  kafka-2:9092 "}, [], None)
    assert settings.upstream == "kafka-1:9092,kafka-2:9092"
    with pytest.raises(BadSettings, match=r"sasl\.mechansim"):
        load_settings({"upstream": "kafka:9092", "upstream_config": ["sasl.mechansim=PLAIN"]}, [], None)


async def test_p15_ports_are_the_same_after_a_restart_with_any_brokers() -> None:
    """Random ports left clients with the old ones nowhere, for good: in whatever order brokers appear, and whichever
    are down, each must be where it was.
    """
    base_port = lasting_base(BASE_PORTS)
    async with scripted_broker() as first, scripted_broker() as second, scripted_broker() as third:
        brokers = {1: first, 2: second, 3: third}
        for present in ((1, 2, 3), (3, 1), (2,)):
            there = {number: brokers[number] for number in present}
            async with relaying(there, base_port=base_port) as relay:
                for each in there.values():
                    each.script = advertising({number: brokers[number] for number in (3, 2, 1)})
                reported = await brokers_told(await relay.connect())
                assert reported == {number: base_port + number for number in brokers}
                assert [await brokers_told(await relay.connect(number)) for number in brokers] == [reported] * 3


async def test_p17_a_client_that_waits_for_a_response_is_not_idle() -> None:
    """Members with a parked join were closed as idle connections: a client that waits for us must stay, however long;
    one that is silent, stops within a request, or does not read its response, must go.
    """
    async with scripted_broker() as broker, relaying({1: broker}, connections_max_idle_ms=600_000) as relay:
        held: dict[int, ReceivedRequest] = {}

        def script(requested: ReceivedRequest) -> None:
            if requested.api_key == FETCH:
                held[requested.correlation_id] = requested
            else:
                broker.usual(requested)

        broker.script = script
        joins, fetches, silent, halting, deaf = [await relay.connect(1) for _ in range(5)]
        joins.send(join(1))
        fetches.send(request(FETCH, 12, 2))
        halting.send(request(NOBODYS, 0, 3, bytes(1_000))[:500])
        deaf.stop_reading()
        deaf.send(request(FETCH, 12, 4))
        await until(lambda: len(relay.groups.parked) == 1 and len(held) == 2)
        held[4].answer(bytes(MORE_THAN_SOCKETS_TAKE))
        await until(lambda: sum(each.is_parked for each in relay.listening.connections) == 2)
        relay.now_ms += 600_001
        relay.timers.pass_all()
        assert [await silent.rest(), await halting.rest()] == [b"", b""]
        relay.timers.pass_all()  # marked for closing, and does not read that either
        await until(lambda: len(relay.listening.connections) == 2)
        relay.groups.release(JOINED)
        held[2].answer(b"")
        assert [(await joins.answer())[0], (await fetches.answer())[0]] == [1, 2]


async def test_p18_parked_members_take_no_places_of_others() -> None:
    """Parked joins counted against a limit of requests in flight, and a group larger than it never became stable: many
    must be able to wait, while everything else continues, on other connections and, within its limit, on one.
    """
    members = 300
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        joining = [await relay.connect(1) for _ in range(members)]
        for client in joining:
            client.send(join(1))
        await until(lambda: len(relay.groups.parked) == members)
        other = await relay.connect(1)
        many = IN_FLIGHT_MAX + 500
        other.send(*(request(NOBODYS, 0, number) for number in range(many)))
        assert [(await other.answer())[0] for _ in range(many)] == list(range(many))
        for _ in joining:
            relay.groups.release(JOINED)
        assert [(await client.answer())[0] for client in joining] == [1] * members
        assert broker.keys_asked().count(DESCRIBE_GROUPS) == members
