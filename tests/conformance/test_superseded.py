"""A member repeats its parked request on other connections: each connection is closed once it is idle.

Kafka 4.3.1 closes all fifty, and so does Muster, alone and in front of Kafka.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.brokers.broker import HOST, Broker, lasting_ports
from tests.brokers.choice import running_broker
from tests.conformance.member import RANGE
from tests.conformance.servers import NODE_ID
from tests.conformance.wire import Connection, Pending, ms
from tests.muster_process import running_muster
from tests.sharing_processes import sharing_sidecar, until_shared
from tests.waiting import until

pytestmark = pytest.mark.broker

IDLE_MS: Final = 5_000
AGAIN: Final = 50
SERVERS: Final = ("kafka", "standalone", "sidecar", "edge")
NO_ERROR: Final = 0


@contextmanager
def kafka(_: Broker) -> Iterator[str]:
    with running_broker(settings={"connections.max.idle.ms": str(IDLE_MS)}) as own:
        yield own.bootstrap


@contextmanager
def standalone(_: Broker) -> Iterator[str]:
    with running_muster(log="memory:", options=["--connections-max-idle-ms", str(IDLE_MS)]) as muster:
        yield muster.bootstrap


@contextmanager
def sidecar(broker: Broker) -> Iterator[str]:
    (port,) = lasting_ports(1)
    options = ["--connections-max-idle-ms", str(IDLE_MS)]
    options += ["--upstream", broker.bootstrap, "--listener-map", f"{NODE_ID}={port}"]
    with running_muster(log="memory:", options=options):
        yield f"{HOST}:{port}"


@contextmanager
def frontend(broker: Broker) -> Iterator[str]:
    """A sidecar that forwards to the owner of all groups."""
    log = f"kafka://{broker.bootstrap}/superseded-{uuid4().hex[:8]}"
    with TemporaryDirectory() as directory:
        secret = Path(directory) / "secret"
        secret.write_text(secrets.token_hex(32))
        sharing = partial(sharing_sidecar, broker.bootstrap, log, secret=secret, partitions=1)
        options = ["--role", "edge", "--connections-max-idle-ms", str(IDLE_MS)]
        with sharing(1) as owner, sharing(2, options=options) as forwarding:
            until_shared(owner, partitions=1)
            yield forwarding.bootstrap


@pytest.fixture(scope="module", params=[kafka, standalone, sidecar, frontend], ids=SERVERS)
def bootstrap(request: pytest.FixtureRequest, kafka_broker: Broker) -> Iterator[str]:
    with request.param(kafka_broker) as bootstrap:
        yield bootstrap


class Group:
    """A group whose one member is stable, and requests of its members, each on its own connection."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self._bootstrap = bootstrap
        self._group_id = f"{group_id}-{uuid4().hex[:8]}"  # the previous servers had one of that name at the same broker

    async def sent(self, name: str, version: int, **body: Any) -> tuple[Connection, Pending]:
        connection = await Connection.open(self._bootstrap)
        return connection, connection.send(name, version, group_id=self._group_id, **body)

    async def ask(self, name: str, version: int, **body: Any) -> dict[str, Any]:
        """The response, once the group's coordinator is available."""
        while True:
            connection, pending = await self.sent(name, version, **body)
            answer = await pending.get()
            connection.close()
            if answer["error_code"] not in (14, 15, 16):
                return answer

    async def new_member(self) -> str:
        """A member id that the group hands out for a join (KIP-394)."""
        member_id: str = (await self.ask("JoinGroup", 4, **joining("")))["member_id"]
        return member_id

    async def until_named(self) -> None:
        """Wait until the broker names the group's coordinator, for which it first creates a topic."""
        connection = await Connection.open(self._bootstrap)

        async def is_known() -> bool:
            answer = await connection.ask("FindCoordinator", 1, key=self._group_id, key_type=0)
            return bool(answer["error_code"] == NO_ERROR)

        await until(is_known)
        connection.close()


def joining(member_id: str) -> Mapping[str, Any]:
    return {
        "member_id": member_id,
        "group_instance_id": None,
        "session_timeout": ms(60_000),
        "rebalance_timeout": ms(60_000),
        "protocol_type": "consumer",
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in RANGE],
    }


def syncing(member_id: str, generation_id: int, **assignments: bytes) -> Mapping[str, Any]:
    given = [{"member_id": each, "assignment": assignment} for each, assignment in assignments.items()]
    return {"member_id": member_id, "generation_id": generation_id, "assignments": given}


async def until_all_closed(sent: list[tuple[Connection, Pending]]) -> None:
    await until(
        lambda: all(connection.is_lost for connection, _ in sent),
        lambda: f"{sum(not connection.is_lost for connection, _ in sent)} of {len(sent)} are open",
    )


async def test_joins_that_were_sent_again_keep_no_connection(bootstrap: str) -> None:
    """The last one is answered when the group is complete; the others never are (J13)."""
    group = Group(bootstrap, "joins-again")
    await group.until_named()
    leader = await group.new_member()
    first = await group.ask("JoinGroup", 4, **joining(leader))
    await group.ask("SyncGroup", 2, **syncing(leader, first["generation_id"], **{leader: b""}))
    second = await group.new_member()
    again = [await group.sent("JoinGroup", 4, **joining(second)) for _ in range(AGAIN)]
    rejoined = await group.ask("JoinGroup", 4, **joining(leader))
    assert rejoined["error_code"] == NO_ERROR
    await until_all_closed(again)
    assert 1 <= sum(pending.is_good for _, pending in again) < AGAIN  # some may arrive when the group is complete


async def test_syncs_that_were_sent_again_keep_no_connection(bootstrap: str) -> None:
    """The last one is answered when the leader has synced (SG17)."""
    group = Group(bootstrap, "syncs-again")
    await group.until_named()
    members = [await group.new_member() for _ in range(2)]
    joins = [await group.sent("JoinGroup", 4, **joining(each)) for each in members]
    answers = [await pending.get() for _, pending in joins]
    generation_id, leader = answers[0]["generation_id"], answers[0]["leader"]
    (follower,) = set(members) - {leader}
    again = [await group.sent("SyncGroup", 2, **syncing(follower, generation_id)) for _ in range(AGAIN)]
    synced = await group.ask("SyncGroup", 2, **syncing(leader, generation_id, **{leader: b"", follower: b"its"}))
    assert synced["error_code"] == NO_ERROR
    await until_all_closed(again)
    assert 1 <= sum(pending.is_good for _, pending in again) < AGAIN  # some may arrive when the group is complete
