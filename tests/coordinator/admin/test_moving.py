"""Following a move through the admin API."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from muster.coordinator.admin import ConfigEntry, GroupAdmin, moving
from muster.coordinator.admin.moving import move_group
from muster.coordinator.group.configs import MOVE, UPSTREAM
from muster.coordinator.group.outcomes import GroupMove, MoveState


def report(*, told: int, back: int = 0, left: int = 0, state: MoveState = MoveState.MOVING) -> GroupMove:
    return GroupMove(to=UPSTREAM, state=state, members=2, told=told, back=back, left=left, took_ms=0)


class OneMove(GroupAdmin):
    """A sidecar with one move, which goes a report further at each question."""

    def __init__(self, *reports: GroupMove | None) -> None:
        super().__init__("127.0.0.1:1")
        self._reports = [None, *reports]

    async def describe_group_config(self, group_id: str, names: Sequence[str] = ()) -> tuple[ConfigEntry, ...]:
        now = self._reports.pop(0)
        return (
            ()
            if now is None
            else (ConfigEntry(name=MOVE, value=msgspec.json.encode(now).decode(), is_set=True, documentation=""),)
        )

    async def alter_group_config(
        self, group_id: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        pass


async def test_each_step_of_a_move_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that leaves is a step, as one that was told, or is back."""
    monkeypatch.setattr(moving, "POLL_INTERVAL_S", 0.0)
    steps = [report(told=1), report(told=1, left=1), report(told=1, back=1, left=1)]
    seen: list[GroupMove] = []
    last = report(told=1, back=1, left=1, state=MoveState.DONE)
    async with OneMove(steps[0], steps[0], *steps[1:], last) as admin:
        assert await move_group(admin, "orders", UPSTREAM, tell=seen.append) == last
    assert seen == steps


async def test_a_group_that_is_there_already_has_moved_nobody() -> None:
    """The sidecar accepts the config, and has no move to report."""
    async with OneMove(None) as admin:
        done = GroupMove(to=UPSTREAM, state=MoveState.DONE, members=0, told=0, back=0, took_ms=0)
        assert await move_group(admin, "orders", UPSTREAM) == done
