"""The log lines of one group's move: its begin, whom it waits for when that takes long, and its end."""

import structlog

from muster.coordinator.group.move_text import progress
from muster.coordinator.group.outcomes import GroupMove, MoveState
from muster.coordinator.sidecar.ownership.move import Move
from muster.events.ids import GroupId

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def log_begin(group_id: GroupId, move: Move) -> None:
    """Write that the group moves."""
    log.info(
        "group moves to upstream" if move.is_release else "group moves to muster",
        group_id=group_id,
        members=len(move.members),
    )


def log_waiting(group_id: GroupId, move: Move, now_ms: int) -> None:
    """Write whom the move waits for, if that line is due."""
    if move.take_waiting_line(now_ms):
        said = progress(move.report(MoveState.MOVING, now_ms))
        log.info("a group that moves waits for members", group_id=group_id, to=move.to, progress=said)


def log_end(group_id: GroupId, report: GroupMove) -> None:
    """Write how the move ended."""
    is_done = report.state is MoveState.DONE
    write = log.info if is_done else log.warning
    event = "group moved" if is_done else "group not moved"
    write(
        event,
        group_id=group_id,
        to=report.to,
        members=report.members,
        left=report.left,
        took_ms=report.took_ms,
        reason=report.reason,
    )
