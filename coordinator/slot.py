"""A group's place in its partition, who waits for an answer there, and the right to a heartbeat's answer.

What belongs here: what a partition keeps for each of its groups beside the group itself. What it must not know: how a
command is decided, and how events become durable.
"""

from collections import deque
from collections.abc import Callable

import msgspec
import structlog

from coordinator.group.commands import AnyCommand, AnyRequest
from coordinator.group.outcomes import Outcome
from coordinator.group.soft import Session, Soft
from events.ids import GroupId
from events.state import Group

log = structlog.get_logger(__name__)

ReplyTo = Callable[[Outcome], None]


class Waiting(msgspec.Struct, frozen=True, eq=False):
    """A request that has not been answered, and where its answer goes."""

    command: AnyRequest
    reply_to: ReplyTo


class Slot(msgspec.Struct, kw_only=True, eq=False):
    """A group's place. `version` grows whenever its state may have changed: prepared answers end with it.

    `expiry_due`: the sweep has come by, and the rules have not been asked yet what has expired.
    """

    group_id: GroupId
    group: Group | None
    soft: Soft
    queue: deque[AnyCommand]
    busy: bool = False
    version: int = 0
    one_by_one: int = 0
    no_deadline_before_ms: int = 0
    expiry_due: bool = False


class Ticket(msgspec.Struct, frozen=True, eq=False):
    """One member's right to have the same heartbeat answered again (see service.HeartbeatTicket)."""

    slot: Slot
    version: int
    session: Session

    def accept(self, now_ms: int) -> bool:
        if self.slot.version != self.version:
            return False
        self.session.touch(now_ms)
        return True


def tell(waiting: Waiting, outcome: Outcome) -> None:
    """Give somebody the answer. A bug in what makes an answer of an outcome is that client's alone."""
    try:
        waiting.reply_to(outcome)
    except Exception:
        log.exception("an answer could not be given", command=type(waiting.command).__name__)
