"""Soft state: what a group knows and never writes.

Parked requests, session deadlines, ids handed out by KIP-394 and not yet used, the timers of phases and of plans. All
of it is gone after a takeover; `takeover.resume` makes it anew. All times here are monotonic ms.

A decision works on a copy (`Soft.copy`). A `Session` is the one thing shared between the copies, so that a heartbeat
that comes while an append is in flight is not lost: it is *touched* in place by the shell, and *replaced* by rules.
"""

import math

import msgspec

from coordinator.group.commands import Caller, JoinGroup
from events.ids import GroupInstanceId, MemberId

NEVER = math.inf
"""The deadline of a session whose expiry was ignored because its member is parked (SE3)."""


class Session(msgspec.Struct, kw_only=True):
    """A member's sign of life. `awaits_first_join`: flagged new, five minutes to join (K3)."""

    timeout_ms: int
    deadline_ms: float
    heard_ms: int
    longest_silence_ms: int = 0
    awaits_first_join: bool = False

    def touch(self, now_ms: int) -> None:
        """The member was heard from: full time again."""
        self.hear(now_ms)
        self.deadline_ms = now_ms + self.timeout_ms

    def hear(self, now_ms: int) -> None:
        """The member was heard from in a way that does not feed the session (SE2)."""
        silence_ms = now_ms - self.heard_ms
        self.longest_silence_ms = max(self.longest_silence_ms, silence_ms)
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


class Soft(msgspec.Struct, kw_only=True):
    """`joins` and `syncs`: the parked request of each member. `unsynced`: who has not synced in this generation.

    `catching_up`: until when a member has to sync that got its assignment outside a rebalance (see `roles.py`).
    `arrivals`: who waits to become a member. `claims`: by the member id that lost its instance id, latest last.

    `subscribed_topics`: as of the last join phase that ended (OD6); None: not known, or there was none yet.
    """

    sessions: dict[MemberId, Session] = {}
    pending: dict[MemberId, Session] = {}
    joins: dict[MemberId, Caller] = {}
    syncs: dict[MemberId, Caller] = {}
    unsynced: set[MemberId] = set()
    catching_up: dict[MemberId, int] = {}
    arrivals: dict[MemberId, Arrival] = {}
    claims: dict[MemberId, Claim] = {}
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

    def copy(self) -> "Soft":
        """A copy whose collections are its own; the sessions in them are shared."""
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
        )

    def next_deadline_ms(self) -> float:
        """The earliest deadline of the group; NEVER when there is none."""
        deadlines = [NEVER]
        deadlines.extend(session.deadline_ms for session in self.sessions.values())
        deadlines.extend(session.deadline_ms for session in self.pending.values())
        deadlines.extend(arrival.deadline_ms for arrival in self.arrivals.values())
        deadlines.extend(self.catching_up.values())
        phases = (
            self.join_deadline_ms,
            self.sync_deadline_ms,
            self.registration_deadline_ms,
            self.expansion_deadline_ms,
            self.retirement_deadline_ms,
            self.promotion_deadline_ms,
        )
        deadlines.extend(deadline_ms for deadline_ms in phases if deadline_ms is not None)
        return min(deadlines)
