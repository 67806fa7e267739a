"""A small `Groups` controlled by a test: it keeps commands, and replies at once or when released."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import new_cluster
from muster.coordinator.group.commands import AnyRequest, Heartbeat
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.load.answer_memory import HELD_BYTES_MAX, answer_memory_of
from muster.coordinator.load.slices import Slices
from muster.coordinator.service import Cancel, CommittedOffset, HeartbeatTicket, ListedGroup, ReplyTo, Service
from muster.coordinator.topics import declare_topic
from muster.events.ids import GroupId

CLUSTER = new_cluster(
    cluster_id="muster-test",
    node_id=1,
    host="127.0.0.1",
    port=9092,
    topics=[declare_topic("orders:3"), declare_topic("clicks:1")],
)
UUID_TEXT = "00000000-0000-4000-8000-000000000000"
NOW_MS, NOW_WALL_MS = 5_000, 1_700_000_000_000


class ScriptedTicket:
    """Valid until `change`; `touched` has the times at which the session was refreshed."""

    def __init__(self) -> None:
        self.valid = True
        self.touched: list[int] = []
        self._when_changed: list[Callable[[], None]] = []

    def accept(self, now_ms: int) -> bool:
        if self.valid:
            self.touched.append(now_ms)
        return self.valid

    def when_changed(self, changed: Callable[[], None]) -> None:
        self._when_changed.append(changed)

    def change(self) -> None:
        """Invalidate, as when the group changes."""
        self.valid = False
        for changed in self._when_changed:
            changed()


class ScriptedGroups:
    """`outcome` returns a command's outcome; None parks it until `release`."""

    def __init__(self, outcome: Callable[[AnyRequest], Outcome | None]) -> None:
        self.outcome = outcome
        self.commands: list[AnyRequest] = []
        self.parked: list[tuple[AnyRequest, ReplyTo]] = []
        self.tickets: list[ScriptedTicket] = []
        self.gives_tickets = False
        self.listed: Sequence[ListedGroup] | ErrorCode = ()
        self.committed: Mapping[GroupId, Mapping[tuple[str, int], CommittedOffset]] = {}
        self.committed_error: ErrorCode | None = None

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        self.commands.append(command)
        outcome = self.outcome(command)
        if outcome is None:
            self.parked.append((command, reply))
        else:
            reply(outcome)

    def release(self, outcome: Outcome) -> None:
        """Reply to the command that was parked first."""
        _, reply = self.parked.pop(0)
        reply(outcome)

    def heartbeat_ticket(self, _command: Heartbeat) -> HeartbeatTicket | None:
        if not self.gives_tickets:
            return None
        self.tickets.append(ScriptedTicket())
        return self.tickets[-1]

    def list_groups(self) -> Sequence[ListedGroup] | ErrorCode:
        return self.listed

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        return self.committed.get(group_id, {}) if self.committed_error is None else self.committed_error


class ManualTimers:
    """Timers that fire when a test calls `pass_all`."""

    def __init__(self) -> None:
        self.pending: dict[int, tuple[int, Callable[[], None]]] = {}
        self._numbers = count()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancel:
        number = next(self._numbers)
        self.pending[number] = (delay_ms, callback)
        return lambda: self.pending.pop(number, None) and None

    def pass_all(self, *, up_to_ms: float = math.inf) -> None:
        """Fire all current timers, or only those set for at most this time."""
        for number in [each for each, (delay_ms, _) in self.pending.items() if delay_ms <= up_to_ms]:
            self.pending.pop(number)[1]()


def new_service(
    groups: ScriptedGroups, timers: ManualTimers | None = None, *, held_bytes_max: int = HELD_BYTES_MAX
) -> Service:
    """A service with stopped clocks and constant randomness."""
    numbers = count(1)
    return Service(
        groups=groups,
        cluster=CLUSTER,
        monotonic_ms=lambda: NOW_MS,
        wall_ms=lambda: NOW_WALL_MS,
        new_uuid=lambda: UUID_TEXT,
        new_request_id=lambda: next(numbers),
        call_later=(timers or ManualTimers()).call_later,
        slices=Slices(answer_memory_of(held_bytes_max)),
    )
