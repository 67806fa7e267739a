"""One shadow as a state machine: the request to send next, and what each response changes.

A *shadow* is Muster's one static member in the group of the same name upstream. While it is in the group, the broker
fences for us: it refuses direct members, keeps the offsets, and accepts only commits with the shadow's member id and
generation. To *bump* the shadow for one of our generations is to make it join again, so that upstream's generation
grows.

    state     wanted                    next request
    OUT       a generation              Join without a member id
    UNSURE    a generation              the same: it replaces any member with its instance id (KIP-345)
    JOINED    a generation              Sync; until then the broker answers commits with 27 (REBALANCE_IN_PROGRESS)
    IN        another generation        Join with the member id: it is the leader, so upstream's generation grows
    IN        that generation           none, or a Heartbeat when it is due
    OUT       nothing, or withdrawn     none
    others    nothing, or withdrawn     Leave; in UNSURE without a member id, by its instance id

Decides which refusals are final. Knows nothing of I/O, time or attempts.

Rules:
S1  An identity (upstream's member id and generation) is used for only one generation of ours.
S2  It is used for a generation only after the broker has begun the identity's generation, or replaced its member id,
    later than the last use of the previous identity: so requests in flight with the previous one are refused
    (22, 82, 25).
S3  While the shadow stays in the group, the generations used grow strictly. A replaced member keeps its generation, so
    if that one was used before, the shadow joins once more.
S4  An identity that was never used may be used for any generation: several bumps requested at once need one join.
"""

from enum import Enum
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.group_requests import AsMember, GroupRequest, heartbeat, join, leave, sync

PROTOCOL_TYPE: Final = "muster"
"""Not `consumer`: a direct member of the newer protocol (KIP-848) would convert such a group."""
UNKNOWN_GENERATION: Final = -1
"""The wanted generation of a group whose generation is not yet known."""


class ShadowName(msgspec.Struct, frozen=True, kw_only=True):
    """The group.instance.id and protocol name of all shadows of one service, i.e. of one event log.

    A member can join only with a protocol that all members support. So if a second service shares the cluster, the
    broker refuses its shadow with 23 (INCONSISTENT_GROUP_PROTOCOL), even if both join at once. The instance id
    identifies a shadow after a restart.
    """

    group_instance_id: str
    protocol_name: str

    @classmethod
    def of(cls, log_identity: str) -> "ShadowName":
        """Return the name for the service whose event log has this identity (`EventLog.identity`)."""
        return cls(group_instance_id=f"muster-{log_identity}", protocol_name=log_identity)


NAME_NOT_KNOWN_YET: Final = ShadowName(group_instance_id="", protocol_name="")
"""The name until the event log is open: any service's shadow may be ours. No shadow joins with it."""

UNNAMED: Final = ShadowName(group_instance_id="muster", protocol_name="shadow")
"""The name that older versions gave to the shadows of every service."""


class CommitIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The shadow's member id, generation and instance id, with which commits of one generation are relayed.

    Without the instance id, the broker could not answer a deposed owner with 82 (FENCED_INSTANCE_ID).
    """

    member_id: str
    generation_id: int
    group_instance_id: str


class ShadowState(Enum):
    """Whether the shadow is in its group, according to the last response."""

    OUT = "out"
    UNSURE = "unsure"
    JOINED = "joined"
    IN = "in"


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """The immutable state of one shadow. `bumped_for`: our generation that `identity` may be used for."""

    wanted: int | None
    """A generation of ours, or UNKNOWN_GENERATION; None if the group needs no shadow."""
    is_withdrawn: bool = False
    state: ShadowState = ShadowState.OUT
    identity: CommitIdentity | None = None
    bumped_for: int | None = None
    last_used: CommitIdentity | None = None
    """The last identity that was used for a generation."""

    @property
    def should_be_in(self) -> bool:
        """True if the shadow should be in its group now."""
        return self.wanted is not None and not self.is_withdrawn

    @property
    def member_id(self) -> str:
        """The shadow's member id; empty while unknown."""
        return self.identity.member_id if self.identity else ""


class Join(msgspec.Struct, frozen=True):
    member_id: str


class Sync(msgspec.Struct, frozen=True):
    identity: CommitIdentity


class ShadowHeartbeat(msgspec.Struct, frozen=True):
    identity: CommitIdentity


class Leave(msgspec.Struct, frozen=True):
    member_id: str


Action = Join | Sync | ShadowHeartbeat | Leave


class ShadowRefused(msgspec.Struct, frozen=True):
    """Upstream's refusal of the shadow is final: the group is not ours. `reason` is text for log lines."""

    reason: str


# ---- what to send -------------------------------------------------------------------------------------


def next_action(shadow: Shadow, *, heartbeat_is_due: bool = False) -> Action | None:
    """Return the request to send next, by the table above; None if there is none."""
    if not shadow.should_be_in:
        return None if shadow.state is ShadowState.OUT else Leave(shadow.member_id)
    if shadow.identity is None or shadow.state in {ShadowState.OUT, ShadowState.UNSURE}:
        return Join("")
    if shadow.state is ShadowState.JOINED:
        return Sync(shadow.identity)
    if shadow.bumped_for != shadow.wanted:
        return Join(shadow.identity.member_id)
    return ShadowHeartbeat(shadow.identity) if heartbeat_is_due else None


def commit_identity(shadow: Shadow, generation_id: int) -> CommitIdentity | None:
    """Return the identity for commits of this generation of ours; None if there is none (S1)."""
    return shadow.identity if shadow.bumped_for == generation_id >= 0 and shadow.should_be_in else None


def is_bumped(shadow: Shadow, generation_id: int) -> bool:
    """Return whether the shadow was bumped for this generation of ours, or a later one."""
    return shadow.should_be_in and shadow.bumped_for is not None and shadow.bumped_for >= generation_id


# ---- what is wanted -----------------------------------------------------------------------------------


def want(shadow: Shadow, wanted: int | None) -> Shadow:
    """Set the generation of ours that the shadow is wanted for; None: it is not needed. The last call counts."""
    if wanted is None:
        # A recreated group may begin with the same generation, and must not find the shadow bumped for it.
        return msgspec.structs.replace(shadow, wanted=None, bumped_for=None)
    if shadow.bumped_for == UNKNOWN_GENERATION:
        return _use(shadow, wanted)
    return msgspec.structs.replace(shadow, wanted=wanted)


def require_bump(shadow: Shadow) -> Shadow:
    """Require another bump within the same generation, so that a replaced member's commits are refused."""
    return msgspec.structs.replace(shadow, bumped_for=None)


def withdraw(shadow: Shadow, *, is_withdrawn: bool) -> Shadow:
    """Make the shadow leave although it is wanted, or let it return."""
    return msgspec.structs.replace(shadow, is_withdrawn=is_withdrawn, bumped_for=None)


# ---- what was answered --------------------------------------------------------------------------------


def on_joined(shadow: Shadow, identity: CommitIdentity) -> Shadow:
    """Apply a join's response: the shadow leads a new generation upstream."""
    return msgspec.structs.replace(shadow, state=ShadowState.JOINED, identity=identity, bumped_for=None)


def on_synced(shadow: Shadow) -> Shadow:
    """Apply a sync's response: the broker accepts commits of this generation."""
    inside = msgspec.structs.replace(shadow, state=ShadowState.IN)
    if inside.wanted is None or _was_used(inside):
        return inside
    return _use(inside, inside.wanted)


def on_left(shadow: Shadow) -> Shadow:
    """Note that the broker has no shadow of ours in this group."""
    return msgspec.structs.replace(shadow, state=ShadowState.OUT, identity=None, bumped_for=None)


def on_answer_lost(shadow: Shadow, action: Action) -> Shadow:
    """Update the shadow after a request whose response was lost, so that it may or may not have taken effect."""
    if isinstance(action, Join):  # it may have another member id or generation now
        return msgspec.structs.replace(shadow, state=ShadowState.UNSURE, identity=None, bumped_for=None)
    return shadow


def on_error(shadow: Shadow, action: Action, error: ErrorCode) -> Shadow | ShadowRefused:
    """Apply an error; the next request follows from the new state, after a pause."""
    if error.retriable or error is ErrorCode.unknown_server_error:
        # 14, 15, 16 had no effect; after another of these errors, a join may have had one.
        return shadow if error in _NO_EFFECT else on_answer_lost(shadow, action)
    if isinstance(action, Leave):
        # 25, 82: the shadow was replaced or is gone; after any other error, its session expires by itself.
        return on_left(shadow)
    match error:
        case ErrorCode.unknown_member_id:
            return on_left(shadow)
        case ErrorCode.rebalance_in_progress | ErrorCode.illegal_generation:
            return msgspec.structs.replace(shadow, state=ShadowState.IN, bumped_for=None)
        case _:
            return ShadowRefused(reason_of(error))


def reason_of(error: ErrorCode) -> str:
    """Return why a group is not ours, as text for log lines."""
    named = f"{error.name.upper()} ({error.value})"
    return f"{_REASONS.get(error, 'the broker refuses the shadow')}: {named}"


_NO_EFFECT: Final = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)
_REASONS: Final = {
    ErrorCode.group_id_not_found: "upstream the group is of another type",
    ErrorCode.fenced_instance_id: "another muster serve with this event log has taken over the group's shadow",
    ErrorCode.group_authorization_failed: "Muster's own principal lacks the ACL Allow READ on this GROUP upstream",
    ErrorCode.group_max_size_reached: "upstream's group.max.size leaves no place for the shadow",
    ErrorCode.invalid_session_timeout: "upstream refuses every session timeout of a shadow (1 to 30 minutes)",
    ErrorCode.invalid_group_id: "upstream does not accept a group of this name",
}


def _was_used(shadow: Shadow) -> bool:
    last_used, identity = shadow.last_used, shadow.identity
    return last_used is not None and identity is not None and last_used.generation_id == identity.generation_id


def _use(shadow: Shadow, wanted: int) -> Shadow:
    last_used = shadow.last_used if wanted == UNKNOWN_GENERATION else shadow.identity
    return msgspec.structs.replace(shadow, wanted=wanted, bumped_for=wanted, last_used=last_used)


_COORDINATED: Final = "Muster coordinates this group"
_EMPTY: Final = "the group has no members left"


def shadow_request(group_id: str, action: Action, name: ShadowName, *, session_timeout_ms: int) -> GroupRequest:
    """Build an action's request."""
    who = AsMember(
        group_id=group_id,
        group_instance_id=name.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=name.protocol_name,
    )
    match action:
        case Join():
            return join(who, action.member_id, metadata=b"", session_timeout_ms=session_timeout_ms, reason=_COORDINATED)
        case Sync():
            member_id = action.identity.member_id
            return sync(who, member_id, action.identity.generation_id, {member_id: b""})
        case ShadowHeartbeat():
            return heartbeat(who, action.identity.member_id, action.identity.generation_id)
        case Leave():
            return leave(who, action.member_id, reason=_EMPTY)
