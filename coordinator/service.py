"""The interface between the API handlers of `wire/` and the rest of the server.

`Groups` is implemented by the runtime: it decides commands, and knows groups and committed offsets. `Service` is all
that a handler may use: groups, the cluster as clients see it, clocks, random ids and timers, all injected, so that a
simulation can bring its own. Nothing here is asynchronous: an answer is a call of `reply`, immediately or later.
"""

import itertools
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
    """Do nothing: the default if waiting requests have no quota."""


def ignore_missing_topic(_topic: str, _client_id: str, _client_host: str) -> None:
    """Do nothing: the default."""


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """A committed offset in OffsetFetch; `leader_epoch` is -1 if the commit had none (OC19)."""

    offset: int
    leader_epoch: int
    metadata: str


class ListedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of ListGroups; `protocol_type` is "" if the group has none (LS1)."""

    group_id: GroupId
    protocol_type: str
    state: GroupState


class AcceptingTicket(Protocol):
    """A ticket to answer one member's next equal heartbeat with NONE, without another decision."""

    def accept(self, now_ms: int) -> bool:
        """Refresh the member's session at `now_ms` (monotonic) and return True; False once the ticket is invalid.

        A ticket becomes invalid, permanently, when its group changes in any way, or is no longer served here.
        """


class HeartbeatTicket(AcceptingTicket, Protocol):
    """A ticket from the code that decides about the group."""

    def when_changed(self, changed: Callable[[], None]) -> None:
        """Call `changed` once, when the group changes or is no longer served here."""


class Groups(Protocol):
    """The groups that this process serves. Implemented by the runtime, and by a small real implementation in tests."""

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        """Submit a command. `reply` is called once, within this call or later, on the event loop's thread.

        If the same member sends a parked join or sync again, the earlier one's `reply` gets `Superseded`: that request
        has no response.

        The outcome has the class that belongs to the command, even for errors without a decision (14, 15, 16). Each
        command has its own `caller.request_id`, even if one request becomes many commands.
        """

    def heartbeat_ticket(self, command: Heartbeat) -> HeartbeatTicket | None:
        """Return a ticket if the same heartbeat would be answered with NONE right now, or None.

        Must be called from within the `reply` of a heartbeat that was answered with NONE.
        """

    def list_groups(self) -> Collection[ListedGroup] | ErrorCode:
        """List the durable groups served here (LS6), or return the error for all (14, G22)."""

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        """Return a snapshot of the durable offsets by (topic, partition), or an error; unknown groups: none (OF1)."""


class DelegatingGroups(Groups):
    """Base of layers in front of groups: delegates everything."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        self._groups.submit(command, reply)

    def heartbeat_ticket(self, command: Heartbeat) -> HeartbeatTicket | None:
        return self._groups.heartbeat_ticket(command)

    def list_groups(self) -> Collection[ListedGroup] | ErrorCode:
        return self._groups.list_groups()

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        return self._groups.committed_offsets(group_id)


class Service(msgspec.Struct, kw_only=True):
    """All that a handler may use. Times: ms; `new_uuid` returns the text of a random UUID (M1)."""

    groups: Groups
    cluster: Cluster
    monotonic_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    new_request_id: Callable[[], int]
    call_later: Callable[[int, Callable[[], None]], Cancel]
    """`call_later(delay_ms, callback)` returns a function that cancels the timer."""
    new_connection_number: Callable[[], int] = msgspec.field(default_factory=lambda: itertools.count(1).__next__)
    gone: Callable[[int], None] = ignore_request_id
    """Called with the request id of a join or sync whose client disconnected before it was answered."""
    missing_topic: Callable[[str, str, str], None] = ignore_missing_topic
    """Called with a topic that is not declared, and the id and host of the client that asked for it."""
    turns: Turns = msgspec.field(default_factory=Turns)
    """The turns of all connections of the process."""
    slices: Slices = msgspec.field(default_factory=Slices)
    """The slices of all long requests of the process."""
