"""Soft state: the part of a group's state that is never written.

Parked requests, session deadlines, pending members (KIP-394), the deadlines of phases, registrations and so on. All of
it is lost in a takeover and rebuilt by `loaded_groups.restore_soft_state`. All times here are monotonic ms.

A decision works on a copy (`SoftState.copy`). Only `Session`s are shared between copies, so that a heartbeat that
arrives while an append is in flight is not lost: the runtime *refreshes* a session in place, rules *replace* it.
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
from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.deadline_table import DeadlineTable
from muster.events.causes import Cause
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import HandedOutId, ReturnedMember
from muster.events.tables import Table, TableSet

NEVER = math.inf
"""The deadline of a session that expired while a request of its member was parked (SE3)."""

PHASES: Mapping[str, type[AnyGroupDeadline]] = {
    "join_deadline_ms": EndJoinPhase,
    "sync_deadline_ms": EndSyncPhase,
    "registration_deadline_ms": EndRegistration,
    "expansion_deadline_ms": EndExpansion,
    "retirement_deadline_ms": EndRetirement,
    "promotion_deadline_ms": PromoteLearners,
}
"""The deadlines of the whole group, by field of `SoftState`, and the command to run when each has passed."""


class Session(msgspec.Struct, kw_only=True):
    """The session of a member. `awaits_first_join`: its first join is parked, which may take five minutes (K3).

    `heard`: the member was heard from at `last_seen_ms`; False: that is the time of a takeover, and it has been silent
    since. `rearmed_ms`: the end of the last period in which the member could not be heard, and for which it got more
    time (see `extensions.py`). `connection`: the connection of its last request; None: it was not heard from since a
    takeover.
    """

    timeout_ms: int
    deadline_ms: float
    last_seen_ms: int
    longest_silence_ms: int = 0
    awaits_first_join: bool = False
    heard: bool = True
    rearmed_ms: float = -NEVER
    connection: ConnectionRecord | None = None

    def refresh(
        self, last_seen_ms: int, connection: ConnectionRecord | None, *, answered_ms: int | None = None
    ) -> None:
        """Give the member its full time again, because of a request that arrived at `last_seen_ms` on `connection`.

        The time runs from `answered_ms` if that is later, since the client may send nothing before that.
        """
        silence_ms = last_seen_ms - self.last_seen_ms
        if silence_ms > self.longest_silence_ms:  # noqa: PLR1730 -- runs for every heartbeat, and a call takes longer
            self.longest_silence_ms = silence_ms
        self.last_seen_ms = last_seen_ms
        if not self.heard:  # a comparison is cheaper than storing what is there already
            self.heard = True
        if self.connection is not connection:
            self.connection = connection
        self.deadline_ms = (last_seen_ms if answered_ms is None else answered_ms) + self.timeout_ms

    def arm(self, now_ms: int) -> None:
        """Give the member its full time again without having seen it. For sessions that this decision has copied."""
        self.deadline_ms = now_ms + self.timeout_ms
        self.awaits_first_join = False

    def note_seen(self, now_ms: int) -> None:
        """Note that the member was seen, without refreshing the session (SE2)."""
        deadline_ms = self.deadline_ms
        self.refresh(now_ms, self.connection)
        self.deadline_ms = deadline_ms


class PendingMember(Session, kw_only=True):
    """A client that is expected to join with the member id that it was given at `last_seen_ms` (KIP-394)."""

    client_id: str
    client_host: str


class InitialDelay(msgspec.Struct, frozen=True, kw_only=True):
    """The initial rebalance delay that is running (KIP-134, I1 to I3)."""

    delay_ms: int
    remaining_ms: int
    new_member_added: bool = False


class RefusedSender(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of refused requests, and their cause. A duel has two senders, so it has no client id and host."""

    cause: Cause
    group_instance_id: str
    client_id: str
    client_host: str


SENDERS_MAX = 100
"""Senders of a group whose unwritten refusals are counted; the counts of the oldest are dropped."""


class RateLimitWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The rate limit for recording refusals: how many were written since the window began.

    `suppressed`: by sender, how many refusals were left out since the last one that was written.
    """

    started_ms: float = -NEVER
    written: int = 0
    suppressed: Mapping[RefusedSender, int] = msgspec.field(default_factory=dict)

    def counted(
        self, sender: RefusedSender, now_ms: int, *, window_ms: int, limit: int
    ) -> "tuple[RateLimitWindow, int | None]":
        """Count a refusal; return how many of its sender were suppressed before it, or None to suppress this one."""
        is_over = now_ms - self.started_ms >= window_ms
        started_ms, written = (now_ms, 0) if is_over else (self.started_ms, self.written)
        before = self.suppressed.get(sender, 0)
        others = {each: times for each, times in self.suppressed.items() if each != sender}
        if written < limit:
            return RateLimitWindow(started_ms=started_ms, written=written + 1, suppressed=others), before
        while len(others) >= SENDERS_MAX:
            del others[next(iter(others))]
        others[sender] = before + 1
        return RateLimitWindow(started_ms=started_ms, written=written, suppressed=others), None


class HeldJoin(msgspec.Struct, frozen=True, kw_only=True):
    """The join of a new member that is held until others have joined, or a delay is over (see `held_joins.py`).

    While it is `parked`, the deadline is when it is sent back to be retried; after that, when the retry is no longer
    expected.
    """

    join: JoinGroup
    arrived_ms: int
    deadline_ms: int
    parked: bool = True


class ReplacedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member id that lost its instance id to another process, and when it was seen since (see `duels.py`)."""

    group_instance_id: GroupInstanceId
    seen_again_ms: int | None = None


class Sessions(DeadlineTable[Session]):
    """Sessions, by member id."""

    __slots__ = ()

    @staticmethod
    def deadline_ms(value: Session) -> float:
        return value.deadline_ms

    @staticmethod
    def earliest_ms(value: Session, last_seen_ms: float = -NEVER) -> float:
        last_seen_ms = value.last_seen_ms if value.last_seen_ms > last_seen_ms else last_seen_ms
        moved_ms = last_seen_ms + value.timeout_ms
        return moved_ms if moved_ms < value.deadline_ms else value.deadline_ms


class HeldJoins(DeadlineTable[HeldJoin]):
    """Held joins by their future member id, in order of arrival. `instances`: these ids by instance id."""

    __slots__ = ("instances",)

    def __init__(self, entries: Mapping[MemberId, HeldJoin] | Iterable[tuple[MemberId, HeldJoin]] = ()) -> None:
        super().__init__(entries)
        self.instances: Table[GroupInstanceId, MemberId] = Table()
        for member_id, held in self.items():
            if held.join.group_instance_id is not None:
                self.instances[held.join.group_instance_id] = member_id

    @staticmethod
    def deadline_ms(value: HeldJoin) -> float:
        return value.deadline_ms

    @staticmethod
    def earliest_ms(value: HeldJoin, _last_seen_ms: float = -NEVER) -> float:
        return value.deadline_ms

    def copy(self) -> Self:
        twin = super().copy()
        twin.instances = self.instances.copy()
        return twin

    def __setitem__(self, member_id: MemberId, held: HeldJoin) -> None:
        super().__setitem__(member_id, held)
        if held.join.group_instance_id is not None:
            self.instances[held.join.group_instance_id] = member_id

    def __delitem__(self, member_id: MemberId) -> None:
        instance = self[member_id].join.group_instance_id
        super().__delitem__(member_id)
        if instance is not None:
            del self.instances[instance]

    def clear(self) -> None:
        super().clear()
        self.instances.clear()


class MemberSyncDeadlines(DeadlineTable[int]):
    """The sync deadlines of members that got an assignment outside a rebalance, by member id."""

    __slots__ = ()

    @staticmethod
    def deadline_ms(value: int) -> float:
        return value

    @staticmethod
    def earliest_ms(value: int, _last_seen_ms: float = -NEVER) -> float:
        return value


class SoftState(msgspec.Struct, kw_only=True):
    """The soft state of one group; the tables are by member id.

    `pending_members`: given a new id (KIP-394), and not back with it yet. `settled_ids`: the outcome of such ids that
    the running join phase waited for; `settled_ids_more` counts the rest (see `handed_out.py`). `parked_joins`,
    `parked_syncs`: the senders of the parked requests. `pending_syncs`: members that have not synced in this
    generation. `member_sync_deadlines`: for members that got an assignment outside a rebalance. `held_joins`: see
    `held_joins.py`. `replaced_members`: by the member id that lost its instance id, the latest last.

    `removed_members`: members that were removed after going silent, the latest last. `returned_members`: the removed
    members that were heard from since; `returned_members_more` counts the rest (see `returned.py`).

    `subscribed_topics`: as of the end of the last join phase (OD6), plus those of members added since; None: unknown,
    or there was no join phase yet. `census`: None until it is needed (see `census.py`). `rearmed`: by phase or member
    id, the other deadlines that were given their full time because members could not be heard, the last time until
    `rearmed_ms` (see `extensions.py`); never changed in place.
    """

    sessions: Sessions = msgspec.field(default_factory=Sessions)
    pending_members: Sessions = msgspec.field(default_factory=Sessions)
    settled_ids: tuple[HandedOutId, ...] = ()
    settled_ids_more: int = 0
    parked_joins: Table[MemberId, Caller] = msgspec.field(default_factory=Table)
    parked_syncs: Table[MemberId, Caller] = msgspec.field(default_factory=Table)
    pending_syncs: TableSet[MemberId] = msgspec.field(default_factory=TableSet)
    member_sync_deadlines: MemberSyncDeadlines = msgspec.field(default_factory=MemberSyncDeadlines)
    held_joins: HeldJoins = msgspec.field(default_factory=HeldJoins)
    replaced_members: Table[MemberId, ReplacedMember] = msgspec.field(default_factory=Table)
    removed_members: TableSet[MemberId] = msgspec.field(default_factory=TableSet)
    returned_members: tuple[ReturnedMember, ...] = ()
    returned_members_more: int = 0
    registration_deadline_ms: int | None = None
    expansion_deadline_ms: int | None = None
    retirement_deadline_ms: int | None = None
    promotion_deadline_ms: int | None = None
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    initial_delay: InitialDelay | None = None
    subscribed_topics: frozenset[str] | None = None
    refused_joins: RateLimitWindow = RateLimitWindow()
    fences: RateLimitWindow = RateLimitWindow()
    duels: RateLimitWindow = RateLimitWindow()
    census: Census | None = None
    rearmed: Mapping[str, int] = msgspec.field(default_factory=dict)
    rearmed_ms: int = 0

    def copy(self) -> "SoftState":
        """Return a copy that shares only the sessions; the cost does not depend on the size of the group."""
        return SoftState(
            sessions=self.sessions.copy(),
            pending_members=self.pending_members.copy(),
            settled_ids=self.settled_ids,
            settled_ids_more=self.settled_ids_more,
            parked_joins=self.parked_joins.copy(),
            parked_syncs=self.parked_syncs.copy(),
            pending_syncs=self.pending_syncs.copy(),
            member_sync_deadlines=self.member_sync_deadlines.copy(),
            held_joins=self.held_joins.copy(),
            replaced_members=self.replaced_members.copy(),
            removed_members=self.removed_members.copy(),
            returned_members=self.returned_members,
            returned_members_more=self.returned_members_more,
            registration_deadline_ms=self.registration_deadline_ms,
            expansion_deadline_ms=self.expansion_deadline_ms,
            retirement_deadline_ms=self.retirement_deadline_ms,
            promotion_deadline_ms=self.promotion_deadline_ms,
            join_deadline_ms=self.join_deadline_ms,
            sync_deadline_ms=self.sync_deadline_ms,
            initial_delay=self.initial_delay,
            subscribed_topics=self.subscribed_topics,
            refused_joins=self.refused_joins,
            fences=self.fences,
            duels=self.duels,
            census=None if self.census is None else self.census.copy(),
            rearmed=self.rearmed,
            rearmed_ms=self.rearmed_ms,
        )

    def next_deadline_ms(self) -> float:
        """Return the time before which no deadline passes, which may be too early (`deadline_table.py`); NEVER without
        any.
        """
        phases: Iterable[int | None] = (getattr(self, phase) for phase in PHASES)
        return min(
            self.sessions.next_ms(),
            self.pending_members.next_ms(),
            self.held_joins.next_ms(),
            self.member_sync_deadlines.next_ms(),
            *(deadline_ms for deadline_ms in phases if deadline_ms is not None),
        )
