"""A turn builds one decision.

A rule is a function of a turn: it reads the group as it is *within* this decision, records events (each is immediately
applied to the turn's own copy, through `evolve`), answers requests, and changes the turn's own copy of the soft state.
Nothing is visible outside until the runtime has made the events durable.

`image` is the group's own record as it will be. The next group event writes it, or, if members changed and no group
event followed, a `GroupAdvanced` at the end of the turn.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.census import Census, count
from muster.coordinator.group.commands import Caller, JoinGroup
from muster.coordinator.group.outcomes import JoinGroupOutcome, Outcome, Reply, SyncGroupOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import RateLimitWindow, RefusedSender, Session, SoftState
from muster.coordinator.group.transitions import assert_valid_transition
from muster.events.causes import Cause
from muster.events.connection import LastConnection
from muster.events.events import (
    AnyEvent,
    AnyGroupEvent,
    AnyMemberEvent,
    AnyRegistrationEvent,
    GroupAdvanced,
    GroupConfigured,
    GroupEvent,
    JoinRefused,
    MemberFenced,
    MemberRemoved,
    Why,
)
from muster.events.evolve import apply
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.records import FORMAT_LEVEL
from muster.events.state import Group, GroupConfig, GroupState, Member, Registration

SILENCE = frozenset({Cause.SESSION_EXPIRED, Cause.NOT_REJOINED, Cause.SYNC_TIMED_OUT, Cause.FIRST_JOIN_TIMED_OUT})
"""The causes of removals of members that may be dead, cut off or slow."""

REMOVED_MEMBERS_MAX = 1_000
"""How many removed silent members are remembered for each group, in case they are heard from again."""

REFUSALS_WINDOW_MS = 60_000
REFUSALS_PER_WINDOW = 10
"""How many refused joins and fenced requests of a group are recorded per window; a sender's next record counts those
that were not.
"""

OFFERED_MAX = 16
NAME_CHARS_MAX = 255
"""The maximum number of protocols that are recorded for a refused join, and of characters of each protocol's name.

Clients may send more.
"""


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The time and the owner of a decision: monotonic ms for deadlines, wall clock ms for events."""

    monotonic_ms: int
    """Monotonic, since the process began; events record it as their `uptime_ms`."""
    wall_ms: int
    owner_epoch: int
    incarnation: int
    """The incarnation of a group that this decision creates."""
    format_level: int = FORMAT_LEVEL
    """The event log's level; the log cannot store what higher levels introduced."""

    def wall_of(self, then_ms: float) -> int:
        """Return the wall time of a monotonic time."""
        return self.wall_ms - int(self.monotonic_ms - then_ms)


class Turn:
    """One decision in the making. `group` and `soft` are its own copies of the state."""

    def __init__(self, group: Group, soft: SoftState, now: Now, settings: GroupSettings) -> None:
        self.group = group
        self.soft = soft
        self.now = now
        self.settings = settings
        self.image = group.image
        self.events: list[AnyEvent] = []
        self.replies: list[Reply] = []
        self.why = Why(cause=Cause.UNKNOWN, arrived_ms=now.wall_ms, decided_ms=now.wall_ms, uptime_ms=now.monotonic_ms)
        self._last_is_group_event = True

    @property
    def now_ms(self) -> int:
        return self.now.monotonic_ms

    # ---- why ------------------------------------------------------------------------------------

    def caused_by(
        self,
        cause: Cause,
        caller: Caller,
        member_id: MemberId,
        group_instance_id: GroupInstanceId | None,
        reason: str | None = None,
    ) -> None:
        """Attribute the events that follow to this request."""
        self.why = Why(
            cause=cause,
            member_id=member_id or None,
            group_instance_id=group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            principal=caller.principal,
            api_key=caller.api_key,
            api_version=caller.api_version,
            client_reason=reason or None,
            arrived_ms=caller.arrived_wall_ms,
            decided_ms=self.now.wall_ms,
            uptime_ms=self.now_ms,
            connection_id=caller.connection_id,
        )

    def caused_by_deadline(self, cause: Cause, due_ms: float, member: Member | None = None) -> None:
        """Attribute the events that follow to a deadline, or to our own upkeep; `due_ms` is monotonic."""
        self.why = Why(
            cause=cause,
            member_id=member.member_id if member else None,
            group_instance_id=member.group_instance_id if member else None,
            client_id=member.client_id if member else None,
            client_host=member.client_host if member else None,
            principal=member.principal if member else None,
            arrived_ms=self.now.wall_of(due_ms),
            decided_ms=self.now.wall_ms,
            uptime_ms=self.now_ms,
        )

    def followed_by(self, cause: Cause, *, parked: Mapping[MemberId, Caller] | None = None) -> None:
        """Attribute the events that follow to another cause; `parked`: the requests that waited for them."""
        oldest_ms = min((caller.arrived_ms for caller in (parked or {}).values()), default=self.now_ms)
        self.why = msgspec.structs.replace(self.why, cause=cause, parked_ms=max(0, self.now_ms - oldest_ms))

    # ---- events ---------------------------------------------------------------------------------

    def change(self, **fields: Any) -> None:  # noqa: ANN401 -- the fields of GroupImage
        """Change the group's own record, to be written by the next group event."""
        self.image = msgspec.structs.replace(self.image, **fields)

    def enter(self, state: GroupState, **fields: Any) -> None:  # noqa: ANN401 -- the fields of GroupImage
        """Move the group to another state (S1, S4). Raises IllegalTransition."""
        assert_valid_transition(self.group.group_id, self.image.state, state)
        self.change(state=state, previous_state=self.image.state, state_since_ms=self.now.wall_ms, **fields)

    def record(self, event_type: type[AnyGroupEvent], **fields: Any) -> None:  # noqa: ANN401 -- the event's own fields
        """Record an event on the group's own key, with the current `image`."""
        self._append(event_type(**self._head(), group=self.image, why=self.why, **fields))

    def record_member(
        self,
        event_type: type[AnyMemberEvent],
        member: Member,
        *,
        counts_anew: bool = True,
        is_armed: bool = False,
        **fields: Any,  # noqa: ANN401 -- the event's own fields
    ) -> None:
        """Record an event on a member's key, and restart the measurement of its longest silence.

        `counts_anew`: the census may change. `is_armed`: its session gets its full time.
        """
        if counts_anew and self.soft.census is not None:
            self.soft.census.change(self._known_as(member), None if event_type is MemberRemoved else member)
        session = self.soft.sessions.get(member.member_id)
        last_seen_ms = session.last_seen_ms if session else self.now_ms
        group = self.group
        self._append(
            event_type(  # the common fields are spelled out, because an assignment writes one event for every member
                group_id=group.group_id,
                incarnation=group.incarnation,
                seq=group.seq + 1,
                owner_epoch=self.now.owner_epoch,
                member=member,
                last_seen_ms=self.now.wall_of(last_seen_ms),
                longest_silence_ms=session.longest_silence_ms if session else 0,
                heard=session.heard if session else True,
                why=self.why,
                **fields,
            )
        )
        if session is not None and event_type is not MemberRemoved:
            renewed: Session = msgspec.structs.replace(session, longest_silence_ms=0)
            if is_armed:
                renewed.arm(self.now_ms)
            self.soft.sessions[member.member_id] = renewed

    def _known_as(self, member: Member) -> Member | None:
        """Return the member that an event about `member` replaces: its previous version, or its instance's former
        member.
        """
        members, instance = self.group.members, member.group_instance_id
        holder = self.group.instances.get(instance) if instance is not None else None
        return members.get(member.member_id if holder is None else holder)

    def record_registration(self, event_type: type[AnyRegistrationEvent], registration: Registration) -> None:
        """Record an event on the key of a registered instance."""
        self._append(event_type(**self._head(), registration=registration, why=self.why))

    def record_config(self, config: GroupConfig) -> None:
        """Record the group's own configs."""
        self._append(GroupConfigured(**self._head(), config=config, why=self.why))

    def _head(self) -> dict[str, Any]:
        return {
            "group_id": self.group.group_id,
            "incarnation": self.group.incarnation,
            "seq": self.group.seq + 1,
            "owner_epoch": self.now.owner_epoch,
        }

    def _append(self, event: AnyEvent) -> None:
        apply(self.group, event)
        self.events.append(event)
        self._last_is_group_event = isinstance(event, GroupEvent)

    @property
    def census(self) -> Census:
        """The counts over all members within this decision."""
        if self.soft.census is None:
            self.soft.census = count(self.group.members.values())
        return self.soft.census

    def finish(self) -> None:
        """Write the group's own record if members or `image` changed after it was last written."""
        if not self._last_is_group_event or self.image is not self.group.image:
            self.record(GroupAdvanced)

    def forget_census(self) -> None:
        """Drop the census of a small, idle group, where recounting costs less than the memory."""
        census, settled = self.soft.census, self.image.state in (GroupState.STABLE, GroupState.EMPTY)
        if census is not None and settled and not census.is_worth_keeping:
            self.soft.census = None

    # ---- members and their sessions -------------------------------------------------------------

    def remove(self, member: Member) -> None:
        """Remove a member; answer its parked requests with UNKNOWN_MEMBER_ID, so that it rejoins as new (L8, QK2)."""
        self.record_member(MemberRemoved, member, last_connection=self.last_connection(member.member_id))
        self.soft.sessions.pop(member.member_id, None)
        self.soft.pending_syncs.discard(member.member_id)
        self.soft.member_sync_deadlines.pop(member.member_id, None)
        if not self.soft.pending_syncs:
            self.soft.sync_deadline_ms = None
        self.answer_parked(member.member_id, ErrorCode.unknown_member_id)
        if not self.group.members:
            self.change(emptied_by=self.why.cause)
        if self.why.cause in SILENCE:
            self._remember_removed(member.member_id)
        if self.image.leader_id == member.member_id:
            self.change(leader_id=self.census.oldest(self.group.members))

    def _remember_removed(self, member_id: MemberId) -> None:
        removed = self.soft.removed_members
        if len(removed) >= REMOVED_MEMBERS_MAX:
            # A tenth at a time, since finding the oldest ones costs as much as copying all.
            for oldest in tuple(islice(removed, REMOVED_MEMBERS_MAX // 10)):
                removed.discard(oldest)
        removed.add(member_id)

    def arm(self, member_id: MemberId) -> None:
        """Give the session its full time, without having heard from the member."""
        session: Session = msgspec.structs.replace(self.soft.sessions[member_id])
        session.arm(self.now_ms)
        self.soft.sessions[member_id] = session

    def heard_wall_ms(self, member_id: MemberId) -> int | None:
        """Return the wall time when the member was last heard from; None if not since a takeover."""
        session = self.soft.sessions[member_id]
        return self.now.wall_of(session.last_seen_ms) if session.heard else None

    def last_connection(self, member_id: MemberId) -> LastConnection | None:
        """Return the connection that a member last used; None if it was not heard from since a takeover."""
        session = self.soft.sessions.get(member_id)
        connection = None if session is None else session.connection
        return None if connection is None else connection.recorded(self.now.wall_of)

    def note_seen(self, member_id: MemberId, caller: Caller) -> None:
        """Note that the member was seen in a way that does not refresh its session (SE2)."""
        session: Session = msgspec.structs.replace(self.soft.sessions[member_id], connection=caller.connection)
        session.note_seen(self.now_ms)
        self.soft.sessions[member_id] = session

    # ---- replies --------------------------------------------------------------------------------

    def reply(self, caller: Caller, outcome: Outcome) -> None:
        self.replies.append(Reply(caller.request_id, outcome))

    def answer_parked(self, member_id: MemberId, error: ErrorCode, echo: MemberId = UNKNOWN_MEMBER_ID) -> None:
        """Answer the member's parked join and sync with an error."""
        join = self.soft.parked_joins.pop(member_id, None)
        if join is not None:
            self.reply(join, JoinGroupOutcome(error=error, member_id=echo))
        sync = self.soft.parked_syncs.pop(member_id, None)
        if sync is not None:
            self.reply(sync, SyncGroupOutcome(error=error))

    # ---- refusals -------------------------------------------------------------------------------

    def note_refused_join(self, join: JoinGroup, error: ErrorCode) -> None:
        """Record that a join was refused, and what it offered, within the rate limit."""
        self.soft.refused_joins, suppressed = self._counted(self.soft.refused_joins)
        if suppressed is not None:
            self.record(
                JoinRefused,
                error_code=error.value,
                suppressed=suppressed,
                protocol_type=join.protocol_type[:NAME_CHARS_MAX],
                offered_protocols=tuple(protocol.name[:NAME_CHARS_MAX] for protocol in join.protocols[:OFFERED_MAX]),
                session_timeout_ms=join.session_timeout_ms,
            )

    def note_fenced(self, error: ErrorCode, current: Member | None) -> None:
        """Record that a request was fenced, and the member that holds the instance id, within the rate limit."""
        self.soft.fences, suppressed = self._counted(self.soft.fences)
        self._record_fence(error, current, suppressed)

    def note_duel(self, current: Member) -> None:
        """Record a duel, within the rate limit; the record counts the unrecorded ones of its instance id, from either
        process.
        """
        self.soft.duels, suppressed = self._counted(self.soft.duels, of_both=True)
        self._record_fence(ErrorCode.fenced_instance_id, current, suppressed)

    def _record_fence(self, error: ErrorCode, current: Member | None, suppressed: int | None) -> None:
        if suppressed is not None:
            self.record(
                MemberFenced,
                error_code=error.value,
                current_member_id=current.member_id if current else None,
                current_client_id=current.client_id if current else None,
                current_client_host=current.client_host if current else None,
                suppressed=suppressed,
            )

    def _counted(self, window: RateLimitWindow, *, of_both: bool = False) -> tuple[RateLimitWindow, int | None]:
        """Count a refusal of this sender, or, with `of_both`, of either process that has its instance id."""
        why = self.why
        sender = RefusedSender(
            cause=why.cause,
            group_instance_id=why.group_instance_id or "",
            client_id="" if of_both else (why.client_id or "")[:NAME_CHARS_MAX],
            client_host="" if of_both else why.client_host or "",
        )
        return window.counted(sender, self.now_ms, window_ms=REFUSALS_WINDOW_MS, limit=REFUSALS_PER_WINDOW)
