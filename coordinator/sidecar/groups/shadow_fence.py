"""Answers no SyncGroup before the group's shadow is bumped upstream for its generation.

From then on upstream accepts no commit of the previous generation, so a member that starts to work finds no older
commit after its own. Within a generation a member may replace another: a restarted static member, or a called standby.
So when a JoinGroup is answered in a generation that was already bumped, the shadow is bumped again before that member's
sync is answered.
"""

from collections.abc import Callable
from typing import TypeGuard, TypeVar

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, JoinGroup, SyncGroup
from muster.coordinator.group.outcomes import JoinGroupOutcome, Outcome, SyncGroupOutcome
from muster.coordinator.runtime.partition.waiting import Waiting, deliver
from muster.coordinator.service import Groups, ReplyTo
from muster.coordinator.sidecar.groups.groups_layer import GroupsLayer
from muster.coordinator.upstream.shadows import Shadows, ShadowUnavailable
from muster.events.ids import GroupId

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


O = TypeVar("O", JoinGroupOutcome, SyncGroupOutcome)  # noqa: E741


class ShadowFence(GroupsLayer):
    """Delays SyncGroup responses until the shadow has the generation upstream."""

    def __init__(self, groups: Groups, shadows: Shadows, *, give_up: Callable[[Exception], None]) -> None:
        super().__init__(groups, give_up=give_up)
        self._shadows = shadows

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        match command:
            case SyncGroup():
                self._sync(command, reply)
            case JoinGroup():
                self._join(command, reply)
            case _:
                super().submit(command, reply)

    def _join(self, command: JoinGroup, reply: ReplyTo) -> None:
        def joined(outcome: Outcome) -> None:
            if _is_good(outcome, JoinGroupOutcome) and self._is_bumped(command.group_id, outcome.generation_id):
                self._shadows.bump_again(command.group_id)
            reply(outcome)

        self._groups.submit(command, joined)

    def _sync(self, command: SyncGroup, reply: ReplyTo) -> None:
        def synced(outcome: Outcome) -> None:
            if _is_good(outcome, SyncGroupOutcome) and not self._is_bumped(command.group_id, command.generation_id):
                self._when_bumped(command, outcome, reply)
            else:
                reply(outcome)

        self._groups.submit(command, synced)

    def _is_bumped(self, group_id: GroupId, generation_id: int) -> bool:
        return self._shadows.commit_identity(group_id, generation_id) is not None

    def _when_bumped(self, command: SyncGroup, outcome: SyncGroupOutcome, reply: ReplyTo) -> None:
        waiting = Waiting(command, reply)

        async def wait() -> None:
            try:
                await self._shadows.wait_bumped(command.group_id, command.generation_id)
            except ShadowUnavailable as error:
                log.warning("sync refused: upstream does not know its generation", error=str(error))
                deliver(waiting, SyncGroupOutcome(error=ErrorCode.coordinator_not_available))
                return
            # Another generation may have begun in the meantime; its members must not meet a member of this one.
            is_bumped = self._is_bumped(command.group_id, command.generation_id)
            deliver(waiting, outcome if is_bumped else SyncGroupOutcome(error=ErrorCode.rebalance_in_progress))

        self._tasks.start(wait(), name=f"bump-{command.group_id}")


def _is_good(outcome: Outcome, kind: type[O]) -> TypeGuard[O]:
    """Return whether it is a response without an error; a superseded request has none."""
    return isinstance(outcome, kind) and outcome.error is ErrorCode.none
