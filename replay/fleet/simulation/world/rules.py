"""The coordinator of one group: the rules, a clock, and the log.

Runs commands and deadlines, and simulates what an owner does at its start and after a pause. Knows nothing of processes
and incidents. Unlike the test harness of the rules it checks nothing, so that a case takes milliseconds; the world
moves its clock.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from muster.coordinator.group.commands import AnyCommand, AnyDeadline, CheckCapacity, Request
from muster.coordinator.group.decide import Decision, decide
from muster.coordinator.group.extensions import rearm
from muster.coordinator.group.loaded_groups import restore_soft_state
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.timeouts import due
from muster.coordinator.group.turn import Now
from muster.events.events import (
    AnyEvent,
    AnyPartitionEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    Why,
)
from muster.events.ids import GroupId
from muster.events.records import FORMAT_LEVEL
from muster.events.state import Group
from muster.replay.history.items import Coordinated, Happened, LogPosition, Told

GROUP_ID = GroupId("orders")
OWNER = "10.0.9.1:9092"
READING_MS = 40
"""The time that an owner takes to read the partition."""


class Rules:
    """The coordinator. `group` and `soft` are the state after the last command; `reads` is the log."""

    def __init__(self, *, wall_ms: int, settings: GroupSettings, group_id: GroupId = GROUP_ID) -> None:
        self.group_id = group_id
        self.now_ms = 1_000
        self.wall_offset_ms = wall_ms - self.now_ms
        self.settings = settings
        self.group: Group | None = None
        self.soft = SoftState()
        self.reads: list[Told] = []
        self._epoch = -1
        self._owner_began_ms = self.now_ms
        self._incarnation_max = 0
        self.elect()

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.wall_offset_ms

    def send(self, command: AnyCommand) -> Decision:
        """Decide, and apply the decision as the runtime does."""
        decision = decide(command, self.group, self.soft, self._moment(), self.settings)
        if decision.refreshed_session is not None and isinstance(command, Request):
            decision.refreshed_session.refresh(self.now_ms, command.caller.connection)
        self.group, self.soft = decision.group, decision.soft
        if self.group is not None:
            self._incarnation_max = max(self._incarnation_max, self.group.incarnation)
        self._store(decision.events)
        return decision

    def due(self) -> list[AnyDeadline]:
        """The deadlines that have passed."""
        return due(self.group_id, self.soft, self.now_ms) if self.group is not None else []

    def next_deadline_ms(self) -> float:
        return self.soft.next_deadline_ms()

    # ---- owners ---------------------------------------------------------------------------------

    def elect(self, *, owner_before_seen_ms: int | None = None) -> None:
        """A new owner, with its own clock, claims the partition. `owner_before_seen_ms`: the former one's last
        record."""
        self._epoch += 1
        self._owner_began_ms = self.now_ms
        elected = CoordinatorElected(
            partition=0,
            owner_epoch=self._epoch,
            owner=OWNER,
            elected_ms=self.wall_ms,
            version="0",
            format_level=FORMAT_LEVEL,
            settings={
                "group.initial.rebalance.delay.ms": str(self.settings.initial_rebalance_delay_ms),
                "group.min.session.timeout.ms": str(self.settings.min_session_timeout_ms),
                "group.max.session.timeout.ms": str(self.settings.max_session_timeout_ms),
                "group.max.size": str(self.settings.max_size),
            },
        )
        self._tell(elected)
        self.now_ms += READING_MS
        members = len(self.group.members) if self.group is not None else 0
        self._tell(
            CoordinatorReady(
                partition=0,
                owner_epoch=self._epoch,
                owner=OWNER,
                ready_ms=self.wall_ms,
                took_ms=READING_MS,
                events_read=len(self.reads),
                groups=int(self.group is not None),
                members=members,
                incarnation_max=self._incarnation_max,
                **self._of_level_4(
                    CoordinatorReady,
                    owner_before=OWNER if self._epoch else None,
                    owner_before_seen_ms=owner_before_seen_ms,
                ),
            )
        )

    def take_over(self, *, owner_before_seen_ms: int | None) -> Decision | None:
        """Take the group over from the log, with the full timeout for each session; return the resulting decision."""
        self.elect(owner_before_seen_ms=owner_before_seen_ms)
        self.soft = SoftState() if self.group is None else restore_soft_state(self.group, self.now_ms, self.settings)
        if self.group is not None and len(self.group.members) > self.settings.max_size:
            return self.send(CheckCapacity(group_id=self.group_id))
        return None

    def stop(self) -> None:
        """The owner shuts down cleanly."""
        self._tell(
            CoordinatorStopped(
                partition=0,
                owner_epoch=self._epoch,
                owner=OWNER,
                stopped_ms=self.wall_ms,
                **self._of_level_4(CoordinatorStopped),
            )
        )

    def resume(self, late_ms: int) -> None:
        """The owner detects that it was paused, and gives every session and phase its full time again."""
        sessions = rearm(self.group, self.soft, self.now_ms, late_ms=late_ms)
        self._tell(
            CoordinatorPaused(
                partition=0,
                owner_epoch=self._epoch,
                owner=OWNER,
                paused_ms=self.wall_ms,
                late_ms=late_ms,
                sessions=sessions,
                **self._of_level_4(CoordinatorPaused),
            )
        )

    # ---- the log --------------------------------------------------------------------------------

    @property
    def last_record_ms(self) -> int:
        """Wall clock ms of the last record."""
        return self.reads[-1].position.timestamp_ms

    def _store(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            why = msgspec.structs.replace(event.why, **self._of_level_4(Why))
            self.reads.append(Happened(position=self._position(), event=msgspec.structs.replace(event, why=why)))

    def _of_level_4(self, type_: type[msgspec.Struct], **fields: Any) -> dict[str, Any]:
        """The owner's uptime and these fields, as far as the type has them (from format level 4 on)."""
        fields = {"uptime_ms": self.now_ms - self._owner_began_ms, **fields}
        return {name: value for name, value in fields.items() if name in type_.__struct_fields__}

    def _tell(self, event: AnyPartitionEvent) -> None:
        self.reads.append(Coordinated(position=self._position(), event=event))

    def _position(self) -> LogPosition:
        return LogPosition(partition=0, offset=len(self.reads), timestamp_ms=self.wall_ms)

    def _moment(self) -> Now:
        return Now(
            monotonic_ms=self.now_ms,
            wall_ms=self.wall_ms,
            owner_epoch=self._epoch,
            incarnation=max(self.wall_ms, self._incarnation_max + 1),
        )
