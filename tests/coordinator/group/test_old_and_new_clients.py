"""Clients of different versions in one group: from dynamic to static and back, old leaders, order by member id."""

import random
import uuid
from collections.abc import Iterable, Sequence

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.events.causes import Cause
from muster.events.events import AnyEvent, MemberRemoved, RebalanceStarted, StaticMemberReplaced
from muster.events.ids import MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import DELAY_MS, Harness, story

PARTITIONS = 12


def rebalances(events: Iterable[AnyEvent]) -> int:
    return sum(isinstance(event, RebalanceStarted) for event in events)


def settle(h: Harness, clients: Sequence[Client]) -> None:
    """All clients do what their responses ask for until the group is stable: unless a response is pending, rejoin and
    sync.
    """
    for _ in range(3):
        for client in clients:
            if h.state is GroupState.PREPARING_REBALANCE and not (client.last_join and client.last_join.parked):
                client.enter()
        if h.state is GroupState.COMPLETING_REBALANCE:
            h.sync_all(*clients)
    assert h.live.state is GroupState.STABLE


# ---- from dynamic to static, and back ------------------------------------------------------------


def test_upgrade_from_dynamic_to_static_members_one_by_one() -> None:
    """Each dynamic process leaves and comes back with an instance id; its later restarts are absorbed."""
    h = Harness()
    clients = list(h.stable_group(*(h.dynamic(f"app-{n}") for n in range(3))))
    for number in range(3):
        before = h.live.generation_id
        clients[number].leave()
        clients[number] = h.static(f"{number}")
        clients[number].enter()
        settle(h, clients)
        assert h.live.generation_id - before <= 2
        assert len(h.live.members) == 3
        assert set(h.live.instances) == {f"{n}" for n in range(number + 1)}
        # The static members of the mixed group restart without a rebalance, too.
        again = clients[number].restarted()
        assert story(again.join().events)[0] == (StaticMemberReplaced, Cause.STATIC_RESTART_ABSORBED)
        clients[number] = again
        assert again.sync().error is ErrorCode.none
        assert h.state is GroupState.STABLE
    generation_id = h.live.generation_id
    for client in clients:
        assert client.restarted().join().outcome.generation_id == generation_id


def test_upgrade_of_a_process_that_ends_without_leaving() -> None:
    """A killed dynamic member expires beside the static one that took its work; no other member is affected."""
    h = Harness()
    a, b = h.stable_group(h.dynamic("a"), h.dynamic("b"))
    new = h.static("b")
    new.enter()
    a.enter()
    h.sleep(10_000)  # b's session ends; the join phase was only waiting for b
    h.sync_all(a, new)
    assert h.state is GroupState.STABLE
    assert h.live.members.keys() == {a.member_id, new.member_id}
    assert b.heartbeat().error is ErrorCode.unknown_member_id


def test_from_static_back_to_dynamic_by_leave_group() -> None:
    """The static process ends but stays a member until an administrator removes it; the dynamic one is a new member."""
    h = Harness()
    clients = list(h.stable_group(*(h.static(f"{n}", session_timeout_ms=600_000) for n in range(3))))
    for number in range(3):
        seen = len(h.events)
        clients[number] = h.dynamic(f"app-{number}", session_timeout_ms=600_000)
        clients[number].enter()
        (left,) = h.leave_instance(f"{number}").outcome.members
        assert left.error is ErrorCode.none
        settle(h, clients)
        assert rebalances(h.events[seen:]) <= 2
        assert len(h.live.members) == 3
    assert not h.live.instances
    removed = [event for event in h.events if isinstance(event, MemberRemoved)]
    assert [event.why.cause for event in removed] == [Cause.MEMBER_REMOVED_BY_ADMIN] * 3
    # No leftover static member can expire, and a dynamic member's restart is a rebalance again.
    generation_id = h.live.generation_id
    for _ in range(3):
        h.sleep(500_000)
        assert {client.heartbeat().error for client in clients} == {ErrorCode.none}
    assert h.live.generation_id == generation_id
    clients[0].leave()
    assert h.live.state is GroupState.PREPARING_REBALANCE


def test_a_running_process_that_drops_its_instance_id_stays_the_static_member() -> None:
    """M5: a request with the member id need not name the instance; the group treats it as before."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    instance, b.instance = b.instance, None
    assert b.heartbeat().error is ErrorCode.none
    assert b.commit().error is ErrorCode.none
    h.rejoin_all(a, b)
    assert h.live.instances[instance] == b.member_id  # type: ignore[index]
    b.instance = instance
    assert b.restarted().join().outcome.generation_id == h.live.generation_id


# ---- clients below JoinGroup v5 ------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_old_leader_of_static_members(version: int) -> None:
    """KAFKA-14422: its response has all members and it assigns by member id; static restarts are absorbed while it
    leads.
    """
    h = Harness()
    old = h.dynamic("old", version=version)
    a, b = h.static("a"), h.static("b")
    h.stable_group(old, a, b)
    assert old.is_leader
    assert old.joined is not None
    assert {member.member_id for member in old.joined.members} == h.live.members.keys()
    assert a.assignment == f"{a.member_id}@1".encode()
    new = a.restarted()
    reported = new.join().outcome
    assert (reported.generation_id, reported.leader_id, reported.members) == (1, old.member_id, ())
    assert new.sync().outcome.assignment == a.assignment
    again = old.join()  # its topics changed: the leader's rejoin rebalances, and it leads the new ids
    new.join()
    b.join()
    assert {member.member_id for member in again.outcome.members} == {old.member_id, new.member_id, b.member_id}
    h.sync_all(old, new, b)
    assert new.assignment == f"{new.member_id}@2".encode()


@pytest.mark.parametrize("version", range(5))
def test_old_follower_of_a_static_leader(version: int) -> None:
    """It joins, syncs, commits and leaves without an instance id; the static leader's restart does not affect it."""
    h = Harness()
    a, old = h.stable_group(h.static("a"), h.dynamic("old", version=version))
    assert a.is_leader
    new = a.restarted()
    assert new.join().outcome.skip_assignment
    assert old.heartbeat().error is ErrorCode.none
    assert old.commit().error is ErrorCode.none
    assert old.sync().outcome.assignment == old.assignment
    assert old.leave().outcome.members[0].error is ErrorCode.none
    new.join()
    h.sync_all(new)
    assert set(h.live.instances) == {"a"}
    assert h.state is GroupState.STABLE


def test_an_old_leader_that_is_gone_leaves_the_group_to_static_members() -> None:
    """It expires like any dynamic member, and a client that supports instance ids leads."""
    h = Harness()
    old, a, b = h.stable_group(h.dynamic("old", version=3), h.static("a"), h.static("b"))
    h.sleep(9_000)
    for client in (a, b):
        client.heartbeat()
    h.sleep(1_000)
    assert old.member_id not in h.live.members
    h.rejoin_all(a, b)
    assert h.live.leader_id in (a.member_id, b.member_id)


# ---- order by member id --------------------------------------------------------------------------


def real_id(instance: str | None, client_id: str = "app") -> MemberId:
    """A member id as the wire layer proposes it: `<instance id or client id>-<uuid>` (M1)."""
    return MemberId(f"{client_id if instance is None else instance}-{uuid.uuid4()}")


def range_assignor(reported: JoinGroupOutcome) -> dict[MemberId, list[int]]:
    """Neighbouring partitions in the order of the member ids, as a client without instance ids does."""
    members = sorted(member.member_id for member in reported.members)
    share, more = divmod(PARTITIONS, len(members))
    starts = [number * share + min(number, more) for number in range(len(members) + 1)]
    return {member: list(range(*starts[n : n + 2])) for n, member in enumerate(members)}


def roundrobin_assignor(reported: JoinGroupOutcome) -> dict[MemberId, list[int]]:
    """One partition after another, in the order of the member ids."""
    members = sorted(member.member_id for member in reported.members)
    return {member: list(range(n, PARTITIONS, len(members))) for n, member in enumerate(members)}


def computed(h: Harness, clients: Sequence[Client], assignor: object) -> dict[str, list[int]]:
    """A rebalance requested by the leader, and its assignment to each instance."""
    leader = next(client for client in clients if client.member_id == h.live.leader_id)
    leader.join()
    for client in clients:
        if client is not leader:
            client.join()
    assert leader.joined is not None
    shares = assignor(leader.joined)  # type: ignore[operator]
    h.sync_all(*clients)
    return {str(h.live.members[member_id].group_instance_id): share for member_id, share in shares.items()}


INSTANCES: dict[str, Sequence[str]] = {
    "plain": ("a", "b", "c", "d"),
    "numbered": tuple(f"till-{n}" for n in range(1, 13)),
    "streams": tuple(f"shop-{process}-{thread}" for process in "ab" for thread in range(1, 6)),
}


@pytest.mark.parametrize("assignor", [range_assignor, roundrobin_assignor])
@pytest.mark.parametrize("names", INSTANCES.values(), ids=INSTANCES.keys())
def test_restarts_do_not_change_the_assignments(names: Sequence[str], assignor: object) -> None:
    """A member id begins with the instance id, so sorting by member id keeps the order of the instances."""
    h = Harness()
    clients = [h.static(name) for name in names]
    for client in clients:
        client.join(proposed_member_id=real_id(client.instance))
    h.sleep(2 * DELAY_MS)
    h.sync_all(*clients)
    before = computed(h, clients, assignor)
    assert before.keys() == set(names)
    for _ in range(5):
        for number in random.Random(7).sample(range(len(names)), len(names)):
            new = clients[number].restarted()
            reported = new.join(proposed_member_id=real_id(new.instance)).outcome
            assert reported.member_id.startswith(f"{new.instance}-")
            assert reported.generation_id == h.live.generation_id
            clients[number] = new
        assert computed(h, clients, assignor) == before


def test_dynamic_members_among_static_ones_keep_their_place_by_client_id() -> None:
    """If its client id sorts the same, a dynamic member that restarts changes no other member's share."""
    h = Harness()
    clients = [h.static("a"), h.static("m"), h.dynamic("x")]
    for client in clients:
        client.enter(proposed_member_id=real_id(client.instance, client.name))
    h.sleep(2 * DELAY_MS)
    h.sync_all(*clients)
    before = computed(h, clients, range_assignor)
    clients[2].leave()
    clients[2] = h.dynamic("x")
    clients[2].enter(proposed_member_id=real_id(None, "x"))
    for client in clients[:2]:
        client.join()
    h.sync_all(*clients)
    assert computed(h, clients, range_assignor) == before


# ---- Kafka Streams -------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 12])
def test_streams_threads_are_members_of_their_own(threads: int) -> None:
    """Each thread has the process's instance id with a number appended, and its own client id: when one of two
    processes is restarted each of its threads gets its own place back, `-1` never that of `-11`.
    """
    h = Harness()

    def thread(process: str, number: int) -> Client:
        client = h.static(f"{process}-{number}", protocol_type="consumer")
        client.name = f"shop-{process}-StreamThread-{number}-consumer"
        return client

    processes = {name: [thread(name, number) for number in range(1, threads + 1)] for name in ("pod-1", "pod-11")}
    everybody = [client for threads_of in processes.values() for client in threads_of]
    h.stable_group(*everybody)
    shares = {client.instance: client.assignment for client in everybody}
    for name, restarted in processes.items():
        for number, old in enumerate(restarted, start=1):
            new = thread(name, number)
            call = new.join()
            (replaced,) = [event for event in call.events if isinstance(event, StaticMemberReplaced)]
            assert replaced.replaced_member_id == old.member_id
            assert replaced.replaced_client_id == new.name == f"shop-{name}-StreamThread-{number}-consumer"
            assert new.sync().outcome.assignment == shares[new.instance]
            assert old.heartbeat().error is ErrorCode.fenced_instance_id
    assert (h.state, h.live.generation_id) == (GroupState.STABLE, 1)
    assert len(h.live.members) == 2 * threads
