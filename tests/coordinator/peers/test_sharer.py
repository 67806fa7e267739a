"""Processes share partitions through a group: joining, leaving, crashing, and members that must not take part."""

import asyncio
import itertools
from collections.abc import Mapping
from typing import Final

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs
from structlog.typing import EventDict

from muster.coordinator.cluster import Cluster, Node, new_cluster
from muster.coordinator.peers.ownership_group import CANNOT_JOIN, CANNOT_REJOIN, DESCRIBE_HINT, PROTOCOL_TYPE
from muster.coordinator.peers.sharer import CLIENTS_REDIRECTED_S, Sharer
from muster.coordinator.peers.sharing import Candidate, MemberIdentity, Peer, encode, sharing_of
from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.group_requests import AsMember
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from muster.events.kafka.errors import TryAgain
from muster.events.log.base import LogMismatch
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from muster.events.partitioner import partition_for
from tests.conformance.wire import Connection, Fields, ms
from tests.coordinator.peers.addresses import listening
from tests.muster_process import TEST_CONFIG, MusterProcess, running_muster
from tests.waiting import until

PARTITIONS: Final = 4
ALL: Final = frozenset(range(PARTITIONS))
NONE: Final = frozenset[int]()
SESSION_MS: Final = 6_000
OWNERS: Final = "owners"


class Log:
    """The claims on a log's partitions: for each, the newest counts."""

    def __init__(self) -> None:
        self._epochs = itertools.count(1)
        self.newest: dict[int, int] = {}

    def claim(self, number: int) -> int:
        self.newest[number] = next(self._epochs)
        return self.newest[number]


class Process:
    """A process as far as it shares partitions: those it owns, and where its clients are sent."""

    def __init__(
        self,
        log: Log,
        bootstrap: str,
        node_id: int,
        *,
        process: str | None = None,
        host: str | None = None,
        port: int = 9092,
        protocol: str = "log-1",
        is_frontend: bool = False,
        session_timeout_ms: int = SESSION_MS,
        upstream: str = "",
    ) -> None:
        self.log = log
        self.owned: dict[int, int] = {}
        self.cluster: Cluster = new_cluster(
            cluster_id="c", node_id=node_id, host=host or f"node-{node_id}.invalid", port=port, topics=()
        )
        self.failures: list[Exception] = []
        self.link = UpstreamLink(bootstrap, give_up=self.failures.append)
        who = AsMember(
            group_id=OWNERS,
            group_instance_id=f"muster-{node_id}",
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
        )
        self.sharer = Sharer(
            self,
            lambda: self.cluster,
            self._publish,
            link=self.link,
            who=who,
            process=process or f"host-{node_id}:1",
            partitions=PARTITIONS,
            session_timeout_ms=session_timeout_ms,
            monotonic_ms=lambda: int(asyncio.get_running_loop().time() * 1000),
            wall_ms=wall_clock_ms,
            failed=self.failures.append,
            is_frontend=is_frontend,
            upstream=upstream,
        )
        self.member = asyncio.create_task(self.sharer.group.take_part())
        self.serving = asyncio.create_task(self.sharer.serve())

    def _publish(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def claims(self) -> Mapping[int, int]:
        return self.owned

    async def assign(self, numbers: frozenset[int]) -> None:
        for number in numbers - self.owned.keys():
            self.owned[number] = self.log.claim(number)

    async def release(self, numbers: frozenset[int]) -> None:
        await asyncio.sleep(0.01)  # its last record is being written
        for number in numbers & self.owned.keys():
            del self.owned[number]

    @property
    def owns(self) -> frozenset[int]:
        """The partitions that it owns and no other process has claimed since."""
        return frozenset(number for number, epoch in self.owned.items() if self.log.newest[number] == epoch)

    def why_not_ready(self) -> str | None:
        return self.sharer.not_ready

    def end_of(self, number: int, process: str = "host-1:1") -> OwnershipEnd | None:
        """Why this process lost the partition."""
        return self.sharer.end_of(number, process)

    def told(self, *others: "Process") -> bool:
        """True if its clients are sent to the owner of each partition."""
        nodes = {number: each.cluster.node for each in (self, *others) for number in each.owns}
        return self.cluster.owners == [nodes.get(number) for number in range(PARTITIONS)]

    async def stop(self) -> None:
        """Stop cleanly."""
        await _ended(self.serving)
        await self.sharer.leave()
        await _ended(self.member)
        await self.sharer.peer_watch.close()
        await self.sharer.group.leave()
        await self.link.close()

    async def die(self) -> None:
        await self.sharer.peer_watch.close()
        await _ended(self.serving)
        await _ended(self.member)
        await self.link.close()


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])


async def shared(*processes: Process) -> None:
    """Wait until all partitions are owned, each has its share, and all clients are sent to the owners."""

    def so() -> bool:
        shares = [each.owns for each in processes]
        even = {len(share) for share in shares} == {PARTITIONS // len(processes)}
        reported = all(each.told(*processes) for each in processes)
        return even and frozenset().union(*shares) == ALL and reported

    await until(so, lambda: [(each.owned, each.cluster.owners, each.sharer.not_ready) for each in processes])
    assert [each.failures for each in processes] == [[]] * len(processes)


@pytest.fixture
def bootstrap(coordinator: MusterProcess) -> str:
    return coordinator.bootstrap


async def test_processes_come_and_go(bootstrap: str) -> None:
    """A second one gets half, after the first has released it; a process that stops cleanly hands over at once."""
    log = Log()
    first = Process(log, bootstrap, 1)
    assert first.why_not_ready() == "the processes of the event log are sharing its partitions"
    await shared(first)
    assert first.why_not_ready() is None
    kept = dict(first.owned)
    second = Process(log, bootstrap, 2)
    await shared(first, second)
    assert first.owned.items() < kept.items()
    assert [node.node_id for node in first.cluster.nodes] == [1, 2]
    assert first.cluster.controller == second.cluster.controller == first.cluster.node
    group = next(each for n in range(99) if partition_for(each := GroupId(f"g{n}"), PARTITIONS) in second.owns)
    assert first.cluster.coordinator_of(group) == second.cluster.node
    stopping = asyncio.create_task(first.stop())
    await shared(second)
    await until(lambda: first.cluster.owners == [second.cluster.node] * PARTITIONS)  # its clients are redirected
    assert first.cluster.nodes == [second.cluster.node]
    assert not any(first.cluster.leads(number) for number in range(PARTITIONS))
    assert not stopping.done()
    assert first.why_not_ready() == "stopping"
    await stopping
    await second.stop()


async def test_the_partitions_of_a_dead_one_are_taken_over(bootstrap: str) -> None:
    """When its session has expired; the other one keeps its own."""
    log = Log()
    first, second = Process(log, bootstrap, 1), Process(log, bootstrap, 2)
    await shared(first, second)
    kept = dict(second.owned)
    await first.die()
    await shared(second)
    assert kept.items() < second.owned.items()
    taken = (second.owned.keys() - kept).pop()
    assert second.end_of(taken, "host-1:1") == OwnershipEnd(cause=OwnershipEndCause.NO_MEMBER)
    assert second.end_of(taken, "host-3:1") is None
    await second.die()


def seats(process: Process) -> dict[int, str]:
    """The member ids that the process knows, by node id."""
    assert process.sharer._newest is not None
    return {node_id: member.member_id for node_id, member in process.sharer._newest.members.items()}


def removals(logged: list[EventDict]) -> list[tuple[int, str]]:
    return [(each["node_id"], each["then"]) for each in logged if each["event"] == "peer process ended"]


async def test_a_process_whose_address_refuses_connections_is_removed(bootstrap: str) -> None:
    """The others had a connection to it, and do not wait for its session to expire."""
    log = Log()
    async with listening() as address:
        with capture_logs() as logged:
            first = Process(log, bootstrap, 1, host="127.0.0.1", port=address.port)
            second = Process(log, bootstrap, 2)
            await shared(first, second)
            await until(lambda: address.connections == 1)
            await first.die()
            address.end()
            await shared(second)
        assert removals(logged) == [(1, "removed from the ownership group")]
    await second.die()


async def test_all_processes_learn_the_ended_process_and_its_remover(bootstrap: str) -> None:
    """The process that takes over its partitions knows, even if another one saw it."""
    log = Log()
    async with listening() as address:
        first = Process(log, bootstrap, 1, host="127.0.0.1", port=address.port)
        others = [Process(log, bootstrap, node_id) for node_id in (2, 3, 4)]
        await shared(first, *others)
        await until(lambda: address.connections == 3)
        (had,) = first.owns
        began_ms = wall_clock_ms()
        for each in others[1:]:
            await each.sharer.peer_watch.close()  # they see nothing
        await first.die()
        address.end()
        await until(lambda: frozenset().union(*(each.owns for each in others)) == ALL)
        await until(
            lambda: all((end := each.end_of(had)) is not None and end.removed_by == "host-2:1" for each in others),
            lambda: [each.end_of(had) for each in others],
        )
        (end,) = {each.end_of(had) for each in others}
    assert end is not None
    assert end.cause is OwnershipEndCause.GONE
    assert end.link_lost_ms is not None
    assert end.refused_ms is not None
    assert began_ms <= end.link_lost_ms <= end.refused_ms <= wall_clock_ms()
    await until(lambda: all(each.sharer._former_members.unreported == () for each in others))
    for each in others:
        await each.die()


async def test_a_process_wrongly_taken_for_ended_gets_its_share_again(bootstrap: str) -> None:
    """Its address refused connections for a short time while it was running."""
    log = Log()
    async with listening() as address:
        with capture_logs() as logged:
            first = Process(log, bootstrap, 1, host="127.0.0.1", port=address.port)
            second = Process(log, bootstrap, 2)
            await shared(first, second)
            await until(lambda: address.connections == 1)
            former = first.sharer.group.member_id
            address.end()
            await until(lambda: first.sharer.group.member_id not in {"", former})
            await shared(first, second)
        assert removals(logged) == [(1, "removed from the ownership group")]
    await first.die()
    await second.die()


async def test_a_restarted_process_is_not_removed(bootstrap: str) -> None:
    """It has another member id, and the others are informed."""
    log = Log()
    first, second = Process(log, bootstrap, 1), Process(log, bootstrap, 2)
    await shared(first, second)
    node, former = (
        first.cluster.node,
        MemberIdentity(member_id=first.sharer.group.member_id, group_instance_id="muster-1"),
    )
    await first.die()
    again = Process(log, bootstrap, 1)
    await until(lambda: again.sharer.group.member_id)
    with capture_logs() as logged:
        await second.sharer.group.remove(Peer(node=node, member=former))
    assert removals(logged) == [
        (1, "it was restarted, or another process has its node id: that one stays in the ownership group")
    ]
    await shared(again, second)
    await until(lambda: seats(second) == {1: again.sharer.group.member_id, 2: second.sharer.group.member_id})
    await again.die()
    await second.die()


async def test_a_process_that_returns_within_its_session_owns_the_same_partitions(bootstrap: str) -> None:
    """At another address, and the others are informed."""
    log = Log()
    first, second = Process(log, bootstrap, 1), Process(log, bootstrap, 2)
    await shared(first, second)
    had, kept = first.owns, dict(second.owned)
    await first.die()
    again = Process(log, bootstrap, 1, process="host-1:2", port=9999)
    await until(lambda: not second.sharer.group._is_to_join_again and again.owns == had)
    await shared(again, second)
    assert again.owns == had
    assert second.owned == kept
    (own,) = {again.end_of(number, "host-1:1") for number in had}
    assert own == OwnershipEnd(cause=OwnershipEndCause.REPLACED)
    assert again.cluster.node in second.cluster.nodes
    await again.die()
    await second.die()


async def test_a_forwarding_process_knows_the_owners_and_owns_nothing(bootstrap: str) -> None:
    """Even if it is the first; it watches no process, and no partition moves when it leaves."""
    log = Log()
    frontend = Process(log, bootstrap, 9, is_frontend=True)
    await until(lambda: frontend.why_not_ready() is None)
    assert frontend.cluster.owners == [None] * PARTITIONS
    first, second = Process(log, bootstrap, 1), Process(log, bootstrap, 2)
    await shared(first, second)
    await until(lambda: frontend.told(first, second))
    assert frontend.owned == {}
    assert [node.node_id for node in first.cluster.nodes] == [1, 2]
    assert frontend.sharer.peer_watch.states() == []
    assert len(first.sharer.peer_watch.states()) == 1
    owned = dict(first.owned), dict(second.owned)
    await frontend.stop()
    await shared(first, second)
    assert (first.owned, second.owned) == owned
    await first.die()
    await second.die()


async def test_a_process_that_expects_a_rebalance_joins_at_once() -> None:
    """Its next heartbeat would be in a minute and a half, and the others would wait for it."""
    log = Log()
    with running_muster(log="memory:", config=TEST_CONFIG) as coordinator:
        frontend = Process(log, coordinator.bootstrap, 9, is_frontend=True, session_timeout_ms=1_800_000)
        await until(lambda: frontend.why_not_ready() is None)
        first = Process(log, coordinator.bootstrap, 1)
        frontend.sharer.group.expect_rebalance()
        await until(lambda: frontend.told(first))
        await first.die()
        await frontend.die()


async def test_a_deposed_process_rejoins(bootstrap: str) -> None:
    """It gets the partition again, since no group member has it."""
    log = Log()
    only = Process(log, bootstrap, 1)
    await shared(only)
    log.claim(2)  # by a process that does not share
    del only.owned[2]
    only.sharer.deposed(2)
    await shared(only)
    await only.die()


async def test_a_lone_process_stops_at_once(bootstrap: str) -> None:
    """There is no process that clients could be sent to."""
    only = Process(Log(), bootstrap, 1)
    await shared(only)
    began_s = asyncio.get_running_loop().time()
    await only.stop()
    assert asyncio.get_running_loop().time() - began_s < CLIENTS_REDIRECTED_S


async def test_without_the_coordinator_nothing_changes(coordinator: MusterProcess) -> None:
    """The log has the reason, and sharing resumes when it is back, even if it has forgotten the group."""
    log = Log()
    first, second = Process(log, coordinator.bootstrap, 1), Process(log, coordinator.bootstrap, 2)
    await shared(first, second)
    owned = dict(first.owned), dict(second.owned)
    coordinator.kill()
    await until(lambda: first.sharer.group.trouble is not None)
    await until(lambda: second.sharer.group.trouble is not None)
    assert (first.owned, second.owned) == owned
    coordinator.start()
    await until(lambda: first.sharer.group.trouble is None and second.sharer.group.trouble is None)
    await shared(first, second)
    await first.die()
    await second.die()


async def test_a_process_that_cannot_join_yet_is_not_ready(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the first start in a cluster, whose brokers have no coordinator for a new group in the first second."""

    async def unavailable(*_: object, **__: object) -> None:
        raise TryAgain("who coordinates group owners: COORDINATOR_NOT_AVAILABLE")

    only = Process(Log(), bootstrap, 1)
    with capture_logs() as logged:
        with monkeypatch.context() as patched:
            patched.setattr(only.link, "ask_coordinator", unavailable)
            await until(lambda: only.sharer.group.trouble is not None)
        await until(lambda: only.sharer.group.trouble is None)
    lines = [line["event"] for line in logged if line.get("group_id") == "owners"]
    assert lines == [CANNOT_JOIN, "in the ownership group now"]
    await only.die()


async def test_a_process_without_read_permission_serves_on_and_logs_what_is_missing(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ACL was removed, and is restored: nothing changes in between. However often that happens, there are two log
    lines.
    """
    log = Log()
    only = Process(log, bootstrap, 1)
    await shared(only)
    owned = dict(only.owned)

    async def refused(*_: object, **__: object) -> None:
        raise UpstreamRefused(
            "who coordinates group owners: GROUP_AUTHORIZATION_FAILED", ErrorCode.group_authorization_failed
        )

    with capture_logs() as logged:
        for _ in range(2):
            with monkeypatch.context() as patched:
                patched.setattr(only.link, "ask_coordinator", refused)
                await until(lambda: only.sharer.group.trouble is not None)
            await until(lambda: only.sharer.group.trouble is None)
    lacks, again = logged
    assert "lacks the ACL Allow READ on group owners" in lacks["error"]
    assert lacks["event"] == CANNOT_REJOIN
    assert again["event"] == "in the ownership group now"
    assert only.owned == owned
    assert not only.member.done()
    await only.die()


async def test_a_second_process_of_one_node_id_ends_the_first(bootstrap: str) -> None:
    log = Log()
    first = Process(log, bootstrap, 1)
    await shared(first)
    second = Process(log, bootstrap, 1)
    with pytest.raises(LogMismatch, match="give each process of a log its own --node-id"):
        await first.member
    await shared(second)
    await first.die()
    await second.die()


async def test_a_process_of_another_log_is_refused(bootstrap: str) -> None:
    """A process of another log, and a client that joined the group first."""
    log = Log()
    first = Process(log, bootstrap, 1)
    await shared(first)
    other = Process(Log(), bootstrap, 2, protocol="log-2")
    with pytest.raises(LogMismatch, match="a foreign client is in consumer group owners"):
        await other.member
    assert first.owns == ALL
    await other.die()
    await first.die()


OF_ANOTHER_LEVEL: Final = b'{"level":2}'


class ForeignMember:
    """A member of the ownership group that is no process of this version, controlled by a test."""

    def __init__(self, connection: Connection, metadata: bytes, instance: str | None, protocol: str) -> None:
        self._connection = connection
        self._who = {"group_id": OWNERS, "group_instance_id": instance}
        self._protocols = [{"name": protocol, "metadata": metadata}]
        self.member_id = ""

    @classmethod
    async def at(
        cls, bootstrap: str, metadata: bytes, *, instance: str | None = "muster-0", protocol: str = "log-1"
    ) -> "ForeignMember":
        return cls(await Connection.open(bootstrap), metadata, instance, protocol)

    async def join(self) -> Fields:
        """Join until admitted; return the response."""
        while True:
            answer = await self._connection.ask(
                "JoinGroup",
                9,
                **self._who,
                session_timeout=ms(SESSION_MS),
                rebalance_timeout=ms(SESSION_MS),
                member_id=self.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=self._protocols,
            )
            self.member_id = answer["member_id"]
            if answer["error_code"] == 0:
                return answer

    async def sync(self, joined: Fields, decided: bytes = b"") -> bytes:
        """Return the assignment decided by the leader; as leader decide this for all."""
        is_leader = joined["leader"] == self.member_id
        assignments = [{"member_id": each["member_id"], "assignment": decided} for each in joined["members"]]
        answer = await self._connection.ask(
            "SyncGroup",
            5,
            **self._who,
            generation_id=joined["generation_id"],
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocols[0]["name"],
            assignments=assignments if is_leader else [],
        )
        assert answer["error_code"] == 0, answer
        assigned: bytes = answer["assignment"]
        return assigned

    async def take_part(self, decided: bytes = OF_ANOTHER_LEVEL) -> None:
        """Be a member for ever; as leader decide this."""
        while True:
            joined = await self.join()
            await self.sync(joined, decided)
            generation = {"generation_id": joined["generation_id"], "member_id": self.member_id}
            error = 0
            while error == 0:
                answer = await self._connection.ask("Heartbeat", 4, **self._who, **generation)
                error = answer["error_code"]
                await asyncio.sleep(0.02)

    async def leave(self) -> None:
        member = {"member_id": self.member_id, "group_instance_id": self._who["group_instance_id"], "reason": ""}
        await self._connection.ask("LeaveGroup", 5, group_id=OWNERS, members=[member])
        self._connection.close()


@pytest.mark.parametrize(
    ("metadata", "instance"),
    [
        (b"\x00\x01\x00\x00", "muster-0"),
        (OF_ANOTHER_LEVEL, "muster-0"),
        (encode(Candidate(node=Node(node_id=1, host="h", port=1), owned={0: 10**9})), None),
    ],
)
async def test_a_member_that_is_not_understood_gets_nothing(
    bootstrap: str, metadata: bytes, instance: str | None
) -> None:
    """A foreign client, a newer version, or a process that claims another node id: the others continue to share."""
    log = Log()
    first = Process(log, bootstrap, 1)
    await shared(first)
    stranger = await ForeignMember.at(bootstrap, metadata, instance=instance)
    with capture_logs() as logged:
        joined = await stranger.join()
        reported = sharing_of(await stranger.sync(joined))
    assert (set(reported.owners.values()), set(reported.members)) == ({1}, {1})
    warned = [(each["member"], each["way_out"]) for each in logged if each["log_level"] == "warning"]
    if metadata == OF_ANOTHER_LEVEL:
        way_out = "end the deployment that was left half done: processes of a log need versions that know each other"
    else:
        way_out = f"it is not a process of this log: stop it, or give it another group.id; {DESCRIBE_HINT}"
    assert warned == [(stranger.member_id, way_out)]
    staying = asyncio.create_task(stranger.take_part())
    second = Process(log, bootstrap, 2)
    await shared(first, second)
    await _ended(staying)
    await stranger.leave()
    await first.die()
    await second.die()


async def test_a_process_of_another_level_than_the_others_ends(bootstrap: str) -> None:
    """It cannot know which partitions are its own."""
    newer = await ForeignMember.at(bootstrap, OF_ANOTHER_LEVEL)
    await newer.join()
    leading = asyncio.create_task(newer.take_part())
    only = Process(Log(), bootstrap, 1)
    with pytest.raises(LogMismatch, match="a message of level 2; this version of Muster knows level 1"):
        await only.member
    await _ended(leading)
    await newer.leave()
    await only.die()


@pytest.mark.parametrize("is_frontend", [False, True])
async def test_a_process_in_front_of_another_cluster_than_the_others_ends(bootstrap: str, is_frontend: bool) -> None:
    """Groups of the same names are different groups there: it would own theirs, and they its own."""
    log = Log()
    first = Process(log, bootstrap, 1, upstream="one")
    await shared(first)
    with capture_logs() as logged:
        other = Process(log, bootstrap, 2, upstream="two", is_frontend=is_frontend)
        with pytest.raises(
            LogMismatch, match="is in front of cluster one, this one in front of two: give both the same"
        ):
            await other.member
    assert other.owned == {}
    warned = [each["error"] for each in logged if each["log_level"] == "warning"]
    assert [error.partition(": ")[0] for error in warned] == [
        "another process of this event log is in front of cluster two, this one in front of one"
    ]
    await other.sharer.group.leave()
    await other.die()
    second = Process(log, bootstrap, 3, upstream="one")
    await shared(first, second)
    await first.die()
    await second.die()


async def test_decisions_of_a_foreign_leader_change_nothing(bootstrap: str) -> None:
    """If it leads the group that is logged, and waiting processes get their share when it has left."""
    stranger = await ForeignMember.at(bootstrap, b"")
    await stranger.join()
    leading = asyncio.create_task(stranger.take_part(b""))
    only = Process(Log(), bootstrap, 1)
    await until(lambda: f"member {stranger.member_id} leads consumer group owners" in str(only.why_not_ready()))
    assert f"What helps: it is not a process of this log: stop it, or give it another group.id; {DESCRIBE_HINT}" in (
        str(only.why_not_ready())
    )
    assert only.owned == {}
    await _ended(leading)
    await stranger.leave()
    await shared(only)
    assert only.sharer.group.trouble is None
    await only.die()


@pytest.mark.parametrize(
    ("protocol", "trouble"),
    [("log-1", "a message of level 2"), ("log-2", "a foreign client is in consumer group owners")],
)
async def test_a_former_member_serves_on_while_others_have_the_group(
    coordinator: MusterProcess, monkeypatch: pytest.MonkeyPatch, protocol: str, trouble: str
) -> None:
    """It was out of the group for a moment, as after a pause longer than its session."""
    only = Process(Log(), coordinator.bootstrap, 1)
    await shared(only)
    owned = dict(only.owned)

    async def away(*_: object, **__: object) -> None:
        raise TryAgain("away")

    with monkeypatch.context() as patched:
        patched.setattr(only.link, "ask_coordinator", away)
        await until(lambda: only.sharer.group.trouble is not None)
        coordinator.kill()
        coordinator.start()
        other = await ForeignMember.at(coordinator.bootstrap, OF_ANOTHER_LEVEL, protocol=protocol)
        await other.join()
    leading = asyncio.create_task(other.take_part())
    await until(lambda: trouble in str(only.sharer.group.trouble), lambda: only.sharer.group.trouble)
    assert (only.owned, only.member.done()) == (owned, False)
    await _ended(leading)
    await other.leave()
    await until(lambda: only.sharer.group.trouble is None)
    assert only.owned == owned
    await only.die()


async def test_a_session_that_the_brokers_do_not_allow_is_named(bootstrap: str) -> None:
    """With the config to change."""
    only = Process(Log(), bootstrap, 1, session_timeout_ms=20_000)
    with pytest.raises(LogMismatch, match="change --owner-session-timeout-ms"):
        await only.member
    await only.die()
