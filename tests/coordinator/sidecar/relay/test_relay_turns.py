"""Many connections through the sidecar take turns: clients with many requests wait behind those with few."""

import asyncio
import itertools

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, LeaveGroup
from muster.coordinator.group.outcomes import HeartbeatOutcome, LeaveGroupOutcome, Outcome
from muster.coordinator.load.slices import SLICE_S
from muster.coordinator.load.turns import REQUESTS_AT_ONCE, REQUESTS_IN_ROUND, Turns
from muster.coordinator.sidecar.relay.client_side import ClientSide
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.running_server import HEARTBEAT
from tests.coordinator.sidecar.relaying import MORE_THAN_SOCKETS_TAKE, Client, Relay, relaying
from tests.coordinator.sidecar.scripted_broker import scripted_broker
from tests.waiting import until

IN_A_SLICE = 5
LEFT = LeaveGroupOutcome(error=ErrorCode.none)


class HeldTurns(Turns):
    """No turns run while it is paused."""

    is_paused = False

    def _turn(self) -> None:
        if self.is_paused:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            super()._turn()


class Crowded:
    """A relay where each decision takes a part of a slice, and nothing else takes time. `leavers`: members that left; a
    leave of "parked" is answered when the groups release it.
    """

    def __init__(self, relay: Relay, *, decision_s: float = SLICE_S / IN_A_SLICE) -> None:
        self.leavers: list[str] = []
        self._decision_s = decision_s
        self._now_s = 0.0
        self._relay = relay
        relay.groups.outcome = self._outcome
        relay.listening.turns = self.turns = HeldTurns(lambda: self._now_s)

    def _outcome(self, command: AnyRequest) -> Outcome | None:
        assert isinstance(command, LeaveGroup)
        self.leavers.append(command.members[0].member_id)
        self._now_s += self._decision_s
        return None if self.leavers[-1] == "parked" else LEFT

    async def client(self, name: str) -> Client:
        """A client whose rights are cached."""
        client = await self._relay.connect(1)
        await client.ask(leave(name))
        return client


def leave(name: str) -> bytes:
    return with_length(frame("LeaveGroup", 2, correlation_id=1, group_id="g", member_id=name))


async def test_a_busy_client_waits_behind_newer_arrivals() -> None:
    names = [f"{n}" for n in range(4)]
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        crowded = Crowded(relay)
        clients = {name: await crowded.client(name) for name in names}
        crowded.leavers.clear()
        for name, client in clients.items():
            client.send(leave(name) * REQUESTS_AT_ONCE)
        for client in clients.values():
            for _ in range(REQUESTS_AT_ONCE):
                await client.answer()
        assert sorted(crowded.leavers) == sorted(names * REQUESTS_AT_ONCE)
        runs = [len(list(same)) for _, same in itertools.groupby(crowded.leavers)]
        assert max(runs[:-1]) <= 2 * IN_A_SLICE, runs  # there is no one left for the last to wait for


@pytest.mark.parametrize("goes", ["hangs up", "is told to go"])
async def test_a_client_waiting_for_its_turn_is_served_at_the_end(goes: str) -> None:
    """Requests sent before the client disconnected are handled; for a closing connection nothing more is started."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        crowded = Crowded(relay)
        greedy, leaver = await crowded.client("greedy"), await crowded.client("leaver")
        connection = _connection(relay, leaver)
        crowded.leavers.clear()
        crowded.turns.is_paused = True
        greedy.send(leave("greedy") * REQUESTS_AT_ONCE)
        await until(lambda: crowded.leavers)
        leaver.send(leave("leaver") * (2 * IN_A_SLICE))
        await until(lambda: crowded.turns.is_waiting(connection))
        if goes == "hangs up":
            leaver.close()
            await until(lambda: connection not in relay.listening.connections)
        else:
            connection.drain()
        crowded.turns.is_paused = False
        await until(lambda: broker.open_connections == 1)
        assert crowded.leavers.count("leaver") == (2 * IN_A_SLICE if goes == "hangs up" else 0)


async def test_a_round_of_many_takes_few_requests_of_each_though_there_is_time() -> None:
    """A single client gets more, but not all of its requests at once."""
    others = 32
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        crowded = Crowded(relay, decision_s=0)
        greedy = await crowded.client("greedy")
        clients = [await crowded.client("other") for _ in range(others)]
        crowded.turns.is_paused = True
        greedy.send(leave("greedy") * (4 * REQUESTS_AT_ONCE))
        await until(lambda: crowded.turns.is_waiting(_connection(relay, greedy)))
        for client in clients:
            client.send(leave("other"))
        await until(lambda: all(crowded.turns.is_waiting(_connection(relay, each)) for each in clients))
        crowded.leavers.clear()
        crowded.turns.is_paused = False
        await until(lambda: crowded.leavers.count("other") == others)
        assert crowded.leavers.index("other") <= REQUESTS_IN_ROUND // (1 + others)


async def test_an_answered_client_continues_behind_waiting_ones() -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        crowded = Crowded(relay)
        greedy, parked = await crowded.client("greedy"), await crowded.client("usual")
        parked.send(leave("parked") + leave("after the answer"))
        await until(lambda: relay.groups.parked)
        crowded.turns.is_paused = True
        greedy.send(leave("greedy") * REQUESTS_AT_ONCE)
        await until(lambda: crowded.turns.is_waiting(_connection(relay, greedy)))
        crowded.leavers.clear()
        relay.groups.release(LEFT)
        crowded.turns.is_paused = False
        for _ in range(2):
            await parked.answer()
        assert crowded.leavers.index("after the answer") >= IN_A_SLICE


async def test_heartbeats_that_are_known_wait_for_their_turn_too() -> None:
    """If no connection is waiting it is answered at once."""
    heartbeat = with_length(frame("Heartbeat", 3, correlation_id=1, **HEARTBEAT))
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        crowded = Crowded(relay)
        relay.groups.gives_tickets = True
        greedy, member = await crowded.client("greedy"), await relay.connect(1)
        relay.groups.outcome = lambda _: HeartbeatOutcome(error=ErrorCode.none)
        for _ in range(2):
            await member.ask(heartbeat)
        assert relay.metrics.fast_heartbeats == 1
        crowded.turns.is_paused = True
        crowded.turns.wait(_connection(relay, greedy))
        member.send(heartbeat)
        await until(lambda: crowded.turns.is_waiting(_connection(relay, member)))
        assert relay.metrics.fast_heartbeats == 1
        crowded.turns.is_paused = False
        await member.answer()
        assert relay.metrics.fast_heartbeats == 2


async def test_reading_for_a_waiting_client_is_bounded() -> None:
    many = [leave("leaver") * 1_000] * (MORE_THAN_SOCKETS_TAKE // len(leave("leaver")) // 1_000)
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        crowded = Crowded(relay)
        greedy, leaver = await crowded.client("greedy"), await crowded.client("leaver")
        connection = _connection(relay, leaver)
        crowded.turns.is_paused = True
        greedy.send(leave("greedy") * REQUESTS_AT_ONCE)
        await until(lambda: not crowded.turns.begin(connection))
        before = relay.metrics.bytes_received
        leaver.send(*many)
        await until(lambda: connection._flow and not connection._flow._is_on)
        assert 0 < relay.metrics.bytes_received - before < 1_000_000


def _connection(relay: Relay, client: Client) -> ClientSide:
    """The relay's side of it."""
    return next(each for each in relay.listening.connections if each.address.endswith(_port(client)))


def _port(client: Client) -> str:
    return f":{client.writer.get_extra_info('sockname')[1]}"
