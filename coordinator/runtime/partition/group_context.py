"""The runtime's context of a group: its queue of commands, its batch that is not yet durable, and heartbeat tickets."""

from collections import deque
from collections.abc import Callable

import msgspec

from muster.coordinator.group.commands import AnyCommand, Command
from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.decide import Decision
from muster.coordinator.group.extensions import Unheard
from muster.coordinator.group.outcomes import Reply
from muster.coordinator.group.soft_state import Session, SoftState
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.rebalance_log import UnderWay
from muster.events.events import AnyEvent
from muster.events.ids import GroupId
from muster.events.records import Record
from muster.events.state import Group, GroupState

GenerationListener = Callable[[GroupId, int, bool], None]
"""Called with a group's id, its generation, and whether it has members, pending members, or a join phase.

It is called when one of these has changed and is durable, before any response is sent; for a deleted group: 0, False.
"""


def ignore_generations(_group_id: GroupId, _generation_id: int, _is_in_use: bool) -> None:
    """Do nothing: the default, where no cluster upstream needs to know of the groups."""


AskAboutSilence = Callable[[GroupId, Callable[[Unheard | None], None]], None]
"""Called before sessions of a group expire. Calls back, now or later, with the time of the last outage in which its
members could not reach us; None if there was none.
"""


def members_reachable(_group_id: GroupId, explain: Callable[[Unheard | None], None]) -> None:
    """Let silent members expire immediately: the default, where clients connect directly to this process."""
    explain(None)


class CheckDeadlines(Command, frozen=True, kw_only=True):
    """Decide the deadlines that had passed at `at_ms`, after all commands that were queued before."""

    at_ms: int
    """The time of queueing (monotonic). A member whose deadline passed later may have a request behind this command."""


class Batch(msgspec.Struct, kw_only=True, eq=False):
    """The decisions of a group that are not durable yet, which take effect together; like Kafka's CoordinatorBatch.

    `group` and `soft` are as decided so far. `began_ms`: when the first of `commands` was decided (monotonic).
    `is_alone`: no further command may share the batch.
    """

    group: Group | None
    soft: SoftState
    began_ms: int
    commands: list[AnyCommand] = []
    decisions: list[Decision] = []
    is_alone: bool = False
    events: deque[AnyEvent]
    """Events that are not encoded into `records` yet."""
    records: list[Record] = []


class GroupContext(msgspec.Struct, kw_only=True, eq=False):
    """The runtime's state of one group. `version` grows with each possible change, which invalidates heartbeat tickets.

    `busy`: the group is being processed, or its batch is being stored, and new commands queue. `replies` are sent next.
    `one_by_one`: this many of the next commands get a batch of their own. `no_deadline_before_ms`: see
    `RETRY_DEADLINE_MS`. `deadline_check_queued`: a CheckDeadlines is in the queue. `expiry_due`: the sweep has reached
    the group, and ExpireOffsets is not decided yet. `last_notified`: the arguments of the listener's last call.
    """

    group_id: GroupId
    group: Group | None
    soft: SoftState
    queue: deque[AnyCommand | CheckDeadlines]
    replies: deque[Reply]
    batch: Batch | None = None
    busy: bool = False
    version: int = 0
    one_by_one: int = 0
    no_deadline_before_ms: int = 0
    deadline_check_queued: bool = False
    expiry_due: bool = False
    last_notified: tuple[int, bool] | None = None
    rebalance: UnderWay | None = None
    """The rebalance that has not ended, for the log and the metrics."""
    deferred: list[AnyCommand] = []
    """Deferred commands: they would change something while a former owner may still respond from memory."""
    when_changed: list[Callable[[], None]] = []
    """Called once, when the version grows."""

    def invalidate_tickets(self) -> None:
        """Note that the group may have changed."""
        self.version += 1
        if self.when_changed:
            callbacks, self.when_changed = self.when_changed, []
            for changed in callbacks:
                changed()

    def notify(self, on_generation: GenerationListener) -> None:
        """Call the listener if the generation has changed, or if the group is now in use or no longer is."""
        current = (0, False)
        if self.group is not None:
            # Joins are parked only by members, and held only in groups with members, so members cover both. A join
            # phase that has lost all its members is not over: until it is, the group refuses commits that an Empty one
            # accepts (OC8).
            is_over = self.group.state is not GroupState.PREPARING_REBALANCE
            current = (self.group.generation_id, bool(self.group.members or self.soft.pending_members) or not is_over)
        elif self.last_notified is None:
            return
        if current != self.last_notified:
            self.last_notified = current
            on_generation(self.group_id, *current)


def new_context(group_id: GroupId, group: Group | None = None, soft: SoftState | None = None) -> GroupContext:
    """Create a context with an empty queue."""
    return GroupContext(group_id=group_id, group=group, soft=soft or SoftState(), queue=deque(), replies=deque())


class Ticket(msgspec.Struct, frozen=True, eq=False):
    """See `service.HeartbeatTicket`."""

    context: GroupContext
    version: int
    session: Session
    lease: AnswerLease | None = None
    connection: ConnectionRecord | None = None

    def accept(self, now_ms: int) -> bool:
        if self.context.version != self.version:
            return False
        lease = self.lease
        if lease is not None and lease.reading_ms is not now_ms and not lease.covers_at(now_ms):
            return False
        if now_ms >= self.session.last_seen_ms:  # another process may report late that it has answered
            self.session.refresh(now_ms, self.connection)
        return True

    def when_changed(self, changed: Callable[[], None]) -> None:
        if self.context.version == self.version:
            self.context.when_changed.append(changed)
        else:
            changed()
