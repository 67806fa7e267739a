"""The group config `members.coordinator`: with it an administrator moves a group, and reads the move's progress.

It is set like any config (IncrementalAlterConfigs on the GROUP resource). The rules carry out and store `upstream`; the
release follows. `muster` begins an adoption, which asks upstream first and deletes the stored value at its end. It must
be the only config of a request, except for `members.coordinator.timeout.ms`, which is never stored.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    AnyRequest,
    ConfigChange,
    ConfigOperation,
    DescribeGroupConfig,
)
from muster.coordinator.group.configs import (
    COORDINATOR,
    COORDINATOR_TIMEOUT,
    DAY_MS,
    NOT_FOR_GROUP,
    UPSTREAM,
    BadConfig,
    ConfigType,
    GroupConfigDef,
    coordinator,
    number,
)
from muster.coordinator.group.move_text import already_moving, progress
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    DescribeGroupConfigOutcome,
    MoveState,
    Outcome,
)
from muster.coordinator.service import Groups, ReplyTo
from muster.coordinator.sidecar.groups.groups_layer import GroupsLayer
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.coordinator.sidecar.groups.moves import Moves
from muster.events.ids import GroupId

_TIMEOUT = GroupConfigDef(
    name=COORDINATOR_TIMEOUT,
    type=ConfigType.INT,
    default="60000",
    minimum=1,
    maximum=DAY_MS,
    documentation="How long an adoption may take, ms.",
)


class MovableGroups(GroupsLayer):
    """Handles reads and changes of `members.coordinator`. `may_own`: `--groups` includes the group."""

    def __init__(
        self,
        groups: Groups,
        moves: Moves,
        in_flight: InFlightCommits,
        *,
        may_own: Callable[[GroupId], bool],
        give_up: Callable[[Exception], None],
    ) -> None:
        super().__init__(groups, give_up=give_up)
        self._moves = moves
        self._in_flight = in_flight
        self._may_own = may_own
        self._starting: set[GroupId] = set()
        """Groups whose move was requested and has not begun; requests of their members are answered as before."""

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        if isinstance(command, AlterGroupConfig) and any(change.name == COORDINATOR for change in command.changes):
            self._set_coordinator(command, reply)
        elif isinstance(command, DescribeGroupConfig):
            self._describe(command, reply)
        else:
            super().submit(command, reply)

    def _describe(self, command: DescribeGroupConfig, reply: ReplyTo) -> None:
        def described(outcome: Outcome) -> None:
            assert isinstance(outcome, DescribeGroupConfigOutcome)
            move = self._moves.report(command.group_id)
            values = outcome.values
            if move is not None and move.state is MoveState.MOVING:
                values = {**values, COORDINATOR: f"moving to {move.to}: {progress(move)}"}
            reply(msgspec.structs.replace(outcome, values=values, move=move))

        self._groups.submit(command, described)

    def _set_coordinator(self, command: AlterGroupConfig, reply: ReplyTo) -> None:
        changes = {change.name: change for change in command.changes}
        change = changes[COORDINATOR]
        try:
            if changes.keys() - {COORDINATOR, COORDINATOR_TIMEOUT} or len(changes) < len(command.changes):
                raise BadConfig(
                    f"{COORDINATOR} must be the only config of its request, except for {COORDINATOR_TIMEOUT}"
                )
            if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
                raise BadConfig(f"{COORDINATOR} is not of type LIST: use SET or DELETE")
            wanted = coordinator(change.value)
            timeout_ms = number(_TIMEOUT, _text(changes.get(COORDINATOR_TIMEOUT)))
        except BadConfig as bad:
            reply(AlterGroupConfigOutcome(error=ErrorCode.invalid_config, message=str(bad)))
            return
        if not self._may_own(command.group_id):
            reply(_refused(NOT_FOR_GROUP))
        elif self._moves.is_moving(command.group_id) or command.group_id in self._starting:
            reply(_refused(already_moving(command.group_id)))
        elif wanted == UPSTREAM:
            self._run(self._release(msgspec.structs.replace(command, changes=(change,)), reply), command)
        else:
            self._run(self._adopt(command, timeout_ms, reply), command)

    async def _release(self, command: AlterGroupConfig, reply: ReplyTo) -> None:
        """Release the group once its in-flight commits are answered: they have the identity of the leaving shadow."""
        if command.validate_only:
            self._groups.submit(command, lambda outcome: reply(_as_release(outcome)))
            return
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def altered(outcome: Outcome) -> None:
            assert isinstance(outcome, AlterGroupConfigOutcome)
            if outcome.error is ErrorCode.none and not was_released:
                self._moves.release(command.group_id, outcome.released)
            reply(_as_release(outcome))
            decided.set_result(None)

        async with self._in_flight.paused(command.group_id):
            was_released = self._moves.is_released(command.group_id)
            self._groups.submit(command, altered)
            await decided

    def _run(self, steps: Coroutine[Any, Any, None], command: AlterGroupConfig) -> None:
        task = self._tasks.start(steps, name=f"move-{command.group_id}")
        if not command.validate_only:
            self._starting.add(command.group_id)
            task.add_done_callback(lambda _: self._starting.discard(command.group_id))

    async def _adopt(self, command: AlterGroupConfig, timeout_ms: int, reply: ReplyTo) -> None:
        refusal = await self._moves.adopt(
            command.group_id,
            timeout_ms=timeout_ms,
            only_try=command.validate_only,
            take=lambda: self._clear_coordinator(command),
        )
        reply(AlterGroupConfigOutcome(error=ErrorCode.none) if refusal is None else _refused(refusal))

    async def _clear_coordinator(self, command: AlterGroupConfig) -> ErrorCode:
        """Delete `members.coordinator`, so that members can join the group here again; return the error."""
        decided: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def altered(outcome: Outcome) -> None:
            assert isinstance(outcome, AlterGroupConfigOutcome)
            decided.set_result(outcome.error)

        change = ConfigChange(name=COORDINATOR, operation=ConfigOperation.DELETE, value=None)
        # Reusing the request id is safe: the rules never get the command itself, and each attempt was answered.
        self._groups.submit(msgspec.structs.replace(command, changes=(change,)), altered)
        return await decided


def _text(change: ConfigChange | None) -> str:
    return _TIMEOUT.default if change is None or change.value is None else change.value


def _as_release(outcome: Outcome) -> AlterGroupConfigOutcome:
    """Return a release's outcome, with its own message for an unknown group."""
    assert isinstance(outcome, AlterGroupConfigOutcome)
    if outcome.error is not ErrorCode.group_id_not_found:
        return outcome
    text = "none of its members has ever joined here: there is nothing to release"
    return msgspec.structs.replace(outcome, message=text)


def _refused(reason: str) -> AlterGroupConfigOutcome:
    return AlterGroupConfigOutcome(error=ErrorCode.invalid_request, message=reason)
