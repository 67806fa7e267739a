"""A slow log harms no member: members survive stalls of any length, at each step; in virtual time.

The log stalls at every append that has an event of a certain type, during the whole life of a group: it forms, grows,
restarts, shrinks, is configured and commits. A member that keeps sending requests, one at a time like a client, stays.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AlterGroupConfig, AnyCommand, ConfigChange, ConfigOperation, ExpireSession
from muster.coordinator.group.decide import Decision, decide
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.runtime.partition import command_processor
from muster.events.avro.codec import decode
from muster.events.causes import Cause
from muster.events.events import (
    AnyRecordedEvent,
    CoordinatorPaused,
    GroupConfigured,
    GroupCreated,
    GroupStabilized,
    JoinPhaseCompleted,
    MemberAssigned,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    RebalanceStarted,
    StaticMemberReplaced,
)
from muster.events.log.base import AppendRefused
from muster.events.log.memory import MemoryStorage
from muster.events.records import Transition
from muster.events.state import Group, GroupState
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate

SESSION_S = 6.0
REJOIN_S = 12.0
BEAT_S = SESSION_S / 3
STALLS = (0.3, 0.99, 1.0, 1.01, 2.0, 3.0)
"""In multiples of the session."""

BLAMED = {Cause.SESSION_EXPIRED, Cause.SYNC_TIMED_OUT, Cause.NOT_REJOINED, Cause.FIRST_JOIN_TIMED_OUT}
AGAIN = {ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation}


class StallingOffsets(MemoryOffsetStore):
    """Each write takes this long."""

    stall_s = 0.0

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        await asyncio.sleep(self.stall_s)
        return await super().write(changes)


class Client:
    """A client with one request at a time, and a heartbeat every third of its session."""

    def __init__(self, process: SimulatedProcess, instance: str | None) -> None:
        self.instance = instance
        self.joined: JoinGroupOutcome | None = None
        self.refused: list[ErrorCode] = []
        self._process = process
        self._is_stopped = asyncio.Event()
        self._task = asyncio.create_task(self._live())

    async def stop(self) -> None:
        self._is_stopped.set()
        await self._task

    async def _live(self) -> None:
        while not self._is_stopped.is_set():
            self.joined = await self._join()
            error = (await self._process.sync(self.joined)).error
            while error is ErrorCode.none and not await self._has_stopped_within(BEAT_S):
                error = (await self._process.heartbeat(self.joined)).error
            if error not in {ErrorCode.none, *AGAIN}:
                self.refused.append(error)
                return

    async def _join(self) -> JoinGroupOutcome:
        member_id = "" if self.joined is None else self.joined.member_id
        while True:
            outcome = await self._process.join(
                self.instance,
                member_id,
                session_timeout_ms=int(SESSION_S * 1000),
                rebalance_timeout_ms=int(REJOIN_S * 1000),
                requires_known_member_id=self.instance is None,
            )
            if outcome.error is not ErrorCode.member_id_required:
                assert outcome.error is ErrorCode.none
                return outcome
            member_id = outcome.member_id

    async def _has_stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._is_stopped.wait()
        except TimeoutError:
            return False
        return True


def stall_appends_of(process: SimulatedProcess, kind: type[AnyRecordedEvent], stall_s: float) -> None:
    """From now on an append with such an event takes this long."""
    append = process.log.append

    async def stalled(partition: int, epoch: int, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        verdicts = await append(partition, epoch, transitions)
        values = [record.value for transition in transitions for record in transition if record.value is not None]
        if any(isinstance(decode(value), kind) for value in values):
            await asyncio.sleep(stall_s)
        return verdicts

    process.log.append = stalled  # type: ignore[method-assign]


async def until_stable(process: SimulatedProcess, members: int) -> None:
    """Let time pass until this many members are in a stable generation."""
    deadline_s = asyncio.get_running_loop().time() + 600
    while (described := await process.describe()).state is not GroupState.STABLE or len(described.members) != members:
        assert asyncio.get_running_loop().time() < deadline_s, f"{members} were to come: {described}"
        await asyncio.sleep(0.5)


async def a_whole_life(process: SimulatedProcess) -> list[Client]:
    """The group forms, grows in both ways, is configured, commits, restarts and shrinks; return the remaining
    members.
    """
    clients = [Client(process, instance) for instance in ("a", "b", None)]
    await until_stable(process, 3)
    clients.append(Client(process, None))
    await until_stable(process, 4)
    change = ConfigChange(name="members.learner.timeout.ms", operation=ConfigOperation.SET, value="60000")
    await process.submit(
        AlterGroupConfig(caller=process.caller(), group_id=GROUP, changes=(change,), validate_only=False)
    )
    assert clients[0].joined is not None
    await process.commit(5, clients[0].joined)
    await asyncio.sleep(SESSION_S)
    await clients[1].stop()
    clients[1] = Client(process, "b")
    await asyncio.sleep(SESSION_S)
    leaver = clients.pop()
    await leaver.stop()
    assert leaver.joined is not None
    await process.leave(leaver.joined.member_id)
    await until_stable(process, 3)
    await asyncio.sleep(2 * SESSION_S)
    return clients


def blamed(storage: MemoryStorage) -> list[AnyRecordedEvent]:
    """Events that report a member as late, or Muster as stalled."""
    events = [decode(record.value) for records in storage.records for record in records if record.value is not None]
    return [
        event
        for event in events
        if isinstance(event, CoordinatorPaused)
        or (isinstance(event, MemberRemoved) and event.why.cause in BLAMED)
        or (isinstance(event, JoinPhaseCompleted) and event.timed_out)
    ]


@pytest.mark.parametrize("sessions", STALLS)
@pytest.mark.parametrize(
    "kind",
    [
        GroupCreated,
        MemberJoined,
        RebalanceStarted,
        MemberRejoined,
        JoinPhaseCompleted,
        MemberAssigned,
        GroupStabilized,
        StaticMemberReplaced,
        GroupConfigured,
        MemberRemoved,
    ],
)
def test_no_live_member_is_expelled_by_a_slow_append(kind: type[AnyRecordedEvent], sessions: float) -> None:
    storage = MemoryStorage()

    async def story() -> None:
        process = await SimulatedProcess(storage).start()
        stall_appends_of(process, kind, sessions * SESSION_S)
        clients = await a_whole_life(process)
        assert [client.refused for client in clients] == [[], [], []]
        for client in clients:
            await client.stop()
        await process.runtime.stop()

    simulate(story())
    assert blamed(storage) == []


@pytest.mark.parametrize("sessions", STALLS)
def test_no_live_member_is_expelled_by_a_slow_commit(sessions: float) -> None:
    storage = MemoryStorage()

    async def story() -> None:
        offsets = StallingOffsets()
        process = await SimulatedProcess(storage, offsets=offsets).start()
        offsets.stall_s = sessions * SESSION_S
        clients = await a_whole_life(process)
        assert [client.refused for client in clients] == [[], [], []]
        for client in clients:
            await client.stop()
        await process.runtime.stop()

    simulate(story())
    assert blamed(storage) == []


def test_a_dead_member_is_expelled_one_session_after_the_stall_all_the_same() -> None:
    """It sent nothing while the log was slow, so its session is not longer than any other."""
    storage = MemoryStorage()

    async def story() -> None:
        process = await SimulatedProcess(storage).start()
        joined = await process.stable_group("a", "b")
        stall_appends_of(process, MemberJoined, 8.0)
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
        assert (await process.heartbeat(joined["b"])).error is ErrorCode.none
        joining = process.join("c")
        beating = process.heartbeat(joined["a"])
        await asyncio.sleep(9.0)
        assert (await beating).error is ErrorCode.rebalance_in_progress
        assert {member.group_instance_id for member in (await process.describe()).members} == {"a", "b", "c"}
        await asyncio.sleep(1.5)  # 10.5 s after b's last request; its session is 10 s
        described = await process.describe()
        assert {member.group_instance_id for member in described.members} == {"a", "c"}
        assert not joining.done()
        await process.runtime.stop()

    simulate(story())


def test_a_constantly_busy_group_still_expels_its_dead_members() -> None:
    """A due deadline is processed in order, however many requests the group gets."""

    async def story() -> None:
        offsets = StallingOffsets()
        process = await SimulatedProcess(MemoryStorage(), offsets=offsets).start()
        joined = await process.stable_group("a", "b")
        offsets.stall_s = 0.2
        began_s = asyncio.get_running_loop().time()
        commits = [process.commit(5, joined["a"]) for _ in range(3)]
        while {member.group_instance_id for member in (await process.describe()).members} == {"a", "b"}:
            assert asyncio.get_running_loop().time() < began_s + 12.0, "b's session is 10 s"
            commits = [*commits[1:], process.commit(5, joined["a"])]
            await commits[0]
        await process.runtime.stop()

    simulate(story())


def test_a_join_phase_that_began_with_a_slow_append_has_its_full_time_from_then_on() -> None:
    """No client could hear of it before: a member that rejoins within the rebalance timeout after that is in."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        joined = await process.join(rebalance_timeout_ms=6_000)
        assert (await process.sync(joined)).error is ErrorCode.none
        stall_appends_of(process, RebalanceStarted, 8.0)
        joining = process.join(rebalance_timeout_ms=6_000)
        assert (await process.heartbeat(joined)).error is ErrorCode.rebalance_in_progress
        await asyncio.sleep(5.0)
        again = process.join(member_id=joined.member_id, rebalance_timeout_ms=6_000)
        assert {(await each).generation_id for each in (joining, again)} == {2}
        assert len((await process.describe()).members) == 2
        await process.runtime.stop()

    simulate(story())


def test_a_member_that_asked_before_the_stall_is_not_expelled_by_a_late_check() -> None:
    """Its request is decided, but not yet answered, when deadlines are checked for a time long after it arrived."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        began_s = asyncio.get_running_loop().time()
        outcomes = await process.stable_group("a", "b")
        stall_appends_of(process, MemberJoined, 12.0)
        process.join("c")
        await asyncio.sleep(0.2)
        process.join("d")  # the next batch waits for the current append
        beats = [process.heartbeat(joined) for joined in outcomes.values()]
        await asyncio.sleep(began_s + 9.9 - asyncio.get_running_loop().time())
        asyncio.get_running_loop().advance(0.9)  # type: ignore[attr-defined]  # a look was due 0.1 s into this
        assert {(await beat).error for beat in beats} == {ErrorCode.rebalance_in_progress}
        described = await process.describe()
        assert {member.group_instance_id for member in described.members} == {"a", "b", "c", "d"}
        await process.runtime.stop()

    simulate(story())


def test_a_deadline_whose_rule_fails_is_retried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at once, which would block everything else, and not never."""
    tried_s: list[float] = []

    def failing(command: AnyCommand, group: Group | None, soft: SoftState, *rest: Any) -> Decision:
        if isinstance(command, ExpireSession) and len(tried_s) < 3:
            tried_s.append(asyncio.get_running_loop().time())
            raise ZeroDivisionError("a bug")
        return decide(command, group, soft, *rest)

    monkeypatch.setattr(command_processor, "decide", failing)

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        await process.stable_group("a")
        await asyncio.sleep(15.0)
        assert (await process.describe()).members == ()
        assert [round(later - sooner) for sooner, later in pairwise(tried_s)] == [1, 1]
        await process.runtime.stop()

    simulate(story())
