"""The relay with real sockets: clients that disconnect, do not read, or send garbage, and how connections end."""

import asyncio
import errno
import socket
from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, JoinGroup, LeaveGroup
from muster.coordinator.group.outcomes import HeartbeatOutcome, JoinGroupOutcome, LeaveGroupOutcome, Outcome, Superseded
from muster.coordinator.log_throttle import NAMES_MAX
from muster.coordinator.sidecar.relay import authorization, broker_side
from muster.coordinator.upstream.group_probe import ForeignShadow, KeptUpstream, NotPermitted
from muster.coordinator.wire.api import Fault
from muster.events.ids import GroupId, MemberId
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.running_server import HEARTBEAT, JOIN
from tests.coordinator.sidecar.relay.talk import PRODUCE, produce
from tests.coordinator.sidecar.relaying import MORE_THAN_SOCKETS_TAKE, Client, FakeShadows, Relay, relaying
from tests.coordinator.sidecar.scripted_broker import (
    DESCRIBE_GROUPS,
    ReceivedRequest,
    ScriptedBroker,
    WithheldResponses,
    allowing,
    framed,
    request,
    scripted_broker,
)
from tests.waiting import until

FETCH, METADATA, NOBODYS = 1, 3, 9_999
JOINED = JoinGroupOutcome(member_id=MemberId("m"), generation_id=1)


def join(correlation_id: int = 1) -> bytes:
    return with_length(frame("JoinGroup", 3, correlation_id=correlation_id, **JOIN))


def heartbeat(correlation_id: int = 1) -> bytes:
    return with_length(frame("Heartbeat", 3, correlation_id=correlation_id, **HEARTBEAT))


def sync(correlation_id: int = 1) -> bytes:
    body: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    return with_length(frame("SyncGroup", 3, correlation_id=correlation_id, assignments=(), **body))


def leave(correlation_id: int = 1) -> bytes:
    return with_length(frame("LeaveGroup", 2, correlation_id=correlation_id, group_id="g", member_id="m"))


async def both_are_gone(relay: Relay, broker: ScriptedBroker) -> bool:
    """Wait until no connection is left on either side."""
    await until(lambda: not relay.listening.connections and not broker.open_connections)
    return True


# ---- shutdown ------------------------------------------------------------------------------------------


async def test_requests_in_flight_are_answered_before_the_end() -> None:
    """Later requests are not started; idle connections are closed at once."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        held = WithheldResponses(broker, FETCH)
        relayed, parked, quiet = [await relay.connect(1) for _ in range(3)]
        relayed.send(request(FETCH, 12, 1), request(FETCH, 12, 2))
        parked.send(join(1), heartbeat(2))
        await until(lambda: len(held.asked) == 2 and relay.groups.parked)
        relay.drain()
        relayed.send(request(NOBODYS, 0, 3))
        assert await quiet.rest() == b""
        held.asked[0].answer(b"first")
        assert await relayed.answer() == (1, b"first")
        held.asked[1].answer(b"second")
        relay.groups.release(JOINED)
        assert await relayed.rest() == framed(2, b"second")
        assert (await parked.answer())[0] == 1
        assert await parked.rest() == b""
        assert await both_are_gone(relay, broker)
        assert [type(command) for command in relay.groups.commands] == [JoinGroup]
        assert NOBODYS not in broker.keys_asked()


async def test_a_join_that_is_superseded_holds_up_no_end() -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        client.send(join(1), heartbeat(2))
        await until(lambda: relay.groups.parked)
        relay.groups.release(Superseded())
        relay.drain()
        assert await client.rest() == b""
        assert await both_are_gone(relay, broker)


async def test_a_half_relayed_request_completes_at_shutdown() -> None:
    """Otherwise the broker would wait for the rest of it for ever."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        whole = request(NOBODYS, 0, 1, bytes(100_000))
        client.send(whole[:50_000])
        await until(lambda: relay.relayed.bytes_to_brokers == 50_000)
        relay.drain()
        client.send(whole[50_000:])
        assert await client.rest() == framed(1, b"")
        assert [requested.frame for requested in broker.asked] == [whole[4:]]
        assert await both_are_gone(relay, broker)


async def test_a_request_on_its_way_to_the_broker_reaches_it_at_the_end() -> None:
    """Including a Produce without a response."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        whole = request(0, 3, 1, b"\xff\xff\xff\xff\x00\x00" + bytes(100_000))
        client.send(whole[:50_000])
        await until(lambda: relay.relayed.bytes_to_brokers == 50_000)
        relay.drain()
        client.send(whole[50_000:])
        assert await client.rest() == b""
        await until(lambda: broker.asked)
        assert broker.asked[0].frame == whole[4:]


# ---- clients that connect ------------------------------------------------------------------------------


async def test_a_silent_client_opens_no_broker_connection() -> None:
    """For example a port scan, or a load balancer's check. A client's first request reaches its broker."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        silent, leaving = await relay.connect(1), await relay.connect(1)
        await until(lambda: len(relay.listening.connections) == 2)
        leaving.close()
        await until(lambda: len(relay.listening.connections) == 1)
        talking = await relay.connect(1)
        assert await talking.ask(request(NOBODYS, 0, 1)) == b""
        assert len(broker.connections) == 1
        frame = request(NOBODYS, 0, 2)
        silent.send(frame[:3])
        silent.send(frame[3:])
        assert await silent.answer() == (2, b"")
        assert len(broker.connections) == 2


# ---- clients that disconnect ---------------------------------------------------------------------------


@pytest.mark.parametrize("vanishes", [True, False], ids=["reset", "closed"])
async def test_a_client_that_goes_while_the_broker_answers_takes_its_connection_along(vanishes: bool) -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        held = WithheldResponses(broker, FETCH)
        client, other = await relay.connect(1), await relay.connect(1)
        client.send(request(FETCH, 12, 1))
        await until(lambda: held.asked)
        held.asked[0].connection.send(framed(1, bytes(1_000_000))[:500_000])
        assert await client.reader.readexactly(1_000)
        (client.vanish if vanishes else client.close)()
        await until(lambda: len(relay.listening.connections) == 1 and broker.open_connections == 0)
        assert await other.ask(request(NOBODYS, 0, 1)) == b""


@pytest.mark.parametrize(
    ("sent", "is_reset"),
    [
        (request(FETCH, 12, 1), True),
        (request(FETCH, 12, 1) + request(FETCH, 12, 2)[:9], True),
        (request(FETCH, 12, 1) + request(FETCH, 12, 2, bytes(500))[:100], True),
        (request(FETCH, 12, 1) + request(NOBODYS, 0, 2), False),
        (request(FETCH, 12, 1) + produce(2, 0), False),
        (produce(1, 0) + request(FETCH, 12, 2), False),
    ],
    ids=["answered", "a request's start", "half a request", "unanswered", "acks=0 last", "acks=0 first"],
)
async def test_a_broker_that_owes_nothing_to_a_client_that_went_is_reset(sent: bytes, is_reset: bool) -> None:
    """Clients could otherwise use up our local ports by reconnecting; data that the broker may not have read yet
    reaches it.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        held = WithheldResponses(broker, NOBODYS, PRODUCE)
        client = await relay.connect(1)
        client.send(sent)
        await client.answer()  # to the Fetch
        await until(lambda: is_reset or held.asked)
        client.close()
        await until(lambda: not broker.open_connections)
        assert isinstance(broker.connections[0].reader.exception(), ConnectionResetError) == is_reset


async def test_requests_of_a_disconnected_client_are_executed() -> None:
    """A member that leaves need not wait for the response, as in Kafka, even if the broker is asked about it first."""

    def outcome(command: AnyRequest) -> Outcome:
        if isinstance(command, LeaveGroup):
            return LeaveGroupOutcome(error=ErrorCode.none)
        return HeartbeatOutcome(error=ErrorCode.none)

    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        relay.groups.outcome = outcome
        held = WithheldResponses(broker, DESCRIBE_GROUPS)
        client = await relay.connect(1)
        client.send(heartbeat(1), leave(2), request(NOBODYS, 0, 3))
        await until(lambda: held.asked)
        client.close()
        await until(lambda: not relay.listening.connections)
        held.asked[0].tell(allowing(held.asked[0], 1 << 3))
        await until(lambda: not broker.open_connections)
        assert isinstance(relay.groups.commands[-1], LeaveGroup)
        assert broker.keys_asked() == [DESCRIBE_GROUPS, NOBODYS]


async def test_a_transient_error_of_the_broker_is_not_an_authorization() -> None:
    """The client gets it, and for the next request the broker is asked again: that result counts."""
    errors = iter((ErrorCode.coordinator_not_available, ErrorCode.not_coordinator, ErrorCode.none))
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = lambda requested: requested.tell(allowing(requested, 1 << 3, next(errors)))
        client = await relay.connect(1)
        answers = [await client.ask(heartbeat()) for _ in range(3)]
        assert [int.from_bytes(answer[-2:], "big") for answer in answers] == [15, 16, 0]


async def test_a_connection_keeps_authorizations_of_a_limited_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest one is asked for again."""
    monkeypatch.setattr(authorization, "CACHED_BYTES_MAX", 2 * (128 + 4))
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        for group_id in ("a", "b", "b", "c", "c", "a"):
            body = {**HEARTBEAT, "group_id": group_id}
            await client.ask(with_length(frame("Heartbeat", 3, correlation_id=1, **body)))
        assert broker.keys_asked() == [DESCRIBE_GROUPS] * 4


async def test_an_answer_about_a_cached_group_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no more room than before."""
    monkeypatch.setattr(authorization, "CACHED_BYTES_MAX", 2 * (128 + 4))
    async with scripted_broker() as broker, relaying({1: broker}, authorization_cache_ms=1_000) as relay:
        client = await relay.connect(1)
        for group_id in ("a", "b"):
            await client.ask(
                with_length(frame("Heartbeat", 3, correlation_id=1, **{**HEARTBEAT, "group_id": group_id}))
            )
        relay.now_ms += 1_000
        for group_id in ("b", "a", "b", "a"):
            await client.ask(
                with_length(frame("Heartbeat", 3, correlation_id=1, **{**HEARTBEAT, "group_id": group_id}))
            )
        assert broker.keys_asked() == [DESCRIBE_GROUPS] * 4


async def test_a_group_to_which_a_client_has_no_right_is_not_cached() -> None:
    """A client could name any number of them; it is refused as before."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = lambda requested: requested.tell(allowing(requested, 0, ErrorCode.group_authorization_failed))
        client = await relay.connect(1)
        answers = [await client.ask(heartbeat()) for _ in range(2)]
        assert [int.from_bytes(answer[-2:], "big") for answer in answers] == [30, 30]
        assert broker.keys_asked() == [DESCRIBE_GROUPS] * 2


async def test_a_disconnected_client_is_not_awaited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its join stays parked, as in Kafka; its broker's connection does not."""
    monkeypatch.setattr(broker_side, "LINGER_S", 0.05)
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        client.send(join(), heartbeat(2))
        await until(lambda: relay.groups.parked)
        client.vanish()
        assert await both_are_gone(relay, broker)
        relay.groups.release(JOINED)
        assert [type(command) for command in relay.groups.commands] == [JoinGroup]


async def test_a_broker_that_goes_takes_its_clients_connection_along() -> None:
    """Its pending responses are sent; the response to a join that was parked meanwhile is dropped."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        parked, reading = await relay.connect(1), await relay.connect(1)
        parked.send(join())
        await until(lambda: relay.groups.parked)

        def last_words(requested: ReceivedRequest) -> None:
            requested.answer(b"last")
            requested.connection.writer.close()

        broker.script = last_words
        reading.send(request(NOBODYS, 0, 1), request(NOBODYS, 0, 2))
        assert await reading.rest() == framed(1, b"last")
        broker.connections[0].hang_up()
        assert await parked.rest() == b""
        assert await both_are_gone(relay, broker)
        relay.groups.release(JOINED)


async def test_a_broker_that_cannot_be_reached_closes_its_clients_alone() -> None:
    async with scripted_broker() as broker, scripted_broker() as gone, relaying({1: broker, 2: gone}) as relay:
        relay.listeners.follow({1: ("127.0.0.1", broker.port), 2: ("127.0.0.1", 1)})
        with structlog.testing.capture_logs() as logged:
            client = await relay.connect(2)
            client.send(request(NOBODYS, 0, 1))
            assert await client.rest() == b""
        assert [line["address"] for line in logged] == ["127.0.0.1:1"]
        assert (relay.relayed.brokers_not_reached, relay.asked_to_look) == (1, 1)
        assert await (await relay.connect(1)).ask(request(NOBODYS, 0, 1)) == b""


async def test_an_unreachable_broker_is_logged_at_the_start_each_minute_and_at_the_end() -> None:
    """However often clients try."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:

        async def tried(times: int) -> None:
            for _ in range(times):
                client = await relay.connect()
                client.send(request(NOBODYS, 0, 1))
                await client.rest()

        with structlog.testing.capture_logs() as logged:
            relay.listeners.follow({1: ("127.0.0.1", 1)})
            await tried(20)
            relay.now_ms += 60_000
            await tried(2)
            with socket.socket() as away:
                away.bind(("127.0.0.1", 0))
                relay.listeners.follow({1: away.getsockname()})
                await tried(2)
                away.listen()
                reaching = await relay.connect(1)
                reaching.send(request(NOBODYS, 0, 1))
                await until(lambda: logged[-1]["event"] == "broker reachable again")
                assert logged.pop()["failures"] == 2
            await reaching.rest()
            broker.script = lambda requested: requested.connection.writer.close()
            relay.listeners.follow({1: ("127.0.0.1", broker.port)})
            await tried(3)
        assert relay.relayed.brokers_not_reached == 24
        assert [(line["event"], line["broker"], line["others_since"]) for line in logged] == [
            ("broker unreachable", "one of --upstream", 0),
            ("broker unreachable", "one of --upstream", 19),
            ("broker unreachable", "one of --upstream", 0),
            ("broker closed the connection", "node id 1", 0),
            ("broker closed the connection", "one of --upstream", 0),
        ]


@pytest.mark.parametrize(
    ("theirs", "level", "event"),
    [
        (KeptUpstream("somebody is in it"), "info", "group not taken: upstream has it"),
        (NotPermitted("an ACL lacks"), "warning", "group not taken: upstream has it"),
        (ForeignShadow("another has it", is_unnamed=False), "warning", "group not taken: another Muster has it"),
    ],
)
async def test_a_group_left_to_others_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, theirs: KeptUpstream, level: str, event: str
) -> None:
    """However often its clients join; a problem that an operator has to fix is a warning."""

    async def take(_self: FakeShadows, _group_id: GroupId) -> KeptUpstream:
        return theirs

    monkeypatch.setattr(FakeShadows, "take", take)
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        with structlog.testing.capture_logs() as reported:
            for after_ms in (0, 1_000, 1_000, 60_000):
                relay.now_ms += after_ms
                await client.ask(with_length(frame("JoinGroup", 3, **JOIN | {"group_id": "theirs"})))
        assert [(line["event"], line["log_level"], line["others_since"]) for line in reported] == [
            (event, level, 0),
            (event, level, 2),
        ]


async def test_a_thousand_groups_that_are_left_to_another_muster_are_few_lines_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some groups have lines of their own, as the remedy names the group."""

    async def take(_self: FakeShadows, group_id: GroupId) -> KeptUpstream:
        return ForeignShadow(f"remove its shadow from {group_id}", is_unnamed=False)

    monkeypatch.setattr(FakeShadows, "take", take)
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        with structlog.testing.capture_logs() as reported:
            for after_ms in (0, 60_000):
                relay.now_ms += after_ms
                for number in range(100):
                    group_id = f"theirs-{number}"
                    await client.ask(with_length(frame("JoinGroup", 3, **JOIN | {"group_id": group_id})))
    assert all(line["reason"].endswith(line["group_id"]) for line in reported)
    assert len(reported) == 2 * (NAMES_MAX + 1)
    assert {line["groups"] for line in reported[-NAMES_MAX - 1 :]} == {100}


# ---- clients that send garbage -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api_key", "answer"),
    [
        (FETCH, framed(77, b"somebody else's")),
        (FETCH, b"\xff\xff\xff\xff\x00\x00\x00\x01"),
        (FETCH, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        (METADATA, framed(1, b"no metadata")),
        (METADATA, b"\x7f\xff\xff\xff\x00\x00\x00\x01"),
        (DESCRIBE_GROUPS, b"\x00\x00\x00\x10must" + b"no description"[:12]),
    ],
)
async def test_a_broker_that_answers_nonsense_loses_that_connection_alone(api_key: int, answer: bytes) -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        held = WithheldResponses(broker, api_key)
        client, other = await relay.connect(1), await relay.connect(1)
        no_topics = b"\xff\xff\x00\x01\x00\x00\x00"
        client.send(heartbeat(1) if api_key == DESCRIBE_GROUPS else request(api_key, 12, 1, no_topics))
        await until(lambda: held.asked)
        with structlog.testing.capture_logs() as logged:
            held.asked[0].connection.send(answer)
            assert await client.rest() == b""
        (line,) = logged
        assert line["log_level"] in {"error", "warning"}
        assert relay.metrics.protocol_errors == {Fault.BROKER_ANSWER: 1}
        assert await other.ask(request(NOBODYS, 0, 2)) == b""


async def test_an_answer_before_nonsense_is_still_sent() -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = lambda requested: requested.connection.send(framed(1, b"good") + framed(9, b"bad"))
        client = await relay.connect(1)
        client.send(request(NOBODYS, 0, 1))
        assert await client.rest() == framed(1, b"good")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\xff\xff\xff\xff", Fault.NEGATIVE_LENGTH),
        (b"\x7f\xff\xff\xff", Fault.OVERSIZED_FRAME),
        (b"\x00\x00\x00\x02", Fault.SHORT_FRAME),
        (request(12, 99, 1), Fault.UNSUPPORTED_VERSION),
        (request(12, 4, 1), Fault.MALFORMED_REQUEST),
        (request(0, 3, 1, b"\xff\xff"), Fault.MALFORMED_REQUEST),
    ],
)
async def test_bytes_that_make_no_sense_close_their_connection_alone(content: bytes, fault: Fault) -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client, other = await relay.connect(1), await relay.connect(1)
        client.send(content)
        assert await client.rest() == b""
        assert relay.metrics.protocol_errors == {fault: 1}
        assert await other.ask(request(NOBODYS, 0, 2)) == b""


@pytest.mark.parametrize("waits", [True, False], ids=["behind another request", "at once"])
async def test_a_bug_of_ours_affects_one_client(waits: bool) -> None:
    """Its connection does not hang (G24)."""

    def fails(_command: AnyRequest) -> Outcome:
        raise ZeroDivisionError

    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client, other = await relay.connect(1), await relay.connect(1)
        assert len(await client.ask(heartbeat())) == 6
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)  # the message is expected
        client.send(*([join(1)] if waits else []))
        await until(lambda: relay.groups.parked or not waits)
        received = relay.metrics.bytes_received
        client.send(heartbeat(2))
        relay.groups.outcome = fails
        if waits:
            await until(lambda: relay.metrics.bytes_received > received)
            relay.groups.release(JOINED)
            assert (await client.answer())[0] == 1
        assert await client.rest() == b""
        assert await other.ask(request(NOBODYS, 0, 1)) == b""


# ---- clients and brokers that do not read --------------------------------------------------------------


async def test_for_a_client_that_does_not_read_nothing_piles_up() -> None:
    """A response of any size: the client gets all of it when it reads, and others are not affected."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        held = WithheldResponses(broker, FETCH)
        client = await relay.connect(1)
        client.stop_reading()
        client.send(request(FETCH, 12, 1))
        await until(lambda: held.asked)
        (connection,) = relay.listening.connections
        answer = framed(1, bytes(range(250)) * (2 * MORE_THAN_SOCKETS_TAKE // 250))
        held.asked[0].connection.send(answer)
        await until(lambda: not connection.is_parked)  # since it does not read
        taken = relay.relayed.bytes_from_brokers
        assert taken < MORE_THAN_SOCKETS_TAKE
        assert await (await relay.connect(1)).ask(request(NOBODYS, 0, 1)) == b""
        assert relay.relayed.bytes_from_brokers == taken + len(framed(1, b""))
        client.read_again()
        async with asyncio.timeout(30):
            assert await client.reader.readexactly(len(answer)) == answer


async def test_for_a_broker_that_does_not_read_nothing_piles_up() -> None:
    """One request of any size, or many: the broker gets all when it reads, and other connections are not affected."""
    many = 2 * MORE_THAN_SOCKETS_TAKE // 1_000_000
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.reads = False
        client = await relay.connect(1)
        for number in range(many):
            client.send(request(NOBODYS, 0, number, bytes(1_000_000)))
        await until(lambda: broker.connections)
        broker.reads = True
        assert await until_no_more_is_read(relay, await relay.connect(1)) < MORE_THAN_SOCKETS_TAKE
        broker.connections[0].reads.set()
        assert [(await client.answer())[0] for _ in range(many)] == list(range(many))


async def test_nothing_piles_up_either_where_no_answers_are_owed() -> None:
    """The producer has acks=0, and the broker stops reading between complete requests."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        WithheldResponses(broker, PRODUCE)
        broker.reads = False
        client = await relay.connect(1)
        client.send(produce(0, 0))
        await until(lambda: broker.connections)
        broker.reads = True
        other, sent, read, question = await relay.connect(1), 0, 0, request(NOBODYS, 0, 1)
        while read == sent:
            assert sent < MORE_THAN_SOCKETS_TAKE
            frame = produce(1, 0, bytes(200_000))
            before = relay.metrics.bytes_received
            client.send(frame)
            sent += len(frame)
            for _ in range(50):
                assert await other.ask(question) == b""
            read += relay.metrics.bytes_received - before - 50 * len(question)
        broker.connections[0].reads.set()
        await until(lambda: relay.metrics.bytes_received >= sent)


async def test_before_its_broker_is_connected_only_one_piece_of_a_client_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connecting may take ten seconds."""
    may_connect, connected = asyncio.Event(), broker_side.BrokerSide._connected

    async def connect_later(side: broker_side.BrokerSide) -> asyncio.Transport | None:
        await may_connect.wait()
        return await connected(side)

    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        other = await relay.connect(1)
        assert await other.ask(request(NOBODYS, 0, 1)) == b""
        monkeypatch.setattr(broker_side.BrokerSide, "_connected", connect_later)
        before = relay.metrics.bytes_received
        client = await relay.connect(1)
        for number in range(10):
            client.send(request(NOBODYS, 0, number, bytes(1_000_000)))
        await until(lambda: relay.metrics.bytes_received > before)
        assert await until_no_more_is_read(relay, other) - before < 1_000_000
        may_connect.set()
        assert [(await client.answer())[0] for _ in range(10)] == list(range(10))


async def until_no_more_is_read(relay: Relay, other: Client) -> int:
    """Return the number of bytes read from clients, once only this client's are read."""
    question = request(NOBODYS, 0, 1)
    while True:
        before = relay.metrics.bytes_received
        for _ in range(50):
            assert await other.ask(question) == b""
        if relay.metrics.bytes_received == before + 50 * len(question):
            return before


async def test_a_broker_that_does_not_read_is_let_go_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's end is not seen, since nothing is read from it either: the connection counts as idle. The broker
    would first have to read the pending data, which it may never do.
    """
    monkeypatch.setattr(broker_side, "LINGER_S", 0.05)
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.reads = False
        client = await relay.connect(1)
        for number in range(2 * MORE_THAN_SOCKETS_TAKE // 1_000_000):
            client.send(request(NOBODYS, 0, number, bytes(1_000_000)))
        await until(lambda: broker.connections)
        (connection,) = relay.listening.connections
        await until(lambda: relay.relayed.bytes_to_brokers > 1_000_000 and not connection.is_parked)
        to_broker = connection._broker.transport
        assert to_broker is not None
        assert to_broker.get_write_buffer_size() > 0
        client.vanish()
        relay.now_ms += 600_001
        relay.timers.pass_all()
        await until(lambda: not relay.listening.connections)
        await until(lambda: to_broker.get_write_buffer_size() == 0)
        assert broker.asked == []


async def test_a_broker_is_not_to_blame_for_what_we_have_run_out_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_connection(*_: object, **__: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
        with structlog.testing.capture_logs() as logged:
            client.send(request(NOBODYS, 0, 1))
            assert await client.rest() == b""
        assert (logged, relay.relayed.brokers_not_reached, relay.asked_to_look) == ([], 1, 0)


async def test_a_broker_that_answers_others_meanwhile_is_not_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may accept no more connections; existing ones are served."""
    tried = asyncio.Event()

    async def create_connection(*_: object, **__: object) -> None:
        tried.set()
        await answered.wait()
        raise ConnectionRefusedError

    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        answered, other, client = asyncio.Event(), await relay.connect(1), await relay.connect(1)
        assert await other.ask(request(NOBODYS, 0, 1)) == b""
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
        client.send(request(NOBODYS, 0, 1))
        await tried.wait()
        relay.now_ms += 1
        assert await other.ask(request(NOBODYS, 0, 2)) == b""
        answered.set()
        assert await client.rest() == b""
        assert (relay.relayed.brokers_not_reached, relay.asked_to_look) == (1, 0)


async def test_a_broker_that_is_not_reached_is_unreachable_though_older_responses_still_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its kernel still sends earlier responses: here the end of one, and another one."""
    tried, answered = asyncio.Event(), asyncio.Event()
    held: list[ReceivedRequest] = []

    async def create_connection(*_: object, **__: object) -> None:
        tried.set()
        await answered.wait()
        raise ConnectionRefusedError

    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = held.append
        other, client = await relay.connect(1), await relay.connect(1)
        other.send(request(NOBODYS, 0, 1), request(NOBODYS, 0, 2))
        await until(lambda: held)
        whole = framed(1, b"long")
        held[0].connection.send(whole[:10])
        assert await other.reader.readexactly(10) == whole[:10]
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
        relay.now_ms += 1
        client.send(request(NOBODYS, 0, 1))
        await tried.wait()
        relay.now_ms += 1
        held[0].connection.send(whole[10:] + framed(2, b""))
        assert await other.reader.readexactly(len(whole) - 10 + 8) == whole[10:] + framed(2, b"")
        answered.set()
        assert await client.rest() == b""
        assert (relay.relayed.brokers_not_reached, relay.asked_to_look) == (1, 1)
