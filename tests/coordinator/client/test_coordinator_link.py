"""The link to a coordinator: lookup by address, retries, and one clear error when it gives up."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import msgspec
import pytest
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from muster.coordinator.client.coordinator_link import (
    AuthenticationFailed,
    CoordinatorLink,
    InvalidArgument,
    NoCoordinator,
    NotReady,
    OutcomeUnknown,
    Refused,
)
from muster.coordinator.client.group_admin import GroupAdmin
from muster.coordinator.group.commands import AnyRequest
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    DescribeGroupConfigOutcome,
    DescribeGroupOutcome,
    LeaveGroupOutcome,
    LeftMember,
    Outcome,
)
from muster.coordinator.service import Service
from muster.coordinator.wire import api_versions, find_coordinator
from muster.coordinator.wire.api import Answer, Body, RequestContext
from muster.coordinator.wire.registry import APIS
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.security import KafkaSecurity, kafka_security
from muster.events.state import GroupState
from tests.coordinator.running_server import Running, running
from tests.coordinator.upstream.fake_broker import KAFKA_3_2, fake_broker
from tests.coordinator.upstream.simulated import SimulatedBroker
from tests.faults.process import seconds, story
from tests.waiting import until

FIND_COORDINATOR, DESCRIBE_GROUPS = 10, 15
MOVED = [
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
]
DONE = AlterGroupConfigOutcome(error=ErrorCode.none)
GONE = LeaveGroupOutcome(
    members=(
        LeftMember(member_id=MemberId(""), group_instance_id=GroupInstanceId("a"), error=ErrorCode.none),
        LeftMember(member_id=MemberId("a"), group_instance_id=None, error=ErrorCode.unknown_member_id),
    )
)
TOLD = DescribeGroupConfigOutcome(values={"target.group.size": "3"})


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    """A coordinator that returns the outcomes a test sets."""
    async with running() as running_server:
        yield running_server


def bootstrap(server: Running) -> str:
    return f"127.0.0.1:{server.server.port}"


def unused_address() -> str:
    """An address with no listener."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def in_turn(server: Running, *outcomes: Outcome) -> None:
    """Answer with each of these in order."""
    left = list(outcomes)

    def outcome(_command: AnyRequest) -> Outcome:
        return left.pop(0)

    server.groups.outcome = outcome


@pytest.mark.parametrize("error", MOVED)
async def test_a_coordinator_that_is_not_ready_is_retried(server: Running, error: ErrorCode) -> None:
    """Changes are retried too, as none was made while it was not ready."""
    async with GroupAdmin(bootstrap(server)) as admin:
        in_turn(server, AlterGroupConfigOutcome(error=error), AlterGroupConfigOutcome(error=error), DONE)
        await admin.set_target_group_size("orders", 3)
        in_turn(server, DescribeGroupConfigOutcome(error=error), TOLD)
        assert (await admin.describe_group_config("orders"))[0].value == "3"
        in_turn(server, LeaveGroupOutcome(error=error), GONE)
        (result,) = await admin.remove_members_from_group("orders", ["a"])
        assert result.done
    assert len(server.groups.commands) == 7


async def test_retries_end_if_the_coordinator_is_never_ready(server: Running) -> None:
    """The error has its address, the group, and its last response."""
    loading = AlterGroupConfigOutcome(error=ErrorCode.coordinator_load_in_progress)
    server.groups.outcome = lambda _command: loading
    async with GroupAdmin(bootstrap(server), limit_ms=300) as admin:
        with pytest.raises(NotReady) as raised:
            await admin.set_target_group_size("orders", 3)
    text = "or it may not reach the process that owns the group: muster status and its log say which"
    for part in ("group orders", "within 0.3 s", bootstrap(server), "COORDINATOR_LOAD_IN_PROGRESS", text):
        assert part in str(raised.value)
    assert len(server.groups.commands) > 1


async def test_the_coordinator_is_found_at_the_advertised_address(server: Running) -> None:
    """The first address has no listener; the second belongs to a server that names another coordinator."""
    async with running() as other:
        other.service.cluster = server.service.cluster
        server.groups.outcome = lambda _command: DONE
        async with GroupAdmin(f"{unused_address()}, {bootstrap(other)}") as admin:
            await admin.set_target_group_size("orders", 3)
            await admin.set_target_group_size("orders", 4)
    assert (len(server.groups.commands), len(other.groups.commands)) == (2, 0)


@pytest.mark.parametrize("fault", ["silent", "hangs up"])
async def test_the_next_address_is_tried_after_a_useless_one(server: Running, fault: str) -> None:
    """It may be a sidecar whose cluster hangs, or a broker that requires credentials."""
    server.groups.outcome = lambda _command: DONE
    async with fake_broker() as fake:
        fake.silent_at = FIND_COORDINATOR if fault == "silent" else None
        fake.hangs_up_at = FIND_COORDINATOR if fault == "hangs up" else None
        async with GroupAdmin(f"{fake.address},{bootstrap(server)}") as admin:
            await admin.set_target_group_size("orders", 3)
        assert FIND_COORDINATOR in fake.asked
    assert len(server.groups.commands) == 1


async def test_a_hanging_address_beside_a_closed_one_is_not_called_down() -> None:
    """ "Start it" is advised only if no address has a listener."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_at = f"127.0.0.1:{silent.getsockname()[1]}"
        async with GroupAdmin(f"{unused_address()},{silent_at}", limit_ms=200) as admin:
            with pytest.raises(NoCoordinator, match=rf"Connect call failed.*; {silent_at} has not answered") as raised:
                await admin.list_members("orders")
    assert "start it" not in str(raised.value)


async def test_a_server_that_refuses_us_is_named() -> None:
    """The error has the server's address, and there are no retries."""
    user = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "muster", "sasl.password": "secret"}
    security = kafka_security({"security.protocol": "SASL_PLAINTEXT", **user}, "here")
    async with (
        fake_broker({**KAFKA_3_2, 17: 1, 36: 0}) as impostor,
        GroupAdmin(impostor.address, security=security) as admin,
    ):
        with pytest.raises(
            AuthenticationFailed, match=rf"no connection to {impostor.address} with these .*: Server nonce"
        ):
            await admin.list_members("orders")
        with pytest.raises(AuthenticationFailed, match=f"no connection to {impostor.address} with these"):
            await admin.list_groups()


async def test_a_server_that_answered_before_is_tried_again(server: Running) -> None:
    """It may be restarting."""
    server.groups.outcome = lambda _command: DONE
    async with GroupAdmin(bootstrap(server)) as admin:
        await admin.set_target_group_size("orders", 3)
        left = [True]

        def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
            if left:
                left.clear()
                for connection in server.server._listening.connections:
                    connection.abort()
            else:
                find_coordinator.handle(body, context, service, answer)

        server.server._apis = {**APIS, 10: msgspec.structs.replace(find_coordinator.API, handle=handle)}
        await admin.set_target_group_size("others", 3)
    assert not left
    assert len(server.groups.commands) == 2


async def test_invalid_host_names_are_rejected() -> None:
    """One line: it used to be reported as a bug in Muster."""
    async with GroupAdmin("kafka..example:9092") as admin:
        with pytest.raises(NoCoordinator, match=r"nobody answers at kafka\.\.example:9092 .*label empty"):
            await admin.list_members("orders")


def finds_with(server: Running, *errors: ErrorCode) -> None:
    """Answer FindCoordinator with each of these in order, and then as usual."""
    left = list(errors)

    def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
        if not left:
            find_coordinator.handle(body, context, service, answer)
            return
        (key,) = body.coordinator_keys
        found = {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": left.pop(0), "error_message": ""}
        answer({"coordinators": [found]})

    server.server._apis = {**APIS, 10: msgspec.structs.replace(find_coordinator.API, handle=handle)}


async def test_a_coordinator_that_is_not_found_yet_is_looked_up_again(server: Running) -> None:
    """A cluster may still be creating its offsets topic; an authorization error is not retried."""
    server.groups.outcome = lambda _command: DONE
    finds_with(server, ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress)
    async with GroupAdmin(bootstrap(server)) as admin:
        await admin.set_target_group_size("orders", 3)
    finds_with(server, ErrorCode.group_authorization_failed)
    async with GroupAdmin(bootstrap(server)) as admin:
        with pytest.raises(Refused, match=r"group orders: .*: User:ANONYMOUS lacks the ACL Allow DESCRIBE on GROUP o"):
            await admin.set_target_group_size("orders", 3)
    assert len(server.groups.commands) == 1


async def test_a_missing_permission_is_named_with_its_principal(server: Running) -> None:
    """Kafka returns only the error code; a sidecar's own message is kept."""
    alice = KafkaSecurity(sasl_plain_username="alice", sasl_plain_password="?")
    denied = ErrorCode.group_authorization_failed
    async with GroupAdmin(bootstrap(server), security=alice) as admin:
        in_turn(server, AlterGroupConfigOutcome(error=denied), AlterGroupConfigOutcome(error=denied, message="no READ"))
        with pytest.raises(Refused, match=r"user alice \(sasl.username\) lacks the ACL Allow ALTER_CONFIGS on GROUP o"):
            await admin.set_target_group_size("orders", 3)
        with pytest.raises(Refused, match=r"no READ; it was asked as user alice \(sasl.username\)"):
            await admin.add_members_to_group("orders", ["a", "b"])
        in_turn(server, DescribeGroupConfigOutcome(error=denied))
        with pytest.raises(Refused, match="lacks the ACL Allow DESCRIBE_CONFIGS on GROUP orders"):
            await admin.list_members("orders")
    assert len(server.groups.commands) == 3


async def test_closed_ports_fail_at_once() -> None:
    """Waiting does not fix a wrong address."""
    address = unused_address()
    started = time.monotonic()
    async with GroupAdmin(address) as admin:
        with pytest.raises(NoCoordinator, match="muster serve") as raised:
            await admin.list_members("orders")
    assert time.monotonic() - started < 10
    assert address in str(raised.value)
    assert "group orders" in str(raised.value)


async def test_a_server_that_closes_new_connections_is_not_called_down() -> None:
    """A sidecar whose cluster is unreachable does the same."""

    async def hang_up_at_once(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up_at_once, "127.0.0.1", 0) as closing:
        address = f"127.0.0.1:{closing.sockets[0].getsockname()[1]}"
        async with GroupAdmin(address) as admin:
            with pytest.raises(
                NoCoordinator, match=r"hung up .* if it is a sidecar, its cluster may be away"
            ) as raised:
                await admin.list_members("orders")
    assert "start it" not in str(raised.value)


async def test_a_hanging_server_is_not_called_down() -> None:
    """A sidecar whose cluster hangs does the same, before or after ApiVersions."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with GroupAdmin(f"127.0.0.1:{silent.getsockname()[1]}", limit_ms=200) as admin:
            with pytest.raises(NoCoordinator, match=r"not answered within 0.2 s: .* see its /readyz") as raised:
                await admin.list_members("orders")
    assert "no port for Kafka clients" in str(raised.value)
    assert "start it" not in str(raised.value)
    async with fake_broker() as fake:
        fake.silent_at = 10
        async with GroupAdmin(fake.address, limit_ms=200) as admin:
            with pytest.raises(NoCoordinator, match=r"not answered within 0.2 s: .* see its /readyz") as raised:
                await admin.list_members("orders")
    assert "quarantined" not in str(raised.value)


async def test_a_broker_that_disconnects_may_require_credentials() -> None:
    """Like a broker with SASL, which answers ApiVersions to all clients; there are no retries."""
    async with fake_broker() as fake:
        fake.hangs_up_at = 10
        async with GroupAdmin(fake.address) as admin:
            with pytest.raises(NoCoordinator, match=r"hung up .*: does it want credentials or TLS \(security.protocol"):
                await admin.list_members("orders")
        assert fake.connections == 1


async def test_a_wrongly_advertised_address_is_named(server: Running) -> None:
    """A server may advertise an address that cannot be reached from here."""
    advertised = BrokerAddress("127.0.0.1", int(unused_address().rpartition(":")[2]))
    server.service.cluster = server.service.cluster.advertised_at(advertised.host, advertised.port)
    async with GroupAdmin(bootstrap(server), limit_ms=300) as admin:
        with pytest.raises(NoCoordinator, match=f"brokers name {advertised}, which does not answer") as raised:
            await admin.list_members("orders")
    assert bootstrap(server) in str(raised.value)


async def hang_up(server: Running) -> None:
    """Once a command is parked, cut every connection."""
    await until(lambda: bool(server.groups.parked))
    server.groups.parked.clear()
    for connection in server.server._listening.connections:
        connection.abort()


@pytest.mark.parametrize(
    "change",
    [
        lambda admin: admin.set_target_group_size("orders", 3),
        lambda admin: admin.remove_members_from_group("orders", ["a"]),
    ],
    ids=["a setting", "a removal"],
)
async def test_a_change_with_a_lost_response_is_not_repeated(
    server: Running, change: Callable[[GroupAdmin], Awaitable[object]]
) -> None:
    """It may have been made; the error says to check."""
    server.groups.outcome = lambda _command: None
    async with GroupAdmin(bootstrap(server)) as admin:
        cut = asyncio.create_task(hang_up(server))
        with pytest.raises(
            OutcomeUnknown,
            match=r"group orders: lost .* may have ended \(see its log\); it is unknown .*: check",
        ) as raised:
            await change(admin)
        await cut
        assert bootstrap(server) in str(raised.value)
        assert len(server.groups.commands) == 1
        server.groups.outcome = lambda _command: TOLD
        assert (await admin.describe_group_config("orders"))[0].value == "3", "a new connection is made"


@pytest.mark.parametrize(
    ("question", "outcome"),
    [
        (lambda admin: admin.describe_group_config("orders"), TOLD),
        (lambda admin: admin.describe_group("orders"), DescribeGroupOutcome(state=GroupState.EMPTY)),
    ],
    ids=["of its configs", "of the group"],
)
async def test_a_query_with_a_lost_response_is_repeated(
    server: Running, question: Callable[[GroupAdmin], Coroutine[Any, Any, Any]], outcome: Outcome
) -> None:
    """It changes nothing."""
    server.groups.outcome = lambda _command: None
    async with GroupAdmin(bootstrap(server)) as admin:
        asking = asyncio.create_task(question(admin))
        await hang_up(server)
        server.groups.outcome = lambda _command: outcome
        await asking
    assert len(server.groups.commands) == 2


@story
async def test_retries_back_off() -> None:
    """A coordinator that moves is often back at once; the delay is at most a second."""
    broker = SimulatedBroker(1)
    link = CoordinatorLink(broker.address, retry_ms=20_000)
    broker.group_error = ErrorCode.coordinator_load_in_progress
    asking = asyncio.create_task(describe_with(link))
    await asyncio.sleep(0.2)
    soon = broker.asked.count(DESCRIBE_GROUPS)
    assert soon > 2
    await asyncio.sleep(100)
    assert 100 < broker.asked.count(DESCRIBE_GROUPS) < 400
    broker.group_error = ErrorCode.none
    await asking
    await link.close()


async def describe_with(link: CoordinatorLink) -> None:
    """Describe the group in a version that fakes offer."""
    question = Exchange(
        DescribeGroupsRequest(groups=(GroupId("orders"),), include_authorized_operations=False), DescribeGroupsResponse
    )
    answer = await link.ask("orders", question, lambda reported: (reported.groups[0].error_code, None), changes=False)
    assert answer.groups[0].group_id == "orders"


@pytest.mark.parametrize("fault", ["silent", "gone", "moved"])
@story
async def test_a_coordinator_that_has_moved_is_looked_up_again(fault: str) -> None:
    """A silent coordinator gets ten seconds of the total limit."""
    coordinator, successor, asked_first = (SimulatedBroker(port) for port in (1, 2, 3))
    asked_first.others_at = [coordinator.address, successor.address]
    link = CoordinatorLink(asked_first.address, retry_ms=20_000)

    asked_first.coordinator = 3
    await describe_with(link)
    asked_first.coordinator = 2
    await describe_with(link)
    assert successor.asked == [], "it is remembered"
    if fault == "gone":
        coordinator.leave()
        await asyncio.sleep(1)  # the client knows that the connection has ended
    elif fault == "moved":
        coordinator.group_error = ErrorCode.not_coordinator
    coordinator.is_hung = fault == "silent"
    began_s = seconds()
    await describe_with(link)
    await describe_with(link)
    assert successor.asked.count(DESCRIBE_GROUPS) == 2
    assert round(seconds() - began_s) in ({10, 11} if fault == "silent" else {0, 1})
    await link.close()


async def test_a_server_that_is_neither_muster_nor_kafka_is_named(server: Running) -> None:
    apis = (find_coordinator.API, api_versions.offering((find_coordinator.API,)))
    server.server._apis = {api.key: api for api in apis}
    async with GroupAdmin(bootstrap(server)) as admin:
        with pytest.raises(NoCoordinator, match="does not offer IncrementalAlterConfigs v1: it is neither") as raised:
            await admin.set_target_group_size("orders", 3)
    assert bootstrap(server) in str(raised.value)


async def test_a_server_that_does_not_speak_kafka_is_rejected() -> None:
    """For any bytes that it sends."""

    async def gibberish(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(gibberish, "127.0.0.1", 0)
    async with listener:
        host, port = listener.sockets[0].getsockname()
        async with GroupAdmin(f"{host}:{port}", limit_ms=2_000) as admin:
            with pytest.raises(NoCoordinator, match=f"{host}:{port}"):
                await admin.list_members("orders")


@pytest.mark.parametrize(
    "text", ["", "9092", "kafka", ":9092", "kafka:", "kafka:http", "kafka:0", "kafka:70000", "a:1,"]
)
def test_invalid_addresses_are_named(text: str) -> None:
    with pytest.raises(InvalidArgument, match="should be HOST:PORT"):
        GroupAdmin(text)
