"""Many connections at a time through the sidecar, on a real cluster, each with requests of both kinds."""

import asyncio
from contextlib import ExitStack
from typing import Final
from uuid import uuid4

import pytest

from tests.brokers.cluster import Cluster
from tests.clients.probe import coordinator_of
from tests.clients.through_sidecar.member import Member, settle
from tests.clients.through_sidecar.sidecar import new_topic, offsets_at
from tests.conformance.wire import Connection
from tests.muster_process import MusterProcess

pytestmark = pytest.mark.clients

GROUPS: Final = 10
MEMBERS: Final = 50
ROUNDS: Final = 3


class Client:
    """A member with its own connection to its coordinator; its number is that of its partition."""

    def __init__(self, member: Member, partition: int) -> None:
        self.member, self.partition = member, partition

    async def work(self) -> list[int]:
        """Commits and heartbeats, which the sidecar answers or authorizes, and relayed requests, all at once."""
        connection, errors = self.member.connection, []
        for offset in range(1, ROUNDS + 1):
            commit = self.member.commit(self.partition, offset)
            metadata = connection.ask(
                "Metadata",
                12,
                topics=[{"topic_id": None, "name": self.member.topic}],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
            committed, reported, heartbeat = await asyncio.gather(commit, metadata, self.member.heartbeat())
            errors += [committed, reported["topics"][0]["error_code"], heartbeat]
        return errors


def test_five_hundred_at_a_time(sidecar: MusterProcess, kafka_cluster: Cluster) -> None:
    """500 members of ten groups, a connection each: all join, work and commit, and nothing is lost."""
    topic = new_topic(kafka_cluster.bootstrap, partitions=MEMBERS)
    groups = {name: coordinator_of(sidecar.bootstrap, name) for name in (uuid4().hex for _ in range(GROUPS))}

    async def play() -> None:
        with ExitStack() as stack:
            addresses = [(name, place, number) for name, place in groups.items() for number in range(MEMBERS)]
            connections = await asyncio.gather(*(Connection.open(place) for _, place, _ in addresses))
            for connection in connections:
                stack.callback(connection.close)
            clients = [
                Client(Member(connection, name, topic, instance=str(number)), number)
                for connection, (name, _, number) in zip(connections, addresses, strict=True)
            ]
            crews = [[each.member for each in clients if each.member.group_id == name] for name in groups]
            await asyncio.gather(*(settle(*members) for members in crews))
            errors = await asyncio.gather(*(client.work() for client in clients))
            assert {error for each in errors for error in each} == {0}

    asyncio.run(play())
    for name in groups:
        offsets = offsets_at(kafka_cluster.bootstrap, name, topic, partitions=MEMBERS)
        assert offsets == dict.fromkeys(range(MEMBERS), ROUNDS)
