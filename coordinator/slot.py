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
from events.state import Group, GroupState

log = structlog.get_logger(__name__)

ReplyTo = Callable[[Outcome], None]

Watch = Callable[[GroupId, int, bool], None]
"""Told of a group's generation, and whether it is wanted: by a member, who is to become one, or a join phase.

Called when that has changed and is durable, before anybody is answered; of a group that is gone: 0, nobody.
"""


def nobody_watches(_group_id: GroupId, _generation_id: int, _is_wanted: bool) -> None:
    """The default: groups that no other cluster has to know of."""


class Waiting(msgspec.Struct, frozen=True, eq=False):
    """A request that has not been answered, and where its answer goes."""

    command: AnyRequest
    reply_to: ReplyTo


class Slot(msgspec.Struct, kw_only=True, eq=False):
    """A group's place. `version` grows whenever its state may have changed: prepared answers end with it.

    `expiry_due`: the sweep has come by, and the rules have not been asked yet what has expired.
    `told`: what the watch was told last, generation and whether the group is wanted; None: nothing yet.
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
    told: tuple[int, bool] | None = None

    def tell(self, watch: Watch) -> None:
        """Tell the watch how the group stands, unless it knows."""
        stands = (0, False)
        if self.group is not None:
            # Parked joins are members', and arrivals are held beside members alone. A join phase that has lost all who
            # joined is not over: until it is, the group refuses what an Empty one takes (OC8).
            is_over = self.group.state is not GroupState.PREPARING_REBALANCE
            stands = (self.group.generation_id, bool(self.group.members or self.soft.pending) or not is_over)
        elif self.told is None:
            return
        if stands != self.told:
            self.told = stands
            watch(self.group_id, *stands)


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
