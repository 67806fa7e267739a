"""The limit of waiting joins and syncs per client: excess ones have to retry, and no other client is affected."""

import asyncio
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, Caller, Heartbeat, JoinGroup, SyncGroup
from muster.coordinator.group.configs import EXPANSION_DELAY, LEARNER_TIMEOUT
from muster.coordinator.group.outcomes import HeartbeatOutcome, JoinGroupOutcome, Outcome, Superseded, SyncGroupOutcome
from muster.coordinator.load.quotas import Quota
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.principals import ANONYMOUS
from muster.coordinator.runtime.partition.waiting_limit import WaitingLimit, WaitingQuota
from muster.events.ids import GroupId, MemberId
from muster.events.log.memory import MemoryStorage
from tests.coordinator.kio_client import Exchange
from tests.coordinator.runtime.partition.test_repair import alter
from tests.coordinator.scripted import ScriptedGroups, new_service
from tests.coordinator.wire.test_membership import JOIN, SYNC
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

JOINED = JoinGroupOutcome(member_id=MemberId("m"), generation_id=1)


def parks(command: AnyRequest) -> Outcome | None:
    return HeartbeatOutcome(error=ErrorCode.none) if isinstance(command, Heartbeat) else None


class LimitedGroups:
    """A layer with a limit of two, and its requests."""

    def __init__(self) -> None:
        self.groups = ScriptedGroups(parks)
        self.metrics = ServerMetrics({})
        self.waiting_quota = WaitingQuota(each_max=2, metrics=self.metrics)
        self.limited = WaitingLimit(self.groups, self.waiting_quota, lambda command: command.member_id in self.members)
        self.members: set[str] = set()
        self._request_id = 0

    def caller(self, principal: str) -> Caller:
        self._request_id += 1
        return Caller(
            request_id=self._request_id,
            client_id="app",
            client_host="/10.0.0.7",
            principal=principal,
            api_key=11,
            api_version=9,
            arrived_ms=0,
            arrived_wall_ms=0,
        )

    def join(self, member_id: str, *, principal: str = "User:alice", group_id: str = "g") -> list[Outcome]:
        """Return a list that gets the response. The member uses an id that the group has given it."""
        answers: list[Outcome] = []
        command = JoinGroup(
            caller=self.caller(principal),
            group_id=GroupId(group_id),
            member_id=MemberId(member_id),
            group_instance_id=None,
            proposed_member_id=MemberId(f"app-{self._request_id}"),
            protocol_type="consumer",
            protocols=(),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            reason=None,
            requires_known_member_id=False,
            supports_skip_assignment=True,
        )
        self.limited.submit(command, answers.append)
        return answers

    def sync(self, member_id: str) -> list[Outcome]:
        answers: list[Outcome] = []
        command = SyncGroup(
            caller=self.caller("User:alice"),
            group_id=GroupId("g"),
            member_id=MemberId(member_id),
            group_instance_id=None,
            generation_id=1,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(),
        )
        self.limited.submit(command, answers.append)
        return answers


def test_one_principal_has_its_limit_over_all_groups() -> None:
    layer = LimitedGroups()
    first, second = layer.join("a", group_id="one"), layer.join("b", group_id="two")
    refused = layer.join("c", group_id="three")
    assert [outcome.error for outcome in refused if isinstance(outcome, JoinGroupOutcome)] == [
        ErrorCode.coordinator_load_in_progress
    ]
    assert layer.metrics.waiting_refused == 1
    others = layer.join("d", principal="User:bob", group_id="three")
    layer.groups.release(JOINED)
    third = layer.join("c", group_id="three")
    for _ in range(3):
        layer.groups.release(JOINED)
    assert first == second == others == third == [JOINED]


def test_without_authentication_each_group_has_its_limit() -> None:
    layer = LimitedGroups()
    for member_id in "ab":
        assert layer.join(member_id, principal=ANONYMOUS, group_id="one") == []
    assert len(layer.join("c", principal=ANONYMOUS, group_id="one")) == 1
    assert layer.join("c", principal=ANONYMOUS, group_id="two") == []


def test_a_sync_over_the_limit_is_sent_back_to_join() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS is fatal to some clients there (QK8)."""
    layer = LimitedGroups()
    assert [layer.sync(member_id) for member_id in "ab"] == [[], []]
    assert layer.sync("c") == [SyncGroupOutcome(error=ErrorCode.rebalance_in_progress)]


def test_a_repeated_join_waits_once() -> None:
    """The former request is never answered (J13), and its place is freed."""

    async def story() -> None:
        waiting_quota = WaitingQuota(each_max=3, metrics=ServerMetrics({}))
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        limited = WaitingLimit(process.runtime, waiting_quota, process.runtime.is_member)
        joined = await process.stable_group("a", "b")
        process.through(limited)
        superseded: list[asyncio.Future[Any]] = [process.join("a", joined["a"].member_id, metadata=b"other")]
        for _ in range(10):
            superseded.append(process.join("a", joined["a"].member_id, metadata=b"other"))
            await asyncio.sleep(0.001)
        last = process.join("a", joined["a"].member_id, metadata=b"other")
        await asyncio.sleep(0.001)
        assert not last.done()
        assert [await each for each in superseded] == [Superseded()] * len(superseded)
        assert waiting_quota.waiting == 1
        process.join("b", joined["b"].member_id)
        assert (await last).error is ErrorCode.none
        await asyncio.sleep(0.001)
        assert waiting_quota.waiting == 0
        await process.runtime.stop()

    simulate(story())


def test_a_delayed_join_whose_retry_is_answered_at_once_stops_waiting() -> None:
    """Learners were switched on, so the member is admitted without a rebalance."""

    async def story() -> None:
        waiting_quota = WaitingQuota(each_max=9, metrics=ServerMetrics({}))
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        await process.stable_group("a", "b")
        process.through(WaitingLimit(process.runtime, waiting_quota, process.runtime.is_member))
        assert (await alter(process, EXPANSION_DELAY, "60000")).error is ErrorCode.none
        member_id = (await process.join(requires_known_member_id=True)).member_id
        held: asyncio.Future[Any] = process.join(member_id=member_id)
        await asyncio.sleep(0.001)
        assert not held.done()
        assert (await alter(process, LEARNER_TIMEOUT, "60000")).error is ErrorCode.none
        assert (await process.join(member_id=member_id)).error is ErrorCode.none
        assert await held == Superseded()
        assert waiting_quota.waiting == 0
        await process.runtime.stop()

    simulate(story())


def test_a_join_that_is_refused_leaves_the_parked_one_where_it_is() -> None:
    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        joined = await process.stable_group("a", "b")
        parked: asyncio.Future[Any] = process.join("a", joined["a"].member_id, metadata=b"other")
        await asyncio.sleep(0.001)
        refused = await process.join("a", joined["a"].member_id, offers=("of nobody else",))
        assert refused.error is ErrorCode.inconsistent_group_protocol
        process.join("b", joined["b"].member_id)
        assert (await parked).error is ErrorCode.none
        await process.runtime.stop()

    simulate(story())


def test_a_member_is_never_refused() -> None:
    """Its join may be the one that ends the rebalance for which all others wait; it is counted all the same."""
    layer = LimitedGroups()
    layer.members = {"leader", "follower"}
    assert [layer.join(member_id) for member_id in ("a", "leader", "follower")] == [[], [], []]
    assert layer.sync("leader") == []
    assert (layer.waiting_quota.waiting, len(layer.join("b"))) == (4, 1)


def test_the_join_that_ends_a_rebalance_is_not_refused() -> None:
    """Nor is a static member's restart."""

    async def story() -> None:
        waiting_quota = WaitingQuota(each_max=2, metrics=ServerMetrics({}))
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        joined = await process.stable_group("a", "b")
        process.through(WaitingLimit(process.runtime, waiting_quota, process.runtime.is_member))
        newcomers = [process.join(name) for name in "cd"]
        await asyncio.sleep(0.001)
        assert waiting_quota.waiting == 2
        assert (await process.join("e")).error is ErrorCode.coordinator_load_in_progress
        restarted = process.join("a")
        await asyncio.sleep(0.001)
        rejoined = process.join("b", joined["b"].member_id)
        for each in (*newcomers, restarted, rejoined):
            assert (await each).error is ErrorCode.none
        assert waiting_quota.waiting == 0
        await process.runtime.stop()

    simulate(story())


@pytest.mark.parametrize("name", ["JoinGroup", "SyncGroup"])
def test_a_client_that_has_gone_keeps_no_place(name: str) -> None:
    """Although its request is parked until its group is complete."""
    layer = LimitedGroups()
    service = msgspec.structs.replace(new_service(layer.groups), groups=layer.limited, gone=layer.waiting_quota.release)
    form = JOIN if name == "JoinGroup" else SYNC
    exchanges = [Exchange(service, name, 5, **form) for _ in range(2)]
    assert layer.waiting_quota.waiting == 2
    for exchange in exchanges:
        assert exchange.cancel is not None
        exchange.cancel()
    assert layer.waiting_quota.waiting == 0
    for _ in exchanges:
        layer.groups.release(JOINED if name == "JoinGroup" else SyncGroupOutcome(error=ErrorCode.none))
    assert layer.waiting_quota.waiting == 0


def test_a_refused_join_does_not_take_a_waiting_place() -> None:
    """Otherwise one member's name would let any number of requests wait."""
    layer = LimitedGroups()
    assert layer.join("a") == []
    layer.groups.outcome = lambda _: JOINED
    assert layer.join("a") == [JOINED]
    layer.groups.outcome = parks
    assert layer.join("b") == []
    assert len(layer.join("c")) == 1


def test_heartbeats_never_wait_for_a_place() -> None:
    layer = LimitedGroups()
    for member_id in "ab":
        layer.join(member_id)
    answers: list[Outcome] = []
    heartbeat = Heartbeat(
        caller=layer.caller("User:alice"),
        group_id=GroupId("g"),
        member_id=MemberId("a"),
        group_instance_id=None,
        generation_id=1,
    )
    layer.limited.submit(heartbeat, answers.append)
    assert answers == [HeartbeatOutcome(error=ErrorCode.none)]


def test_a_limit_reached_repeatedly_is_logged_once() -> None:
    reported: list[str] = []
    quota = Quota[str](20, reported.append)
    for _ in range(100):
        while quota.acquire("alice"):
            pass
        quota.release("alice")
    assert reported == ["alice"]
    for _ in range(5):
        quota.release("alice")
    while quota.acquire("alice"):
        pass
    assert reported == ["alice", "alice"]
