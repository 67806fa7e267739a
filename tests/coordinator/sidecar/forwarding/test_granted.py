"""Heartbeats that the owner lets the edge answer: until the group changes, the lease ends, or the link does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Heartbeat
from muster.coordinator.group.outcomes import HeartbeatOutcome
from muster.coordinator.peers.link.messages import Revoked
from muster.coordinator.sidecar.forwarding import granted as granted_module
from tests.coordinator.sidecar.forwarding.stage import Stage, forwarding
from tests.coordinator.sidecar.forwarding.test_forwarding import error_of
from tests.coordinator.sidecar.relay.test_relay import heartbeat, join
from tests.coordinator.sidecar.relaying import Client
from tests.waiting import until

LEASE_MS = 60_000
REBALANCING = HeartbeatOutcome(error=ErrorCode.rebalance_in_progress)


@asynccontextmanager
async def granting(*, lease_left_ms: int = LEASE_MS) -> AsyncIterator[tuple[Stage, Client]]:
    """A client whose heartbeat the owner has accepted, once the edge has heard of its lease."""
    async with forwarding(answer_lease_ms=LEASE_MS) as stage:
        stage.groups.gives_tickets = True
        stage.owner.lease_left_ms = lease_left_ms
        client = await stage.edge.connect(1)
        assert await error(client) is ErrorCode.none
        await stage.until_granted()
        yield stage, client


async def error(client: Client) -> ErrorCode:
    return ErrorCode(error_of("Heartbeat", 3, await client.ask(heartbeat())))


def heard(stage: Stage) -> list[int]:
    """The times at which the owner has counted the member as heard."""
    return stage.groups.tickets[-1].touched


async def test_equal_heartbeats_of_the_connection_are_answered_by_the_edge() -> None:
    """The owner is told whom, once for those that come together; another connection is another client."""
    async with granting() as (stage, client):
        before = len(heard(stage))
        for _ in range(30):
            assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 1
        await until(lambda: len(heard(stage)) > before)
        other = await stage.edge.connect(1)
        assert await error(other) is ErrorCode.none
        assert len(stage.groups.commands) == 2


async def test_a_group_that_changes_is_answered_for_by_its_owner() -> None:
    """The edge is told at once, before any of its clients is told of the change."""
    async with granting() as (stage, client):
        stage.groups.outcome = lambda _: REBALANCING
        stage.groups.tickets[-1].change()
        await until(lambda: any(isinstance(each, Revoked) for each in stage.from_owner))
        assert await error(client) is ErrorCode.rebalance_in_progress
        assert len(stage.groups.commands) == 2


async def test_a_group_that_changed_while_the_answer_was_made_is_not_granted() -> None:
    """Its ticket is not true any more when the answer leaves."""
    async with forwarding(answer_lease_ms=LEASE_MS) as stage:
        stage.groups.gives_tickets = True
        keep = stage.groups.heartbeat_ticket

        def changed(command: Heartbeat) -> object:
            ticket = keep(command)
            stage.groups.tickets[-1].change()
            return ticket

        stage.groups.heartbeat_ticket = changed  # type: ignore[method-assign,assignment]
        client = await stage.edge.connect(1)
        for _ in range(3):
            assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 3


@pytest.mark.parametrize(("left_ms", "asked"), [(100, 2), (0, 2), (LEASE_MS, 1)])
async def test_the_edge_answers_as_long_as_the_owner_could(left_ms: int, asked: int) -> None:
    """As the owner says by its own lease, counted from before it was asked, on a clock that runs in suspend."""
    async with granting(lease_left_ms=left_ms) as (stage, client):
        stage.clock.now_ms += 100
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == asked


async def test_a_grant_is_over_with_the_clients_authorization() -> None:
    """The broker may deny it the group since."""
    async with granting() as (stage, client):
        stage.edge.now_ms += 5_000
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 2


async def test_a_member_that_was_heard_while_its_group_changed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was answered: its session goes on, by the rules of the group as it is now."""
    monkeypatch.setattr(granted_module, "HEARD_S", 60.0)
    async with granting() as (stage, client):
        assert await error(client) is ErrorCode.none
        stage.groups.outcome = lambda _: REBALANCING
        stage.groups.tickets[-1].valid = False
        stage.owners.granted.tell_all()
        await until(lambda: len(stage.groups.commands) == 2)
        command = stage.groups.commands[-1]
        assert isinstance(command, Heartbeat)
        assert (command.member_id, command.generation_id) == ("m", 1)


async def test_who_was_heard_is_told_before_anything_else_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a heartbeat counts before the join behind it."""
    monkeypatch.setattr(granted_module, "HEARD_S", 60.0)
    async with granting() as (stage, client):
        before = len(heard(stage))
        assert await error(client) is ErrorCode.none
        assert len(heard(stage)) == before
        client.send(join(5))
        await until(lambda: stage.groups.parked)
        assert len(heard(stage)) == before + 1


async def test_what_the_owner_was_not_told_it_is_told_once_it_is_reached_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that was answered while the link hung is not given up for it; nor is anything answered without it."""
    monkeypatch.setattr(granted_module, "HEARD_S", 60.0)
    async with granting() as (stage, client):
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 1
        stage.owner.connections[-1].abort("it breaks")
        await until(lambda: not stage.links.is_reached(stage.owner.node))
        await stage.until_reached()
        await until(lambda: len(stage.groups.commands) == 2)
        assert await error(client) is ErrorCode.none
        assert len(stage.groups.commands) == 3
