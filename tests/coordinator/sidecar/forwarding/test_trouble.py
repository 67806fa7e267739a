"""Forwarding to a process that hangs, breaks, or is overloaded: bounded, each client separately, no leftovers."""

import asyncio
import struct
from typing import Any
from uuid import UUID

import pytest
from kio.schema.consumer_group_heartbeat.v0.request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kio.schema.consumer_group_heartbeat.v0.response import ConsumerGroupHeartbeatResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId as KioGroupId
from kio.serial import entity_reader
from kio.static.primitive import i32

from muster.coordinator.group.commands import AnyRequest
from muster.coordinator.group.outcomes import HeartbeatOutcome
from muster.coordinator.peers.link import peer_connection as connection_module
from muster.coordinator.peers.link.peer_connection import PART_BYTES
from muster.coordinator.peers.link.peer_messages import (
    HIGHEST_TAG,
    AnyMessage,
    AskBroker,
    BrokerAnswered,
    Connected,
    Forwarded,
    ListOwned,
    Owned,
    OwnedGroup,
    encode,
)
from muster.coordinator.sidecar.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from muster.coordinator.sidecar.forwarding import frontend as frontend_module
from muster.coordinator.sidecar.forwarding.owners import Owners
from muster.coordinator.sidecar.forwarding.paced import AT_ONCE, Changes, Paced
from muster.coordinator.sidecar.messages.own_requests import request_bytes
from muster.coordinator.sidecar.relay.client_side import ClientSide
from tests.coordinator.kio_client import frame, parse, with_length
from tests.coordinator.sidecar.forwarding.stage import Stage, forwarding
from tests.coordinator.sidecar.forwarding.test_forwarding import JOINED, error_of
from tests.coordinator.sidecar.relay.test_relay import heartbeat, join
from tests.coordinator.sidecar.scripted_broker import DESCRIBE_GROUPS
from tests.waiting import until


async def test_an_owner_that_hangs_keeps_no_heartbeat_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections are open, but silent. A join waits for the next owner."""
    monkeypatch.setattr(connection_module, "TICK_S", 0.05)
    monkeypatch.setattr(frontend_module, "OTHER_TIMEOUT_S", 0.01)
    async with forwarding() as stage:
        client, joining = await stage.frontend.connect(1), await stage.frontend.connect(1)
        joining.send(join(9))
        await until(lambda: stage.groups.parked)
        stage.owner.hang()
        assert error_of("Heartbeat", 3, await client.ask(heartbeat())) == ErrorCode.coordinator_not_available
        stage.give_to(stage.frontend.service.cluster.node)
        await until(lambda: stage.frontend.groups.parked)
        stage.frontend.groups.release(JOINED)
        assert (await joining.answer())[0] == 9


async def test_a_bug_affects_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug triggered by one request ends neither the link nor other requests."""
    async with forwarding() as stage:
        client, joining = await stage.frontend.connect(1), await stage.frontend.connect(1)
        joining.send(join(9))
        await until(lambda: stage.groups.parked)

        def fails(*_: object, **__: object) -> None:
            raise RuntimeError("for a test")

        monkeypatch.setattr(stage.owner.requests._handler, "handle", fails)
        client.send(heartbeat())
        assert await client.rest() == b""
        assert len(stage.owner.connections) == 1
        stage.groups.release(JOINED)
        assert (await joining.answer())[0] == 9


async def test_a_client_whose_broker_is_lost_is_not_forwarded() -> None:
    """Its join is dropped at the owner, and not sent again."""
    async with forwarding() as stage:
        _, gone = await stage.parked_join()
        connection = next(iter(stage.frontend.listening.connections))
        connection.abort()
        await until(lambda: gone)
        other = await stage.frontend.connect(1)
        assert error_of("Heartbeat", 3, await other.ask(heartbeat())) == 0
        assert len(stage.groups.commands) == 2


async def test_reauthentication_makes_another_client() -> None:
    """Authorizations and heartbeats cached for the former principal are never used for it."""
    async with forwarding() as stage:
        stage.groups.gives_tickets = True
        client = await stage.frontend.connect(1)
        await client.ask(heartbeat())
        await stage.until_delegated()
        await client.ask(heartbeat())
        assert len(stage.groups.commands) == 1
        requested = stage.broker.keys_asked().count(DESCRIBE_GROUPS)
        connection = next(iter(stage.frontend.listening.connections))
        assert isinstance(connection, ClientSide)
        connection.authenticated(connection.peer.principal)
        await client.ask(heartbeat())
        assert len(stage.groups.commands) == 2
        assert stage.broker.keys_asked().count(DESCRIBE_GROUPS) == requested + 1


async def test_a_heartbeat_with_an_old_answer_is_requested_again() -> None:
    """The frontend's machine may have been suspended, and the member expired since."""
    answers = iter([ErrorCode.none, ErrorCode.none, ErrorCode.unknown_member_id])
    async with forwarding(answer_lease_ms=1_000) as stage:

        def outcome(_: AnyRequest) -> HeartbeatOutcome:
            answer = next(answers)
            if answer is ErrorCode.none:
                stage.clock.now_ms += 1_001
            return HeartbeatOutcome(error=answer)

        stage.groups.outcome = outcome
        client = await stage.frontend.connect(1)
        assert error_of("Heartbeat", 3, await client.ask(heartbeat())) == ErrorCode.unknown_member_id


def newer_heartbeat(partitions: int, *, member_epoch: int = -1) -> bytes:
    """A client of KIP-848, with this many thousand partitions."""
    thousand = tuple(map(i32, range(1_000)))
    request = ConsumerGroupHeartbeatRequest(
        group_id=KioGroupId("g"),
        member_id="m",
        member_epoch=i32(member_epoch),
        instance_id=None,
        rack_id=None,
        subscribed_topic_names=None,
        server_assignor=None,
        topic_partitions=tuple(
            TopicPartitions(topic_id=UUID(int=number), partitions=thousand) for number in range(1, partitions + 1)
        ),
    )
    return with_length(struct.pack(">hhi", CONSUMER_GROUP_HEARTBEAT, 0, 1) + request_bytes(request, "shop"))


@pytest.mark.parametrize("partitions", [1, 30])
async def test_a_client_of_the_newer_protocol_is_answered_by_its_broker(partitions: int) -> None:
    """Its request is decoded where it is forwarded, however many partitions it has; the broker gets it unchanged."""
    async with forwarding() as stage:
        client = await stage.frontend.connect(1)
        await client.ask(newer_heartbeat(partitions))
        assert stage.broker.keys_asked()[-1] == CONSUMER_GROUP_HEARTBEAT


async def test_a_client_of_the_newer_protocol_asks_again_without_an_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend_module, "OTHER_TIMEOUT_S", 0.01)
    async with forwarding() as stage:
        stage.give_to(None)
        client = await stage.frontend.connect(1)
        payload = await client.ask(newer_heartbeat(1, member_epoch=0))
        _, size = entity_reader(ConsumerGroupHeartbeatResponse.__header_schema__)(bytes(4) + payload, 0)
        answer, _ = entity_reader(ConsumerGroupHeartbeatResponse)(bytes(4) + payload, size)
        assert answer.error_code is ErrorCode.coordinator_not_available
        assert answer.assignment is None


async def test_a_client_that_waits_for_an_owner_does_not_ask_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 that ask each 0.1 s would use up all time: they wait for a change."""
    monkeypatch.setattr(frontend_module, "PARKED_TIMEOUT_S", 0.5)
    tries = 0
    outcome = Owners.outcome

    async def counted(*args: Any) -> Any:
        nonlocal tries
        tries += 1
        return await outcome(*args)

    monkeypatch.setattr(Owners, "outcome", counted)
    async with forwarding() as stage:
        stage.give_to(None)
        client = await stage.frontend.connect(1)
        assert error_of("JoinGroup", 3, await client.ask(join())) == ErrorCode.coordinator_not_available
        assert tries <= 2


async def test_a_stopping_process_cancels_its_waiting_requests_at_the_owner() -> None:
    async with forwarding() as stage:
        client, gone = await stage.parked_join()
        stage.forwarder.stop_waiting()
        await until(lambda: gone)
        assert error_of("JoinGroup", 3, (await client.answer())[1]) == ErrorCode.coordinator_not_available


async def test_groups_of_two_owners_are_divided() -> None:
    """Short requests, and long ones, which are divided in slices."""
    async with forwarding() as stage:
        stage.share()
        client = await stage.frontend.connect(1)
        for number in (10, 3_000):
            stage.deleted.clear()
            stage.owner.deleted.clear()
            names = tuple(f"group-{each}" for each in range(number))
            requested = with_length(frame("DeleteGroups", 1, correlation_id=1, groups_names=names))
            results = parse("DeleteGroups", 1, await client.ask(requested)).results
            assert sorted(each.group_id for each in results) == sorted(names)
            assert sorted((*stage.deleted, *stage.owner.deleted)) == sorted(names)
            assert stage.deleted
            assert stage.owner.deleted


async def test_an_owner_of_none_of_many_groups_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend_module, "OTHER_TIMEOUT_S", 0.01)
    async with forwarding() as stage:
        stage.owner.assigned = False
        client = await stage.frontend.connect(1)
        names = tuple(f"group-{each}" for each in range(3_000))
        requested = with_length(frame("DeleteGroups", 1, correlation_id=1, groups_names=names))
        results = parse("DeleteGroups", 1, await client.ask(requested)).results
        assert {each.error_code for each in results} == {ErrorCode.coordinator_not_available}
        assert stage.owner.deleted == []


def assert_nothing_is_left(stage: Stage) -> None:
    left = {name: value for name, value in vars(stage.owners).items() if isinstance(value, dict) and value}
    assert left == {}
    for clients in stage.owner.requests._frontends.values():
        assert clients.by_number == {}
        assert clients.questions == {}


async def test_disconnected_clients_leave_nothing() -> None:
    """Answered ones, and those that were not."""
    async with forwarding() as stage:
        for number in range(30):
            client = await stage.frontend.connect(1)
            await client.ask(heartbeat())
            if number % 2:
                client.send(join())
                await until(lambda: stage.groups.parked)
            for connection in list(stage.frontend.listening.connections):
                connection.abort()
            await until(lambda: not stage.frontend.listening.connections)
            stage.groups.parked.clear()
        await until(lambda: not any(each.by_number for each in stage.owner.requests._frontends.values()))
        assert_nothing_is_left(stage)


async def test_a_long_lived_client_leaves_nothing_each_time_a_process_is_lost() -> None:
    async with forwarding() as stage:
        client = await stage.frontend.connect(1)
        connection = next(iter(stage.frontend.listening.connections))
        callbacks = set()
        for _ in range(5):
            await stage.until_reached()
            await client.ask(heartbeat())
            callbacks.add(len(connection.broker_lost._callbacks))
            stage.owner.connections[-1].close("for a test")
            await until(lambda: not stage.links.is_reached(stage.owner.node))
        assert len(callbacks) == 1


async def test_groups_that_cannot_be_listed_leave_nothing() -> None:
    async with forwarding() as stage:
        stage.share()
        await stage.owner.end()
        await until(lambda: not stage.links.is_reached(stage.owner.node))
        assert await stage.owners.list_all() is ErrorCode.coordinator_not_available
        assert_nothing_is_left(stage)


# ---- many at once ----------------------------------------------------------------------------------------------------


class FakeFrontend:
    """Answers none of the owner's questions."""

    node_id: int | None = 7
    highest_tag = HIGHEST_TAG

    def __init__(self) -> None:
        self.told: list[AnyMessage] = []

    def send(self, message: AnyMessage) -> None:
        self.told.append(message)


async def test_an_edge_that_is_lost_loses_its_clients_some_at_a_time() -> None:
    """Each only with its own questions."""
    gone: list[int] = []
    clients = 10 * AT_ONCE
    async with forwarding() as stage:
        stage.owner.service.gone = gone.append
        frontend = FakeFrontend()
        for number in range(clients):
            stage.owner.requests.received(frontend, Connected(number, "/127.0.0.1", "User:a"))
            stage.owner.requests.received(frontend, Forwarded(number, "", join()[4:]))
        await until(lambda: len(frontend.told) == clients)
        questions = {each.connection: each.question for each in frontend.told if isinstance(each, AskBroker)}
        assert len(questions) == clients
        stage.owner.requests.lost(frontend)
        assert frontend not in stage.owner.requests._frontends
        turns = 0
        while any(each.get_name().startswith("request-") for each in asyncio.all_tasks()):
            turns += 1
            await asyncio.sleep(0)
        assert turns >= clients // AT_ONCE
        assert frontend.told[clients:] == []
        stage.owner.requests.received(frontend, BrokerAnswered(questions[0], b""))  # of no client any more


async def test_groups_with_long_ids_are_listed_whole_and_in_order() -> None:
    """No message of them is so long that others overtake it: the last one would arrive too early."""
    groups = [
        OwnedGroup(f"{number}-{'ü' * length}", "t" * length, "Stable", is_owned=True, has_shadow=True, is_in=True)
        for number, length in enumerate((10, 300, 32_000, 32_000, *[300] * 2_000, 32_000))
    ]

    async def list_own() -> list[OwnedGroup]:
        return groups

    async with forwarding() as stage:
        frontend = FakeFrontend()
        stage.owner.requests._list_own = list_own
        stage.owner.requests.received(frontend, ListOwned(7))
        await until(lambda: any(isinstance(each, Owned) and each.is_last for each in frontend.told))
        reported = [each for each in frontend.told if isinstance(each, Owned)]
        assert [group for each in reported for group in each.groups] == groups
        assert [each.is_last for each in reported] == [False] * (len(reported) - 1) + [True]
        assert max(len(encode(each)) for each in reported) < PART_BYTES


async def test_an_answer_is_never_taken_for_the_next_requests() -> None:
    """If a frontend sends another request before the first one is answered, the first is dropped."""
    async with forwarding() as stage:
        frontend = FakeFrontend()
        stage.groups.gives_tickets = True
        stage.owner.requests.received(frontend, Connected(1, "/127.0.0.1", "User:a"))
        for _ in range(2):
            stage.owner.requests.received(frontend, Forwarded(1, "", join()[4:]))
            await until(lambda: len(frontend.told) == 1)
            requested = frontend.told.pop()
            assert isinstance(requested, AskBroker)
        assert stage.groups.commands == []


async def test_callbacks_are_called_some_in_each_turn() -> None:
    """In order; one that fails does not block the others."""
    paced, called = Paced(), []

    def fails() -> None:
        raise RuntimeError("for a test")

    loop = asyncio.get_running_loop()
    failures: list[Any] = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    paced.call([fails, *(lambda number=number: called.append(number) for number in range(3 * AT_ONCE))])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(called) <= 2 * AT_ONCE
    await until(lambda: len(called) == 3 * AT_ONCE)
    assert called == list(range(3 * AT_ONCE))
    assert len(failures) == 1


async def test_a_change_that_already_arrived_is_not_awaited() -> None:
    changes = Changes(Paced())
    seen = changes.seen
    changes.notify()
    async with asyncio.timeout(20):
        await changes.wait(seen, 3_600)
    waiting = [asyncio.ensure_future(changes.wait(changes.seen, 3_600)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting.pop().cancel()
    changes.notify()
    async with asyncio.timeout(20):
        await asyncio.gather(*waiting)
