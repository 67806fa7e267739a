"""States that differ only in names and offsets are the same: the key of a state leaves these out.

Left out, since no response depends on them: the numbers of requests and events, when members were last seen, how many
refusals were written, what is only noted for the log, the incarnation, the absolute generation, and the census, which
follows from the members. Made relative: deadlines to now, generations to the group's. Replaced by what they refer to:
member ids ("the instance's", "a pending one", "one that was fenced", "gone"). By order: which member id is the lowest
(`census.rank_of`). Interchangeable: the two instances with their processes.

State that a feature adds has to be added here; an unknown field without its default value is an error. The key is
everything that is left, as bytes; no two different states have the same key.
"""

import math
from functools import lru_cache
from typing import Any

import msgspec

from muster.coordinator.group.held_joins import held_join_of
from muster.coordinator.group.soft_state import HeldJoin, Session, SoftState
from muster.events.ids import MemberId
from muster.events.state import (
    NO_GENERATION,
    NOT_CONFIGURED,
    Group,
    GroupConfig,
    GroupImage,
    GroupState,
    Member,
    MemberRole,
)
from tests.model.state import Process, State
from tests.model.world import INSTANCES, UNIT_MS

STATES = {state: number for number, state in enumerate(GroupState)}
ROLES = {role: number for number, role in enumerate(MemberRole)}
NONE, FOREVER, FIRST_JOIN, FAR, ARRIVAL = 255, 254, 253, 252, 251

KNOWN: dict[type[Any], frozenset[str]] = {
    Group: frozenset({
        "group_id", "incarnation", "seq", "image", "members", "instances", "registrations", "config",
    }),
    GroupImage: frozenset({
        "state", "previous_state", "state_since_ms", "generation_id", "protocol_type", "protocol_name", "leader_id",
        "assigned_generation_id", "departures_gathered", "emptied_by",
    }),
    Member: frozenset({
        "member_id", "group_instance_id", "client_id", "client_host", "principal", "session_timeout_ms",
        "rebalance_timeout_ms", "protocols", "assignment", "assigned_generation_id", "joined_ms", "role", "retiring",
    }),
    SoftState: frozenset({
        "sessions", "pending_members", "parked_joins", "parked_syncs", "pending_syncs", "member_sync_deadlines",
        "held_joins", "replaced_members", "join_deadline_ms", "sync_deadline_ms", "registration_deadline_ms",
        "expansion_deadline_ms", "retirement_deadline_ms", "promotion_deadline_ms", "initial_delay",
        "subscribed_topics", "refused_joins", "fences", "duels", "census", "settled_ids", "settled_ids_more",
        "removed_members", "returned_members", "returned_members_more",
    }),
    Session: frozenset({
        "timeout_ms", "deadline_ms", "last_seen_ms", "longest_silence_ms", "awaits_first_join", "heard",
    }),
}  # fmt: skip
"""Every field of a state that is in the key, or is left out for a reason."""


def _others(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """The fields that the key does not know, with their defaults."""
    return tuple(
        (field.name, field.default if field.default is not msgspec.NODEFAULT else field.default_factory())
        for field in msgspec.structs.fields(kind)
        if field.name not in KNOWN[kind]
    )


OTHERS = {kind: _others(kind) for kind in KNOWN}


def key_of(state: State) -> bytes:
    """The bytes that identify a state. Raises AssertionError for a field with a value that is not known here."""
    group, soft = state.group, state.soft
    if group is None:
        statics = sorted(_instance_without_member(state, instance) for instance in INSTANCES)
        return b"".join((b"\0", *statics, *(_knowledge(state, p) for p in state.processes if not p.is_static)))
    for value in (group, group.image, soft, *group.members.values(), *soft.sessions.values()):
        others = OTHERS[type(value)]
        if others:
            _check_others(value, others)
    order = {member_id: rank for rank, member_id in enumerate(sorted(group.members))}
    listening = {p.waiting for p in state.processes if p.waiting is not None}
    members = {
        member_id: _member(state, group, member, order[member_id], listening)
        for member_id, member in group.members.items()
    }
    arrivals = {
        member_id: _arrival(state, arrival, arrival.join.caller.request_id in listening)
        for member_id, arrival in soft.held_joins.items()
    }
    statics = []
    for instance in INSTANCES:
        holder = group.instances.get(instance) or held_join_of(soft, instance)
        described = b"" if holder is None else members.pop(holder, b"") or arrivals.pop(holder)
        expected = bytes((instance in group.registrations,))
        statics.append(expected + described + _instance_without_member(state, instance))
    members.update(arrivals)
    dynamic = [members[member_id] + _known_by(state, member_id) for member_id in members]
    pending = [
        bytes((_relative(state, session.deadline_ms),)) + _known_by(state, member_id)
        for member_id, session in soft.pending_members.items()
    ]
    parts = [
        _image(group),
        _config(group),
        _phases(state),
        *sorted(statics),
        *sorted(dynamic),
        b"|",
        *sorted(pending),
        b"|",
    ]
    parts.extend(_knowledge(state, process) for process in state.processes if not process.is_static)
    return b"".join(parts)


def _check_others(value: Any, others: tuple[tuple[str, Any], ...]) -> None:
    for name, default in others:
        assert getattr(value, name) == default, f"{type(value).__name__}.{name} is no part of tests/model/key.py"


def _image(group: Group) -> bytes:
    image = group.image
    if image.assigned_generation_id == image.generation_id:
        assigned = 2
    else:
        assigned = int(image.assigned_generation_id != NO_GENERATION)
    return bytes(
        (
            1 + STATES[image.state],
            STATES[image.previous_state],
            assigned,
            image.protocol_type is not None,
            image.protocol_name is not None,
            image.generation_id == 0,
            image.departures_gathered,
        )
    )


def _phases(state: State) -> bytes:
    soft = state.soft
    delay = soft.initial_delay
    return bytes(
        (
            _relative(state, soft.join_deadline_ms),
            _relative(state, soft.sync_deadline_ms),
            NONE if delay is None else delay.delay_ms // UNIT_MS,
            NONE if delay is None else delay.remaining_ms // UNIT_MS,
            delay is not None and delay.new_member_added,
            _relative(state, soft.registration_deadline_ms),
            _relative(state, soft.expansion_deadline_ms),
            _relative(state, soft.retirement_deadline_ms),
            _relative(state, soft.promotion_deadline_ms),
        )
    )


@lru_cache
def _described(config: GroupConfig) -> bytes:
    return repr(config).encode()


def _config(group: Group) -> bytes:
    return b"" if group.config is NOT_CONFIGURED else _described(group.config)


def _arrival(state: State, arrival: HeldJoin, is_heard: bool) -> bytes:
    return bytes((ARRIVAL, _relative(state, arrival.deadline_ms), arrival.parked, is_heard))


def _member(state: State, group: Group, member: Member, rank: int, listening: set[int]) -> bytes:
    soft, image, member_id = state.soft, group.image, member.member_id
    session = soft.sessions[member_id]
    if member.assigned_generation_id == image.assigned_generation_id:
        assigned = 2
    else:
        assigned = int(member.assigned_generation_id != NO_GENERATION)
    join, sync = soft.parked_joins.get(member_id), soft.parked_syncs.get(member_id)
    if session.awaits_first_join:
        left = FIRST_JOIN
    elif join is None and sync is None:
        left = _relative(state, session.deadline_ms)
    else:
        left = FOREVER  # it is always set again before it counts
    return bytes(
        (
            rank,
            member_id == image.leader_id,
            assigned,
            member.assignment == b"",
            left,
            0 if join is None else 1 + (join.request_id in listening),
            0 if sync is None else 1 + (sync.request_id in listening),
            member_id in soft.pending_syncs,
            _relative(state, soft.member_sync_deadlines.get(member_id)),
            ROLES[member.role],
            member.retiring,
        )
    )


def _relative(state: State, deadline_ms: float | None) -> int:
    if deadline_ms is None:
        return NONE
    if deadline_ms == math.inf:
        return FOREVER
    return max(0, min(int(deadline_ms - state.now_ms) // UNIT_MS, FAR))


def _instance_without_member(state: State, instance: str) -> bytes:
    """The knowledge of an instance's processes, in no order; those that were never started are no instance's."""
    return b"".join(sorted(_knowledge(state, p) for p in state.processes if p.instance == instance)) + b"|"


def _known_by(state: State, member_id: MemberId) -> bytes:
    """Return the dynamic processes that believe they have this member id, or have sent it."""
    return bytes((p.member_id == member_id) + 2 * (p.proposed == member_id) for p in state.processes if not p.is_static)


def _knowledge(state: State, process: Process) -> bytes:
    group, member_id = state.group, process.member_id
    current = group is not None and member_id in group.members and process.generation_id == group.generation_id
    assigns = group is not None and group.state is GroupState.COMPLETING_REBALANCE and member_id == group.leader_id
    return bytes(
        (
            _refers(state, member_id),
            current,
            current and assigns and bool(process.told),
            process.waiting is not None,
            _refers(state, process.proposed),
            process.proposed in state.soft.replaced_members,
        )
    )


def _refers(state: State, member_id: MemberId) -> int:
    """How a member id relates to the group: none; a member; pending; fenced; unknown (no longer, or not yet); held."""
    if not member_id:
        return 0
    if state.group is not None and member_id in state.group.members:
        return 1
    if member_id in state.soft.pending_members:
        return 2
    if member_id in state.soft.held_joins:
        return 5
    return 3 if member_id in state.fenced else 4
