"""Two sidecars with different event logs in front of one broker, with clients of one group at both.

The sidecar whose shadow is in the group upstream owns it; the other one refuses joins, as the broker would.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from itertools import pairwise

import msgspec
import pytest

from tests.brokers.broker import Broker, lasting_base
from tests.clients.through_sidecar.member import ASSIGNMENT
from tests.conformance.member import subscription
from tests.conformance.wire import Connection, ms
from tests.coordinator.sidecar.admin_stage import new_name, talking, until_coordinated
from tests.muster_process import MusterProcess, running_muster, sqlite_log

pytestmark = pytest.mark.broker

WITHIN_S = 60.0
ASK_AGAIN_S = 0.01
TURNS = 6
INCONSISTENT_GROUP_PROTOCOL = 23
MEMBER_ID_REQUIRED = 79
JOIN_AGAIN = {14, 15, 16, 22, 25, 27}


class Turn(msgspec.Struct, frozen=True):
    """A time for which a client had an assignment from this sidecar: at least that long."""

    muster: MusterProcess
    since_s: float
    until_s: float


class Client:
    """A client that wants to be the group's only member. `member_id` is the last one it got."""

    def __init__(self, muster: MusterProcess, connection: Connection, group_id: str) -> None:
        self.muster = muster
        self.connection = connection
        self.group_id = group_id
        self._me = {"group_id": group_id, "member_id": "", "group_instance_id": None}
        self._generation_id = -1

    async def take_part(self) -> int:
        """Join and sync, until it has an assignment (0), or the group is refused for its protocol (23)."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                error = await self._join() or await self._sync()
                if error in {0, INCONSISTENT_GROUP_PROTOCOL}:
                    return error
                assert error in JOIN_AGAIN, error
                if error == 25:
                    self._me["member_id"] = ""
                await asyncio.sleep(ASK_AGAIN_S)

    async def _join(self) -> int:
        body = {
            "session_timeout": ms(60_000),
            "rebalance_timeout": ms(60_000),
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription("orders")}],
            "reason": None,
        }
        joined = await self.connection.ask("JoinGroup", 9, **self._me, **body)
        if joined["error_code"] == MEMBER_ID_REQUIRED:
            self._me["member_id"] = joined["member_id"]
            joined = await self.connection.ask("JoinGroup", 9, **self._me, **body)
        if joined["error_code"] == 0:
            self._me["member_id"] = joined["member_id"]
            self._generation_id = joined["generation_id"]
        return int(joined["error_code"])

    async def _sync(self) -> int:
        synced = await self.connection.ask(
            "SyncGroup",
            5,
            **self._me,
            generation_id=self._generation_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": self._me["member_id"], "assignment": ASSIGNMENT}],
        )
        return int(synced["error_code"])

    async def heartbeat(self) -> int:
        """Send a heartbeat; return its error."""
        answer = await self.connection.ask("Heartbeat", 4, **self._me, generation_id=self._generation_id)
        return int(answer["error_code"])

    async def leave(self) -> None:
        """Leave; it waits for nothing else."""
        left = {"member_id": self._me["member_id"], "group_instance_id": None, "reason": None}
        await self.connection.ask("LeaveGroup", 5, group_id=self.group_id, members=[left])
        self._me["member_id"] = ""


@pytest.fixture(scope="module")
def sidecars(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[MusterProcess]]:
    """Two, each with its own log."""
    asyncio.run(until_coordinated(kafka_broker.bootstrap))
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                running_muster(
                    log=sqlite_log(tmp_path_factory.mktemp("log")),
                    options=["--upstream", kafka_broker.bootstrap, "--broker-base-port", str(lasting_base())],
                )
            )
            for _ in range(2)
        ]


@pytest.fixture
async def clients(sidecars: list[MusterProcess]) -> AsyncIterator[list[Client]]:
    """One of a new group at each of them."""
    group_id = new_name("shared")
    async with talking(sidecars[0].bootstrap) as first, talking(sidecars[1].bootstrap) as second:
        yield [
            Client(muster, connection, group_id) for muster, connection in zip(sidecars, (first, second), strict=True)
        ]


async def shadows(broker: Broker, client: Client) -> list[str]:
    """The instance ids that the broker has in the client's group."""
    async with talking(broker.bootstrap) as direct:
        answer = await direct.ask("DescribeGroups", 5, groups=[client.group_id], include_authorized_operations=False)
    return [each["group_instance_id"] for each in answer["groups"][0]["members"]]


async def turns_of(client: Client) -> list[Turn]:
    """Join whenever the group is free, stay for some heartbeats, and leave."""
    turns: list[Turn] = []
    async with asyncio.timeout(WITHIN_S):
        while len(turns) < TURNS:
            if await client.take_part() != 0:
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            since_s = time.monotonic()
            assert [await client.heartbeat() for _ in range(100)] == [0] * 100
            turns.append(Turn(client.muster, since_s, time.monotonic()))
            await client.leave()
    return turns


async def test_at_any_time_one_of_them_owns_the_group(clients: list[Client]) -> None:
    """However their joins overlap: no client has an assignment while another has one from the other sidecar."""
    first, second = await asyncio.gather(*map(turns_of, clients))
    turns = sorted(first + second, key=lambda turn: turn.since_s)
    assert len(turns) == 2 * TURNS
    for before, after in pairwise(turns):
        assert before.until_s <= after.since_s, (before, after)


async def test_a_client_that_connects_too_early_is_refused_with_the_owner(
    kafka_broker: Broker, clients: list[Client]
) -> None:
    """Like a client that connects directly; the log names the other Muster."""
    errors = await asyncio.gather(*(client.take_part() for client in clients))
    assert sorted(errors) == [0, INCONSISTENT_GROUP_PROTOCOL]
    owner, other = sorted(clients, key=lambda client: errors[clients.index(client)])
    (shadow,) = await shadows(kafka_broker, owner)
    assert await owner.heartbeat() == 0
    reported = other.muster.wait_for_event(
        "group not taken: another Muster has it", where=lambda line: line["group_id"] == owner.group_id
    )
    assert f"upstream it has the shadow {shadow}, client muster at" in reported["reason"]
    assert "another Muster coordinates it (which has another event log," in reported["reason"]


async def test_a_restart_knows_its_own_shadow_again(
    kafka_broker: Broker, sidecars: list[MusterProcess], clients: list[Client]
) -> None:
    """It knows its shadow by the identity in its log; in between no other can take the group."""
    owner, other = clients
    assert await owner.take_part() == 0
    before = await shadows(kafka_broker, owner)
    sidecars[0].kill()
    assert await other.take_part() == INCONSISTENT_GROUP_PROTOCOL
    sidecars[0].start()
    async with talking(sidecars[0].bootstrap) as again:
        owner.connection = again
        async with asyncio.timeout(WITHIN_S):
            while await owner.heartbeat() != 0:  # noqa: ASYNC110 -- another process is asked
                await asyncio.sleep(ASK_AGAIN_S)
        assert await shadows(kafka_broker, owner) == before
        assert await other.take_part() == INCONSISTENT_GROUP_PROTOCOL
        await owner.leave()
