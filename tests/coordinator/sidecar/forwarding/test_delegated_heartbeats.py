"""Heartbeats that the owner delegates to the frontend: until the group changes, the lease ends, or the link does."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import MagicMock

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Node
from muster.coordinator.group.commands import AnyRequest, Heartbeat
from muster.coordinator.group.outcomes import HeartbeatOutcome
from muster.coordinator.peers.link.peer_messages import Delegated, HeartbeatReport, Leases, Revoked
from muster.coordinator.sidecar.forwarding import delegated_heartbeats as delegation
from muster.coordinator.sidecar.forwarding.delegated_heartbeats import DelegatedHeartbeats
from muster.coordinator.sidecar.forwarding.paced import Paced
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.sidecar.relay.intercept import ConsentedTicket
from muster.events.ids import GroupId, MemberId
from tests.coordinator.sidecar.forwarding.stage import BootClock, Stage, forwarding
from tests.coordinator.sidecar.forwarding.test_forwarding import error_of
from tests.coordinator.sidecar.relay.test_relay import heartbeat, join
from tests.coordinator.sidecar.relaying import Client
from tests.waiting import until

LEASE_MS = 60_000
REBALANCING = HeartbeatOutcome(error=ErrorCode.rebalance_in_progress)


@asynccontextmanager
async def granting(*, lease_left_ms: int = LEASE_MS) -> AsyncIterator[tuple[Stage, Client]]:
    """A client whose heartbeat the owner has accepted, after the frontend got the lease."""
    async with forwarding(answer_lease_ms=LEASE_MS) as stage:
        stage.groups.gives_tickets = True
        stage.owner.lease_left_ms = lease_left_ms
        client = await stage.frontend.connect(1)
        assert await error(client) is ErrorCode.none
        await stage.until_delegated()
        yield stage, client


async def error(client: Client) -> ErrorCode:
    return ErrorCode(error_of("Heartbeat", 3, await client.ask(heartbeat())))


def heartbeat_times(stage: Stage) -> list[int]:
    """The times at which the owner recorded the member as heard."""
    return stage.groups.tickets[-1].touched


async def test_equal_heartbeats_of_the_connection_are_answered_by_the_edge() -> None:
    """The owner is notified of the members, once for those that come together; another connection is another client."""
    async with granting() as (stage, client):
        before = len(heartbeat_times(stage))
        for _ in range(30):
            assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 1
        await until(lambda: len(heartbeat_times(stage)) > before)
        other = await stage.frontend.connect(1)
        assert await error(other) is ErrorCode.none
        assert len(stage.groups.commands) == 2


async def test_a_group_that_changes_is_answered_for_by_its_owner() -> None:
    """The frontend is notified at once, before any of its clients."""
    async with granting() as (stage, client):
        stage.groups.outcome = lambda _: REBALANCING
        stage.groups.tickets[-1].change()
        await until(lambda: any(isinstance(each, Revoked) for each in stage.from_owner))
        assert await error(client) is ErrorCode.rebalance_in_progress
        assert len(stage.groups.commands) == 2


async def test_a_group_that_changed_while_the_answer_was_made_is_not_granted() -> None:
    """Its ticket is no longer valid when the response is sent."""
    async with forwarding(answer_lease_ms=LEASE_MS) as stage:
        stage.groups.gives_tickets = True
        keep = stage.groups.heartbeat_ticket

        def changed(command: Heartbeat) -> object:
            ticket = keep(command)
            stage.groups.tickets[-1].change()
            return ticket

        stage.groups.heartbeat_ticket = changed  # type: ignore[method-assign,assignment]
        client = await stage.frontend.connect(1)
        for _ in range(3):
            assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 3


@pytest.mark.parametrize(("left_ms", "asked"), [(100, 2), (0, 2), (LEASE_MS, 1)])
async def test_the_edge_answers_as_long_as_the_owner_could(left_ms: int, asked: int) -> None:
    """The owner sends its own lease, counted from before the request, on a clock that runs during suspend."""
    async with granting(lease_left_ms=left_ms) as (stage, client):
        stage.clock.now_ms += 100
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == asked


async def test_a_grant_is_over_with_the_clients_authorization() -> None:
    """The broker may have denied access to the group since."""
    async with granting() as (stage, client):
        stage.frontend.now_ms += 5_000
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 2


async def test_the_authorization_of_a_grant_counts_from_before_its_request() -> None:
    """However late the owner's response is."""
    async with forwarding(answer_lease_ms=LEASE_MS) as stage:

        def late(_: AnyRequest) -> HeartbeatOutcome:
            stage.frontend.now_ms += 3_000
            return HeartbeatOutcome(error=ErrorCode.none)

        stage.groups.gives_tickets, stage.groups.outcome = True, late
        client = await stage.frontend.connect(1)
        assert await error(client) is ErrorCode.none
        await stage.until_delegated()
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 1
        stage.frontend.now_ms += 2_500
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 2


async def test_a_member_that_sent_a_heartbeat_while_its_group_changed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heartbeat was answered: its session is extended, by the rules of the group's current state."""
    monkeypatch.setattr(delegation, "REPORT_WITHIN_S", 60.0)
    async with granting() as (stage, client):
        assert await error(client) is ErrorCode.none
        stage.groups.outcome = lambda _: REBALANCING
        stage.groups.tickets[-1].valid = False
        stage.owners.delegated.report_all()
        await until(lambda: len(stage.groups.commands) == 2)
        command = stage.groups.commands[-1]
        assert isinstance(command, Heartbeat)
        assert (command.member_id, command.generation_id) == ("m", 1)


async def test_heartbeats_are_reported_before_anything_else_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat then counts before the join after it."""
    monkeypatch.setattr(delegation, "REPORT_WITHIN_S", 60.0)
    async with granting() as (stage, client):
        before = len(heartbeat_times(stage))
        assert await error(client) is ErrorCode.none
        assert len(heartbeat_times(stage)) == before
        client.send(join(5))
        await until(lambda: stage.groups.parked)
        assert len(heartbeat_times(stage)) == before + 1


async def test_unreported_heartbeats_are_reported_once_the_owner_is_reached_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member that was answered while the link hung does not expire; and without the link no more are answered."""
    monkeypatch.setattr(delegation, "REPORT_WITHIN_S", 60.0)
    async with granting() as (stage, client):
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 1
        stage.owner.connections[-1].abort("it breaks")
        await until(lambda: not stage.links.is_reached(stage.owner.node))
        await stage.until_reached()
        await until(lambda: len(stage.groups.commands) == 2)
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 3


async def test_an_edge_that_connects_again_and_again_leaves_nothing() -> None:
    """A group that never changes is delegated again each time; also by a response that was on its way meanwhile."""
    async with granting() as (stage, client):
        requests = stage.owner.requests
        for _ in range(3):
            frontend, clients = next(iter(requests._frontends.items()))
            (late,) = clients.by_number.values()
            stage.owner.connections[-1].abort("it breaks")
            await until(lambda: not stage.links.is_linked(stage.owner.node))
            late.keep_heartbeat(b"\0\x0c\0\3\0\0\0\1late", GroupId("g"), MemberId("late"), _valid(stage))
            late.answered([b""])
            await stage.until_reached()
            stage.from_owner.clear()
            assert await error(client) is ErrorCode.none
            await stage.until_delegated()
            assert frontend not in requests._frontends
            assert [len(each) for each in requests._watched.values()] == [1]
        stage.groups.tickets[-1].change()
        stage.groups.tickets[0].change()
        await until(lambda: any(isinstance(each, Revoked) for each in stage.from_owner))
        assert requests._watched == {}
        assert [each.watched for each in requests._frontends.values()] == [set()]


def _valid(stage: Stage) -> ConsentedTicket:
    return ConsentedTicket(stage.groups.tickets[-1], stage.owner.service.monotonic_ms() + LEASE_MS)


async def test_a_lease_counts_from_before_its_request() -> None:
    """However late its response is, for example to a process that was suspended."""
    clock, sent = BootClock(), list[HeartbeatReport]()
    delegated = DelegatedHeartbeats(
        send=lambda _, message: sent.append(message) if isinstance(message, HeartbeatReport) else None,
        number_at=lambda *_: 1,
        partition_of=lambda _: 0,
        paced=Paced(),
        lease_ms=LEASE_MS,
        boot_ms=clock.boot_ms,
        monotonic_ms=lambda: 7,
    )
    node, client = Node(node_id=2, host="127.0.0.1", port=1), kept_heartbeats()
    delegated.keep(node, client, b"frame", 1, Delegated(1, b"", "g", "m", LEASE_MS))
    ticket = client.heartbeats.keep.call_args.args[3]
    clock.now_ms += LEASE_MS - 1
    delegated.on_leases(node, Leases(sent[0].sent_ms, {0: LEASE_MS}))
    assert ticket.accept(7)
    clock.now_ms += 1
    assert not ticket.accept(8)
    delegated.on_unreachable(node)


async def test_each_message_is_confirmed_by_its_own_answer() -> None:
    """450 members are reported in three messages, the link breaks after the second response: the last 50 are sent
    again.

    And again, when it breaks before that was answered.
    """
    sent = list[HeartbeatReport]()
    numbers = itertools.count(1_000)
    delegated = DelegatedHeartbeats(
        send=lambda _, message: sent.append(message) if isinstance(message, HeartbeatReport) else None,
        number_at=lambda *_: next(numbers),
        partition_of=lambda _: 0,
        paced=Paced(),
        lease_ms=LEASE_MS,
        boot_ms=lambda: 5,
        monotonic_ms=lambda: 7,
    )
    node = Node(node_id=2, host="127.0.0.1", port=1)

    def members() -> list[int]:
        """The number of members in each message since then, without those that only request a lease."""
        counts = [len(each.members) for each in sent if each.members]
        sent.clear()
        return counts

    clients = [kept_heartbeats() for _ in range(450)]
    for at, client in enumerate(clients):
        delegated.keep(node, client, b"%d" % at, 1, Delegated(at, b"", "g", "m", 60_000))
    delegated.on_leases(node, Leases(5, {0: LEASE_MS}))
    for client in clients:
        assert client.heartbeats.keep.call_args.args[3].accept(6)
    delegated.report(node)
    assert members() == [200, 200, 50]
    delegated.on_leases(node, Leases(5, {0: LEASE_MS}))
    delegated.on_leases(node, Leases(5, {0: LEASE_MS}))
    delegated.on_unreachable(node)
    for _ in range(2):
        delegated.on_reachable(node)
        await until(lambda: sum(len(each.members) for each in sent) == 50)
        assert {member.frame for each in sent for member in each.members} == {b"%d" % at for at in range(400, 450)}
        sent.clear()
        delegated.on_unreachable(node)


def kept_heartbeats() -> Any:
    """A client side that keeps its delegated heartbeats."""
    client = MagicMock(spec=ClientSide)
    client.heartbeats = MagicMock()
    client.is_open.return_value = True
    return client
