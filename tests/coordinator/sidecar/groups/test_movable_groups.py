"""Concurrent requests for moves, and an adoption whose end cannot be written: the administrators' responses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AlterGroupConfig, AnyRequest, Caller, ConfigChange, ConfigOperation
from muster.coordinator.group.configs import COORDINATOR, MUSTER, UPSTREAM
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    GroupMove,
    MoveState,
    Outcome,
    ReleasedMember,
)
from muster.coordinator.sidecar.groups import moves as moves_module
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.coordinator.sidecar.groups.movable_groups import MovableGroups
from muster.coordinator.sidecar.groups.move import ASSUMED_SESSION_MS, FormerMember, Move, Sender
from muster.coordinator.sidecar.groups.moves import TAKE_TIMEOUT_MS, Moves
from muster.coordinator.upstream.shadow import ShadowName
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId, MemberId
from tests.coordinator.scripted import ScriptedGroups
from tests.coordinator.sidecar.scripted_broker import ALL_OPERATIONS, DESCRIBE_GROUPS, response
from tests.waiting import until

GROUP = GroupId("orders")
MOVING = AlterGroupConfigOutcome(
    error=ErrorCode.invalid_request, message="it is moving already: muster members list orders says how far"
)
DONE = AlterGroupConfigOutcome(error=ErrorCode.none)
WAITS = "group move waits for members"
MEMBER = ReleasedMember(
    member_id=MemberId("m"),
    group_instance_id=None,
    client_id="client",
    client_host="/10.0.0.1",
    session_timeout_ms=45_000,
    rebalance_timeout_ms=300_000,
    was_parked=False,
)


class EmptyUpstream(UpstreamLink):
    """A cluster in which every group is empty."""

    async def ask_coordinator(self, group_id: str, *_request: Any, **_how: Any) -> Any:
        described = {"group_state": "Empty", "protocol_type": "", "protocol_data": "", "members": ()}
        named = {"error_code": ErrorCode.none, "group_id": group_id, "authorized_operations": ALL_OPERATIONS}
        return response(DESCRIBE_GROUPS, 5, groups=[{**described, **named}])


class NoShadows:
    """No shadow is in any group upstream."""

    name = ShadowName.of("log")

    def owns(self, _group_id: GroupId) -> bool:
        return False

    def update_generation(self, group_id: GroupId, generation_id: int, is_wanted: bool) -> None:
        assert not is_wanted

    async def wait_gone(self, _group_id: GroupId) -> None:
        pass

    async def remove_stray_shadows(self, _is_ours: Callable[[GroupId], bool]) -> list[GroupId]:
        return []


class Scene:
    """One group. `released`: whether the rules have released it; `errors`: their next responses."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.released = False
        self.errors: list[ErrorCode] = []
        self.failures: list[Exception] = []
        self.groups = ScriptedGroups(self._outcome)
        self.in_flight = InFlightCommits()
        self.moves = Moves(
            EmptyUpstream("127.0.0.1:1", give_up=self.failures.append),
            NoShadows(),
            is_released=lambda _: self.released and not self.errors,
            monotonic_ms=lambda: self.now_ms,
            give_up=self.failures.append,
        )
        self.movable = MovableGroups(
            self.groups, self.moves, self.in_flight, may_own=lambda _: True, give_up=self.failures.append
        )
        self._requests = 0

    def _outcome(self, command: AnyRequest) -> Outcome:
        assert isinstance(command, AlterGroupConfig)
        if self.errors:
            return AlterGroupConfigOutcome(error=self.errors.pop(0))
        if command.validate_only:
            return DONE
        was_released, self.released = self.released, command.changes[0].operation is ConfigOperation.SET
        members = (MEMBER,) if self.released and not was_released else ()
        return AlterGroupConfigOutcome(error=ErrorCode.none, released=members)

    def set_coordinator(self, to: str, *, validate_only: bool = False) -> list[Outcome]:
        """The response to an administrator, once there is one."""
        self._requests += 1
        caller = Caller(
            request_id=self._requests,
            client_id="admin",
            client_host="",
            principal="",
            api_key=44,
            api_version=1,
            arrived_ms=0,
            arrived_wall_ms=0,
        )
        change = ConfigChange(name=COORDINATOR, operation=ConfigOperation.SET, value=to)
        command = AlterGroupConfig(caller=caller, group_id=GROUP, changes=(change,), validate_only=validate_only)
        answers: list[Outcome] = []
        self.movable.submit(command, answers.append)
        return answers

    async def ended(self) -> GroupMove:
        """The report of the last move, when it is over."""
        await until(lambda: self.failures or not self.moves.is_moving(GROUP))
        report = self.moves.report(GROUP)
        assert report is not None
        return report


@asynccontextmanager
async def staged() -> AsyncIterator[Scene]:
    """A scene in which no error occurs, and nothing is left at the end."""
    scene = Scene()
    scene.moves.begin()
    await until(lambda: scene.moves._unasked == 0)
    try:
        yield scene
    finally:
        await scene.movable.close()
        await scene.moves.close()
    assert scene.failures == []


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves_module, "CHECK_INTERVAL_S", 0.001)


@pytest.mark.parametrize("other", [UPSTREAM, MUSTER])
async def test_only_one_of_two_simultaneous_moves_begins(other: str) -> None:
    """A second release would find no members to wait for: its joins would go upstream while others still work."""
    async with staged() as scene:
        answered = scene.in_flight.track(GROUP, asyncio.get_running_loop().create_future())
        first, second = scene.set_coordinator(UPSTREAM), scene.set_coordinator(other)
        assert (first, second) == ([], [MOVING])
        assert not scene.moves.is_moving(GROUP), "its members work on, and commit, until the release is decided"
        answered(b"")
        await until(lambda: first)
        assert first == [AlterGroupConfigOutcome(error=ErrorCode.none, released=(MEMBER,))]
        report = scene.moves.report(GROUP)
        assert report is not None
        assert (report.state, report.members) == (MoveState.MOVING, 1)
        assert scene.set_coordinator(UPSTREAM) == [MOVING]
        scene.now_ms += MEMBER.session_timeout_ms
        assert (await scene.ended()).state is MoveState.DONE


async def test_a_slow_release_names_the_awaited_members() -> None:
    """After 5 s, then once a minute."""
    async with staged() as scene:
        with structlog.testing.capture_logs() as lines:
            scene.moves.release(GROUP, [MEMBER])
            scene.now_ms += 5_000
            await until(lambda: any(line["event"] == WAITS for line in lines))
        scene.now_ms += MEMBER.session_timeout_ms
        assert (await scene.ended()).state is MoveState.DONE


async def test_a_slow_adoption_names_the_awaited_members() -> None:
    """The members are upstream's, until they join here."""
    async with staged() as scene:
        reported = FormerMember(
            member_id=MemberId("m"), group_instance_id=None, client_id="client", client_host="/h", was_parked=True
        )
        move = scene.moves._moves[GROUP] = Move(MUSTER, [reported], now_ms=0, deadline_ms=60_000)
        with structlog.testing.capture_logs() as lines:
            adopting = asyncio.create_task(scene.moves._adopt(GROUP, move, _take))
            scene.now_ms += 5_000
            await until(lambda: any(line["event"] == WAITS for line in lines))
            scene.now_ms += 60_000
            await adopting


class Socket:
    """A client's connection."""

    def __init__(self) -> None:
        self.open = True

    def is_open(self) -> bool:
        return self.open


@pytest.mark.parametrize(("to", "session_ms"), [(UPSTREAM, 45_000), (MUSTER, ASSUMED_SESSION_MS)])
async def test_a_member_without_a_connection_is_awaited_for_its_session_in_either_direction(
    to: str, session_ms: int
) -> None:
    """A process that has ended delays a release by no more than that, instead of max.poll.interval.ms."""
    async with staged() as scene:
        if to == UPSTREAM:
            scene.moves.release(GROUP, [MEMBER])
            move = scene.moves._moves[GROUP]
        else:
            member = FormerMember(
                member_id=MEMBER.member_id, group_instance_id=None, client_id="client", client_host="/h"
            )
            move = scene.moves._moves[GROUP] = Move(MUSTER, [member], now_ms=0, deadline_ms=10 * session_ms)
            scene.moves._tasks.start(scene.moves._adopt(GROUP, move, _take), "adopt")
        socket = Socket()
        sender = Sender(
            connection=socket,
            client_id="client",
            client_host="/h",
            member_id=MEMBER.member_id,
            group_instance_id=None,
        )
        move.mark_notified(sender, 0)
        scene.now_ms, socket.open = 10_000, False
        await until(lambda: [each.until_ms for each in move.members.values()] == [10_000 + session_ms])
        scene.now_ms += session_ms
        assert (await scene.ended()).state is MoveState.DONE


async def test_a_failed_move_can_be_requested_again() -> None:
    """A release that the rules refuse; a dry run blocks nothing."""
    async with staged() as scene:
        scene.errors = [ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress]
        trial, refused = scene.set_coordinator(UPSTREAM, validate_only=True), scene.set_coordinator(UPSTREAM)
        assert (await _answer(trial), await _answer(refused)) == tuple(
            AlterGroupConfigOutcome(error=error)
            for error in (ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress)
        )
        await until(lambda: not scene.movable._starting)
        released = await _answer(scene.set_coordinator(UPSTREAM))
        assert released == AlterGroupConfigOutcome(error=ErrorCode.none, released=(MEMBER,))


async def test_a_group_released_meanwhile_does_not_move() -> None:
    """The rules' state at that time counts, not that of the administrator's request."""
    async with staged() as scene:
        answered = scene.in_flight.track(GROUP, asyncio.get_running_loop().create_future())
        reported = scene.set_coordinator(UPSTREAM)
        await until(lambda: scene.in_flight.is_paused(GROUP))
        scene.released = True
        answered(b"")
        await until(lambda: reported)
        assert scene.moves.report(GROUP) is None


async def test_a_move_that_was_overtaken_ends_itself_alone() -> None:
    """It does not end the current move."""
    async with staged() as scene:
        scene.moves.release(GROUP, [])
        scene.moves.release(GROUP, [MEMBER])
        await until(lambda: scene.failures or len(scene.moves._tasks.running) == 1)
        report = scene.moves.report(GROUP)
        assert report is not None
        assert (report.state, report.members) == (MoveState.MOVING, 1)
        scene.now_ms += MEMBER.session_timeout_ms
        assert (await scene.ended()).state is MoveState.DONE


async def test_an_adoption_is_done_when_the_group_can_be_joined_here() -> None:
    """While its partition is not served the release is unknown, and nothing can be written."""
    async with staged() as scene:
        scene.released = True
        scene.errors = [ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available]
        assert await _answer(scene.set_coordinator(MUSTER)) == DONE
        assert await scene.ended() == GroupMove(to=MUSTER, state=MoveState.DONE, members=0, told=0, back=0, took_ms=0)
        assert not scene.released
        assert len(scene.groups.commands) == 3


async def test_a_group_that_never_was_here_is_adopted() -> None:
    """The rules do not know it, so nothing prevents a join."""
    async with staged() as scene:
        scene.errors = [ErrorCode.group_id_not_found] * 2
        assert await _answer(scene.set_coordinator(MUSTER)) == DONE
        assert (await scene.ended()).state is MoveState.DONE
        assert len(scene.groups.commands) == 1


async def test_an_adoption_that_cannot_be_written_is_abandoned() -> None:
    """The group stays with the cluster, and the administrator gets the reason."""

    async with staged() as scene:
        scene.released = True
        scene.errors = [ErrorCode.coordinator_not_available] * 1_000_000
        assert await _answer(scene.set_coordinator(MUSTER)) == DONE
        await until(lambda: len(scene.groups.commands) >= 3)
        scene.now_ms += TAKE_TIMEOUT_MS
        report = await scene.ended()
        assert msgspec.structs.replace(report, took_ms=0) == GroupMove(
            to=MUSTER,
            state=MoveState.GIVEN_UP,
            members=0,
            told=0,
            back=0,
            took_ms=0,
            reason="members.coordinator was not restored: COORDINATOR_NOT_AVAILABLE",
        )
        assert scene.released


async def _take() -> ErrorCode:
    return ErrorCode.none


async def _answer(answers: list[Outcome]) -> Outcome:
    await until(lambda: answers)
    return answers[0]
