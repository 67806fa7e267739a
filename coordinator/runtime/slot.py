"""A group's place in its partition, what it has decided and not stored, and the right to a heartbeat's answer.

What belongs here: what a partition keeps for each of its groups beside the group itself. What it must not know: how a
command is decided, and how events become durable.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from muster.coordinator.group.commands import AnyCommand, Command
from muster.coordinator.group.decide import Decision
from muster.coordinator.group.extensions import Silence
from muster.coordinator.group.outcomes import Reply
from muster.coordinator.group.soft_state import Session, SoftState
from muster.events.events import AnyEvent
from muster.events.ids import GroupId
from muster.events.records import Record
from muster.events.state import Group, GroupState

Watch = Callable[[GroupId, int, bool], None]
"""Told of a group's generation, and whether it is wanted: by a member, who is to become one, or a join phase.

Called when that has changed and is durable, before anybody is answered; of a group that is gone: 0, nobody.
"""


def nobody_watches(_group_id: GroupId, _generation_id: int, _is_wanted: bool) -> None:
    """The default: groups that no other cluster has to know of."""


AskAboutSilence = Callable[[GroupId, Callable[[Silence], None]], None]
"""Asked of a group before it is decided what becomes of members who were not heard; it tells, now or later."""


def silence_is_their_own(_group_id: GroupId, tell: Callable[[Silence], None]) -> None:
    """The default: members speak to this process, and to nobody else."""
    tell(Silence.THEIR_OWN)


class LookAtDeadlines(Command, frozen=True, kw_only=True):
    """A place in a group's queue: what came before it is answered, then the deadlines passed at `at_ms` are decided."""

    at_ms: int
    """When the place was taken (monotonic). Who is due only since then may have asked further behind."""


class Batch(msgspec.Struct, kw_only=True, eq=False):
    """What a group has decided and not stored; all of it takes effect together, or none.

    `group` and `soft` are as decided so far. `began_ms` (monotonic) is when the first of `commands` was decided.
    `is_alone`: no further command may share it.
    """

    group: Group | None
    soft: SoftState
    began_ms: int
    commands: list[AnyCommand] = []
    decisions: list[Decision] = []
    is_alone: bool = False
    events: deque[AnyEvent]
    """Those that are not among `records` yet."""
    records: list[Record] = []


class Slot(msgspec.Struct, kw_only=True, eq=False):
    """A group's place. `version` grows whenever its state may have changed: prepared answers end with it.

    `busy`: the group is worked on, or its batch is being stored; what comes queues. `replies` are to leave next.
    `one_by_one`: how many of the next commands have a batch of their own.
    `looks_at_deadlines`: the queue has a place where they are looked at.
    `expiry_due`: the sweep has come by, and the rules have not been asked yet what has expired.
    `told`: what the watch was told last, generation and whether the group is wanted; None: nothing yet.
    """

    group_id: GroupId
    group: Group | None
    soft: SoftState
    queue: deque[AnyCommand | LookAtDeadlines]
    replies: deque[Reply]
    batch: Batch | None = None
    busy: bool = False
    version: int = 0
    one_by_one: int = 0
    no_deadline_before_ms: int = 0
    looks_at_deadlines: bool = False
    expiry_due: bool = False
    told: tuple[int, bool] | None = None

    def tell(self, watch: Watch) -> None:
        """Tell the watch how the group stands, unless it knows."""
        stands = (0, False)
        if self.group is not None:
            # Parked joins are members', and arrivals are held beside members alone. A join phase that has lost all who
            # joined is not over: until it is, the group refuses what an Empty one takes (OC8).
            is_over = self.group.state is not GroupState.PREPARING_REBALANCE
            stands = (self.group.generation_id, bool(self.group.members or self.soft.pending_members) or not is_over)
        elif self.told is None:
            return
        if stands != self.told:
            self.told = stands
            watch(self.group_id, *stands)


def new_slot(group_id: GroupId, group: Group | None = None, soft: SoftState | None = None) -> Slot:
    """A place where nothing waits."""
    return Slot(group_id=group_id, group=group, soft=soft or SoftState(), queue=deque(), replies=deque())


class Ticket(msgspec.Struct, frozen=True, eq=False):
    """One member's right to have the same heartbeat answered again (see service.HeartbeatTicket)."""

    slot: Slot
    version: int
    session: Session

    def accept(self, now_ms: int) -> bool:
        if self.slot.version != self.version:
            return False
        self.session.refresh(now_ms)
        return True
