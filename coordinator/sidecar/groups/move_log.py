"""The log lines of a group's move: its beginning, the members it waits for, its end; and of groups lost to upstream."""

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.move_text import DROPPED_MAY, LATE_MAY, dropped_of, names, overdue_of, progress
from muster.coordinator.group.outcomes import GroupMove, MoveState, ReleaseGroupOutcome
from muster.coordinator.observability.metrics import GROUPS_LOST_UPSTREAM
from muster.coordinator.sidecar.groups.move import Move
from muster.events.ids import GroupId

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def log_begin(group_id: GroupId, move: Move) -> None:
    """Log that the group moves."""
    log.info(
        "group moves to upstream" if move.is_release else "group moves to muster",
        group_id=group_id,
        members=len(move.members),
    )


def log_waiting(group_id: GroupId, move: Move, now_ms: int) -> None:
    """Log which members the move waits for, if that line is due."""
    if move.take_waiting_line(now_ms):
        said = progress(move.report(MoveState.MOVING, now_ms))
        log.info("group move waits for members", group_id=group_id, to=move.to, progress=said)


def log_end(group_id: GroupId, report: GroupMove) -> None:
    """Log how the move ended."""
    is_done = report.state is MoveState.DONE
    about = {"to": report.to, "members": report.members, "left": report.left, "took_ms": report.took_ms}
    if not is_done:
        log.warning("group not moved", group_id=group_id, **about, reason=report.reason)
    elif report.late:
        overdue, dropped = overdue_of(report), dropped_of(report)
        told = (("not_rejoined_in_time", overdue, LATE_MAY), ("dropped_by_the_cluster", dropped, DROPPED_MAY))
        late = {what: names(who) for what, who, _ in told if who}
        notes = "; ".join(note for _, who, note in told if who)
        log.warning("group moved", group_id=group_id, **about, **late, note=notes)
    else:
        log.info("group moved", group_id=group_id, **about)


def log_lost(group_id: GroupId, reason: str, released: ReleaseGroupOutcome) -> None:
    """Log that the group was lost to upstream, why, and how many members were released."""
    if released.error in {ErrorCode.none, ErrorCode.group_id_not_found}:
        GROUPS_LOST_UPSTREAM.inc()
        log.error("group lost to upstream", group_id=group_id, reason=reason, members=len(released.members))
    else:  # if this process was deposed, another line says by which
        log.warning("group not released: the event log did not store it", group_id=group_id, reason=reason)
