"""Requests for groups of another process: forwarded, and answered as if they had been sent there."""

from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Heartbeat, JoinGroup, LeaveGroup
from muster.coordinator.group.outcomes import (
    HeartbeatOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    Superseded,
    SyncGroupOutcome,
)
from muster.coordinator.peers.link.peer_messages import HIGHEST_TAG, LENGTH, NotOwned, RequestSuperseded
from muster.coordinator.sidecar.forwarding import frontend as frontend_module
from muster.coordinator.sidecar.relay import broker_side
from muster.events.connection import ConnectionEnd
from muster.events.ids import MemberId
from tests.coordinator.kio_client import frame, parse, with_length
from tests.coordinator.sidecar.forwarding.stage import FRONTEND, forwarding
from tests.coordinator.sidecar.relay.test_relay import heartbeat, join, leave, sync
from tests.coordinator.sidecar.scripted_broker import DESCRIBE_GROUPS, ReceivedRequest, allowing
from tests.waiting import until

JOINED = JoinGroupOutcome(member_id=MemberId("m"), generation_id=7)


def error_of(api: str, version: int, payload: bytes) -> int:
    return int(parse(api, version, payload).error_code)


async def test_a_heartbeat_is_answered_by_the_owner() -> None:
    """It gets the client, and the address from which it is connected."""
    async with forwarding() as stage:
        client = await stage.frontend.connect(1)
        assert error_of("Heartbeat", 3, await client.ask(heartbeat())) == 0
        (command,) = stage.groups.commands
        assert isinstance(command, Heartbeat)
        assert command.caller.client_host == "/127.0.0.1"
        assert stage.frontend.groups.commands == []


async def test_the_broker_is_queried_on_the_clients_own_connection() -> None:
    """The client needs READ on the group: what the broker denies to the client is denied."""
    async with forwarding() as stage:

        def denies(requested: object) -> None:
            if requested.api_key == DESCRIBE_GROUPS:  # type: ignore[attr-defined]
                requested.tell(allowing(requested, 0))  # type: ignore[attr-defined, arg-type]
            else:
                stage.broker.usual(requested)  # type: ignore[arg-type]

        stage.broker.script = denies
        client = await stage.frontend.connect(1)
        assert error_of("Heartbeat", 3, await client.ask(heartbeat())) == ErrorCode.group_authorization_failed
        assert stage.groups.commands == []


async def test_a_parked_join_delays_no_other_client() -> None:
    """Other clients of the same link are answered meanwhile."""
    async with forwarding() as stage:
        waiting, other = await stage.frontend.connect(1), await stage.frontend.connect(1)
        waiting.send(join(5))
        await until(lambda: stage.groups.parked)
        assert error_of("Heartbeat", 3, await other.ask(heartbeat())) == 0
        stage.groups.release(JOINED)
        correlation_id, payload = await waiting.answer()
        assert correlation_id == 5
        assert parse("JoinGroup", 3, payload).generation_id == 7


@pytest.fixture
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disconnected client's request does not get ten more seconds."""
    monkeypatch.setattr(broker_side, "LINGER_S", 0.05)


@pytest.mark.usefixtures("short_linger")
async def test_a_disconnected_client_stops_waiting() -> None:
    """The owner is notified, so its parked join counts for no client."""
    async with forwarding() as stage:
        client, gone = await stage.parked_join()
        client.vanish()
        await until(lambda: gone)
        (command, _) = stage.groups.parked[0]
        assert isinstance(command, JoinGroup)
        assert gone == [command.caller.request_id]


async def test_the_rest_of_a_request_is_dropped_when_the_next_one_arrives() -> None:
    """Its response would be taken for the next one's: a frontend has one pending request for each client."""
    async with forwarding() as stage:
        _, gone = await stage.parked_join()
        ((_, clients),) = stage.owner.requests._frontends.items()
        (forwarded,) = clients.by_number.values()
        forwarded.take(heartbeat()[LENGTH.size :], "")
        (command, _) = stage.groups.parked[0]
        assert isinstance(command, JoinGroup)
        assert gone == [command.caller.request_id]


@pytest.mark.usefixtures("short_linger")
@pytest.mark.parametrize("by_client", [True, False])
async def test_the_owner_learns_how_the_clients_connection_to_the_edge_ended(by_client: bool) -> None:
    """If the frontend itself is lost, the client's end is unknown."""
    async with forwarding() as stage:
        client, _ = await stage.parked_join()
        (command, _) = stage.groups.parked[0]
        assert isinstance(command, JoinGroup)
        record = command.caller.connection
        assert record is not None
        assert (record.edge, record.end) == (FRONTEND, None)
        if by_client:
            client.close()
        else:
            await stage.links.close()
        await until(lambda: record.end is not None)
        assert record.end is (ConnectionEnd.CLOSED if by_client else ConnectionEnd.UNKNOWN)


async def test_a_client_of_the_process_itself_has_one_connection_as_edge_and_as_owner() -> None:
    """Its joins are handled like forwarded ones, and its heartbeats are not."""
    async with forwarding() as stage:
        stage.give_to(stage.frontend.service.cluster.node)
        client = await stage.frontend.connect(1)
        client.send(join())
        await until(lambda: stage.frontend.groups.parked)
        (command, _) = stage.frontend.groups.parked[0]
        assert isinstance(command, JoinGroup)
        (served,) = stage.frontend.listening.connections
        assert command.caller.connection is served.record
        assert served.record.edge is None


async def test_a_join_whose_owner_ends_goes_to_the_next_one_with_the_same_id() -> None:
    """It adds no second member, and its client notices nothing."""
    async with forwarding() as stage:
        stage.frontend.service.new_uuid = lambda: str(uuid4())
        client = await stage.frontend.connect(1)
        client.send(join(9))
        await until(lambda: stage.groups.parked)
        await stage.owner.end()
        await until(lambda: not stage.links.is_reached(stage.owner.node))
        stage.give_to(stage.frontend.service.cluster.node)  # the frontend owns it now
        await until(lambda: stage.frontend.groups.parked)
        first, again = stage.groups.commands[0], stage.frontend.groups.commands[0]
        assert isinstance(first, JoinGroup)
        assert isinstance(again, JoinGroup)
        assert first.proposed_member_id == again.proposed_member_id
        stage.frontend.groups.release(JOINED)
        assert (await client.answer())[0] == 9


async def test_a_join_that_is_superseded_at_the_owner_is_idle_at_the_edge() -> None:
    """Nor is it sent to the next owner, where it would supersede the one that its member waits for."""
    async with forwarding() as stage:
        superseded, parked = await stage.frontend.connect(1), await stage.frontend.connect(1)
        superseded.send(join(1))
        await until(lambda: len(stage.groups.parked) == 1)
        parked.send(join(2))
        await until(lambda: len(stage.groups.parked) == 2)
        stage.groups.release(Superseded())
        await until(lambda: sum(each.is_parked for each in stage.frontend.listening.connections) == 1)
        stage.owner.assigned = False
        stage.groups.release(JoinGroupOutcome(error=ErrorCode.not_coordinator, member_id=MemberId("")))
        stage.give_to(stage.frontend.service.cluster.node)
        await until(lambda: stage.frontend.groups.parked)
        stage.frontend.now_ms += 600_001
        stage.frontend.timers.pass_all()
        assert await superseded.rest() == b""
        stage.frontend.groups.release(JOINED)
        assert (await parked.answer())[0] == 2
        assert len(stage.frontend.groups.commands) == 1


async def test_an_edge_of_a_former_version_is_sent_nothing_that_it_does_not_know() -> None:
    """It would treat the link as broken, which ends all its clients' joins."""
    async with forwarding() as stage:
        superseded, _ = await stage.parked_join()
        (frontend,) = stage.owner.requests._frontends
        assert frontend.highest_tag == HIGHEST_TAG
        frontend.highest_tag = HIGHEST_TAG - 1
        parked = await stage.frontend.connect(1)
        parked.send(join(2))
        await until(lambda: len(stage.groups.parked) == 2)
        stage.groups.release(Superseded())
        stage.groups.release(JOINED)
        assert (await parked.answer())[0] == 2
        assert not any(isinstance(each, RequestSuperseded) for each in stage.from_owner)
        assert stage.links.is_reached(stage.owner.node)
        superseded.close()


async def test_a_join_that_the_owner_hands_over_goes_to_the_next_one() -> None:
    """An owner that releases the group answers NOT_COORDINATOR, which the client does not see."""
    async with forwarding() as stage:
        client = await stage.frontend.connect(1)
        client.send(join(9))
        await until(lambda: stage.groups.parked)
        stage.owner.assigned = False
        stage.groups.release(JoinGroupOutcome(error=ErrorCode.not_coordinator, member_id=MemberId("")))
        stage.give_to(stage.frontend.service.cluster.node)
        await until(lambda: stage.frontend.groups.parked)
        stage.frontend.groups.release(JOINED)
        assert parse("JoinGroup", 3, (await client.answer())[1]).error_code == 0


async def test_a_join_at_a_broker_that_is_not_the_coordinator_is_refused_at_once() -> None:
    """It does not wait for the next owner, which would get the same answer from the client's broker."""
    async with forwarding() as stage:
        count = 0

        def coordinates_nothing(request: ReceivedRequest) -> None:
            nonlocal count
            if request.api_key == DESCRIBE_GROUPS:
                count += 1
                request.tell(allowing(request, 0, error=ErrorCode.not_coordinator))
            else:
                stage.broker.usual(request)

        stage.broker.script = coordinates_nothing
        client = await stage.frontend.connect(1)
        assert error_of("JoinGroup", 3, await client.ask(join())) == ErrorCode.not_coordinator
        assert count == 1
        assert stage.groups.commands == []


async def test_a_sync_waits_for_an_owner_that_loads() -> None:
    """If it were told to rejoin, as Kafka does, all others would rejoin, too, if it is the leader."""
    async with forwarding() as stage:
        stage.owner.loading = True
        client = await stage.frontend.connect(1)
        client.send(sync(5))
        await until(lambda: any(isinstance(each, NotOwned) for each in stage.from_owner))
        assert stage.groups.commands == []
        stage.owner.loading = False
        await until(lambda: stage.groups.parked)
        stage.groups.release(SyncGroupOutcome(assignment=b"mine"))
        correlation_id, payload = await client.answer()
        assert correlation_id == 5
        assert parse("SyncGroup", 3, payload).assignment == b"mine"


async def test_an_owner_decides_nothing_for_groups_of_others() -> None:
    """It reports that, and the request waits for the group's owner."""
    async with forwarding() as stage:
        stage.owner.assigned = False
        client = await stage.frontend.connect(1)
        client.send(heartbeat(3))
        await until(lambda: stage.owner.metrics.requests)
        stage.give_to(stage.frontend.service.cluster.node)
        assert error_of("Heartbeat", 3, (await client.answer())[1]) == 0
        assert stage.groups.commands == []


@pytest.mark.parametrize("is_owned", [True, False], ids=["not-reached", "nobodys"])
async def test_without_an_owner_clients_try_again(is_owned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """COORDINATOR_NOT_AVAILABLE, after a while: joins and syncs wait longer."""
    monkeypatch.setattr(frontend_module, "OTHER_TIMEOUT_S", 0.01)
    monkeypatch.setattr(frontend_module, "PARKED_TIMEOUT_S", 0.02)
    async with forwarding() as stage:
        await stage.owner.end()
        await until(lambda: not stage.links.is_reached(stage.owner.node))
        if not is_owned:
            stage.give_to(None)
        client = await stage.frontend.connect(1)
        assert error_of("Heartbeat", 3, await client.ask(heartbeat())) == ErrorCode.coordinator_not_available
        assert error_of("LeaveGroup", 2, await client.ask(leave())) == ErrorCode.coordinator_not_available
        assert error_of("JoinGroup", 3, await client.ask(join())) == ErrorCode.coordinator_not_available
        assert stage.frontend.groups.commands == []


async def test_a_stopping_process_waits_for_no_next_owner() -> None:
    """Clients get their responses at once, and ask elsewhere."""
    async with forwarding() as stage:
        client = await stage.frontend.connect(1)
        client.send(join())
        await until(lambda: stage.groups.parked)
        stage.forwarder.stop_waiting()
        assert error_of("JoinGroup", 3, (await client.answer())[1]) == ErrorCode.coordinator_not_available


async def test_a_request_of_a_group_that_is_upstreams_is_relayed_by_the_edge() -> None:
    """The owner knows that it is, and the broker answers the client itself."""
    async with forwarding() as stage:
        client = await stage.frontend.connect(1)
        left = with_length(frame("LeaveGroup", 2, correlation_id=1, group_id="theirs-1", member_id="m"))
        assert await client.ask(left) == b""
        assert stage.broker.keys_asked()[-1] == 13
        assert stage.groups.commands == []


async def test_own_groups_are_not_forwarded() -> None:
    async with forwarding() as stage:
        stage.give_to(stage.frontend.service.cluster.node)
        stage.frontend.groups.outcome = lambda command: (
            LeaveGroupOutcome() if isinstance(command, LeaveGroup) else HeartbeatOutcome(error=ErrorCode.none)
        )
        client = await stage.frontend.connect(1)
        await client.ask(heartbeat())
        await client.ask(leave())
        assert len(stage.frontend.groups.commands) == 2
        assert stage.groups.commands == []


async def test_a_malformed_request_closes_its_own_connection_alone() -> None:
    """It is decoded at the client's process and at the owner: errors that only the owner finds close it, too."""
    async with forwarding() as stage:
        client, other = await stage.frontend.connect(1), await stage.frontend.connect(1)
        client.send(with_length(heartbeat()[4:-3]))
        assert await client.rest() == b""
        assert error_of("Heartbeat", 3, await other.ask(heartbeat())) == 0
