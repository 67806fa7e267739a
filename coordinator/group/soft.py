"""Soft state: what a group knows and never writes.

Parked requests, session deadlines, ids handed out by KIP-394 and not yet used, the timers of phases and of plans. All
of it is gone after a takeover; `takeover.resume` makes it anew. All times here are monotonic ms.

A decision works on a copy (`Soft.copy`). A `Session` is the one thing shared between the copies, so that a heartbeat
that comes while an append is in flight is not lost: it is *touched* in place by the shell, and *replaced* by rules.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from muster.coordinator.group.census import Census
from muster.coordinator.group.commands import (
    AnyGroupDeadline,
    Caller,
    EndExpansion,
    EndJoinPhase,
    EndRegistration,
    EndRetirement,
    EndSyncPhase,
    JoinGroup,
    PromoteLearners,
)
from muster.coordinator.group.timed import Timed
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.tables import Table, TableSet

NEVER = math.inf
"""The deadline of a session whose expiry was ignored because its member is parked (SE3)."""

PHASES: Mapping[str, type[AnyGroupDeadline]] = {
    "join_deadline_ms": EndJoinPhase,
    "sync_deadline_ms": EndSyncPhase,
    "registration_deadline_ms": EndRegistration,
    "expansion_deadline_ms": EndExpansion,
    "retirement_deadline_ms": EndRetirement,
    "promotion_deadline_ms": PromoteLearners,
}
"""The deadlines of the whole group, by their names in `Soft`, and what is decided when they have come."""


class Session(msgspec.Struct, kw_only=True):
    """A member's sign of life. `awaits_first_join`: flagged new, five minutes to join (K3)."""

    timeout_ms: int
    deadline_ms: float
    heard_ms: int
    longest_silence_ms: int = 0
    awaits_first_join: bool = False

    def touch(self, heard_ms: int, *, answered_ms: int | None = None) -> None:
        """Give the member its full time again, because of a request that came at `heard_ms`.

        Its time runs from when the request is answered, if that is later: it may not send another one before.
        """
        self.hear(heard_ms)
        self.deadline_ms = (heard_ms if answered_ms is None else answered_ms) + self.timeout_ms

    def arm(self, now_ms: int) -> None:
        """Give the member its full time again, without a sign of life. Of a session that is this decision's own."""
        self.deadline_ms = now_ms + self.timeout_ms
        self.awaits_first_join = False

    def hear(self, now_ms: int) -> None:
        """The member was heard from in a way that does not feed the session (SE2)."""
        silence_ms = now_ms - self.heard_ms
        if silence_ms > self.longest_silence_ms:  # noqa: PLR1730 -- every heartbeat comes by, and a call takes longer
            self.longest_silence_ms = silence_ms
        self.heard_ms = now_ms


class InitialDelay(msgspec.Struct, frozen=True, kw_only=True):
    """The initial rebalance delay that is running (KIP-134, I1 to I3)."""

    delay_ms: int
    remaining_ms: int
    member_joined: bool = False


class Refusals(msgspec.Struct, frozen=True, kw_only=True):
    """How many refusals were written in the current window, and how many were not."""

    window_ms: float = -NEVER
    written: int = 0
    suppressed: int = 0


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A new member that is held until others have come, or a delay is over (see `arrivals.py`): its last join.

    While `parked`, the deadline is when it is sent back to ask again; afterwards, when it is no longer waited for.
    """

    join: JoinGroup
    arrived_ms: int
    deadline_ms: int
    parked: bool = True


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An instance id that was taken from a process (see `duels.py`), and when that process was heard from since."""

    group_instance_id: GroupInstanceId
    heard_again_ms: int | None = None


class Sessions(Timed[Session]):
    """By member id."""

    __slots__ = ()

    @staticmethod
    def deadline_ms(value: Session) -> float:
        return value.deadline_ms

    @staticmethod
    def earliest_ms(value: Session, heard_ms: float = -NEVER) -> float:
        heard_ms = value.heard_ms if value.heard_ms > heard_ms else heard_ms
        moved_ms = heard_ms + value.timeout_ms
        return moved_ms if moved_ms < value.deadline_ms else value.deadline_ms


class Arrivals(Timed[Arrival]):
    """By the member id that each will have, in the order in which they came. `instances`: member ids by instance id."""

    __slots__ = ("instances",)

    def __init__(self, entries: Mapping[MemberId, Arrival] | Iterable[tuple[MemberId, Arrival]] = ()) -> None:
        super().__init__(entries)
        self.instances: Table[GroupInstanceId, MemberId] = Table()
        for member_id, arrival in self.items():
            if arrival.join.group_instance_id is not None:
                self.instances[arrival.join.group_instance_id] = member_id

    @staticmethod
    def deadline_ms(value: Arrival) -> float:
        return value.deadline_ms

    @staticmethod
    def earliest_ms(value: Arrival, heard_ms: float = -NEVER) -> float:
        return value.deadline_ms

    def copy(self) -> Self:
        twin = super().copy()
        twin.instances = self.instances.copy()
        return twin

    def __setitem__(self, member_id: MemberId, arrival: Arrival) -> None:
        super().__setitem__(member_id, arrival)
        if arrival.join.group_instance_id is not None:
            self.instances[arrival.join.group_instance_id] = member_id

    def __delitem__(self, member_id: MemberId) -> None:
        instance = self[member_id].join.group_instance_id
        super().__delitem__(member_id)
        if instance is not None:
            del self.instances[instance]

    def clear(self) -> None:
        super().clear()
        self.instances.clear()


class CatchUps(Timed[int]):
    """Deadlines, by member id."""

    __slots__ = ()

    @staticmethod
    def deadline_ms(value: int) -> float:
        return value

    @staticmethod
    def earliest_ms(value: int, heard_ms: float = -NEVER) -> float:
        return value


class Soft(msgspec.Struct, kw_only=True):
    """`joins` and `syncs`: the parked request of each member. `unsynced`: who has not synced in this generation.

    `catching_up`: until when a member has to sync that got its assignment outside a rebalance (see `roles.py`).
    `arrivals`: who waits to become a member. `claims`: by the member id that lost its instance id, latest last.

    `subscribed_topics`: as of the last join phase that ended (OD6), and of those who were let in since; None: not
    known, or there was none yet. `census`: None while nobody has asked for it (see `census.py`).
    """

    sessions: Sessions = msgspec.field(default_factory=Sessions)
    pending: Sessions = msgspec.field(default_factory=Sessions)
    joins: Table[MemberId, Caller] = msgspec.field(default_factory=Table)
    syncs: Table[MemberId, Caller] = msgspec.field(default_factory=Table)
    unsynced: TableSet[MemberId] = msgspec.field(default_factory=TableSet)
    catching_up: CatchUps = msgspec.field(default_factory=CatchUps)
    arrivals: Arrivals = msgspec.field(default_factory=Arrivals)
    claims: Table[MemberId, Claim] = msgspec.field(default_factory=Table)
    registration_deadline_ms: int | None = None
    expansion_deadline_ms: int | None = None
    retirement_deadline_ms: int | None = None
    promotion_deadline_ms: int | None = None
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    initial_delay: InitialDelay | None = None
    subscribed_topics: frozenset[str] | None = None
    refusals: Refusals = Refusals()
    duels: Refusals = Refusals()
    census: Census | None = None

    def copy(self) -> "Soft":
        """Another version, which changes on its own from here on; the sessions in it are shared."""
        return Soft(
            sessions=self.sessions.copy(),
            pending=self.pending.copy(),
            joins=self.joins.copy(),
            syncs=self.syncs.copy(),
            unsynced=self.unsynced.copy(),
            catching_up=self.catching_up.copy(),
            arrivals=self.arrivals.copy(),
            claims=self.claims.copy(),
            registration_deadline_ms=self.registration_deadline_ms,
            expansion_deadline_ms=self.expansion_deadline_ms,
            retirement_deadline_ms=self.retirement_deadline_ms,
            promotion_deadline_ms=self.promotion_deadline_ms,
            join_deadline_ms=self.join_deadline_ms,
            sync_deadline_ms=self.sync_deadline_ms,
            initial_delay=self.initial_delay,
            subscribed_topics=self.subscribed_topics,
            refusals=self.refusals,
            duels=self.duels,
            census=None if self.census is None else self.census.copy(),
        )

    def next_deadline_ms(self) -> float:
        """No deadline of the group is earlier; NEVER when there is none. Nothing need be due then (`timed.py`)."""
        phases: Iterable[int | None] = (getattr(self, phase) for phase in PHASES)
        return min(
            self.sessions.next_ms(),
            self.pending.next_ms(),
            self.arrivals.next_ms(),
            self.catching_up.next_ms(),
            *(deadline_ms for deadline_ms in phases if deadline_ms is not None),
        )
