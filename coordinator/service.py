"""What the handlers of `wire/` ask of the rest of the server.

`Groups` is the runtime's side: it decides commands, knows the groups and the committed offsets. `Service` is all that
a handler gets: the groups, the cluster as clients see it, clocks, randomness and timers, each one given from outside,
so that a simulation can give its own. Nothing here is asynchronous: an answer is a call of `reply`, at once or later.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Cluster
from muster.coordinator.group.commands import AnyRequest, Heartbeat
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.load.slices import Slices
from muster.coordinator.load.turns import Turns
from muster.events.ids import GroupId
from muster.events.state import GroupState

ReplyTo = Callable[[Outcome], None]
Cancel = Callable[[], None]


def ignore_request_id(_request_id: int) -> None:
    """Told of requests that nobody waits for any more, where no limit is on those that wait."""


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """What OffsetFetch tells; `leader_epoch` is -1 when the commit named none (OC19)."""

    offset: int
    leader_epoch: int
    metadata: str


class ListedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ListGroups; `protocol_type` is "" when the group has none (LS1)."""

    group_id: GroupId
    protocol_type: str
    state: GroupState


class HeartbeatTicket(Protocol):
    """The right to answer one member's next equal heartbeat with NONE, without asking the rules again."""

    def accept(self, now_ms: int) -> bool:
        """True: still valid, and the member's session was re-armed at `now_ms` (monotonic). False: forget the ticket.

        It is no longer valid once the group has changed in any way, or is no longer served here. A ticket
        that was refused once stays refused.
        """


class Groups(Protocol):
    """The groups this process serves. Implemented by the runtime, and by a small real one in tests."""

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        """Have the command decided. `reply` is called once at most, within this call or later, on the loop's thread.

        Never for a join or a sync that waits when the same member asks again (J13, SG17): the later one is answered.

        The outcome's class is that of the command; errors of the gate (14 loading, 15 unavailable, 16 not owner) are
        outcomes, too. Each command has a `caller.request_id` of its own, also when one request becomes many commands.
        """

    def heartbeat_ticket(self, command: Heartbeat) -> HeartbeatTicket | None:
        """A ticket for this heartbeat if the same command would be answered with NONE at this very moment, or None.

        Called from within the `reply` of a heartbeat that was answered with NONE.
        """

    def list_groups(self) -> Collection[ListedGroup] | ErrorCode:
        """Every group served here, durable ones only (LS6); or the error that stands for all (G22: 14)."""

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        """The durable offsets by (topic, partition), as they are at this moment, whatever comes later; empty for an
        unknown group (OF1); or the gate's error.
        """


class Service(msgspec.Struct, kw_only=True):
    """All that a handler may use. Times: ms; `new_uuid` gives the text of a random UUID (M1)."""

    groups: Groups
    cluster: Cluster
    monotonic_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    new_request_id: Callable[[], int]
    call_later: Callable[[int, Callable[[], None]], Cancel]
    """`call_later(delay_ms, callback)` gives a function that cancels the timer."""
    gone: Callable[[int], None] = ignore_request_id
    """Told the id of a join's or sync's request when its client has gone before it was answered."""
    turns: Turns = msgspec.field(default_factory=Turns)
    """Whose turn it is, among all connections of the process."""
    slices: Slices = msgspec.field(default_factory=Slices)
    """Whose turn it is, among all requests of the process that have many entries."""
