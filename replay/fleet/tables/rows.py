"""Rows of rebalances, incidents, times without a coordinator and unreadable records. Pure.

Values have the form of their columns: microseconds since 1970, days since 1970, names of members.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from muster.events.causes import Cause
from muster.events.ids import GroupId
from muster.events.state import Member
from muster.replay.history.items import Broken
from muster.replay.incidents.cost import partition_ms
from muster.replay.incidents.episode.coordinator_absences import Away
from muster.replay.incidents.incident import Incident
from muster.replay.rebalances.rebalance import HappeningKind, MemberRef, Rebalance
from muster.replay.text.times import DAY_MS, Instant, wall_ms_of

Row: TypeAlias = tuple[object, ...]
"""A row: values in the order of its table's columns."""

_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
"""The range of years that can be written, 1 to 9999."""

FIRST_DAY: Final = _FIRST_MS // DAY_MS
LAST_DAY: Final = _LAST_MS // DAY_MS


def micros(wall_ms: int) -> int:
    """Convert wall clock ms to microseconds, clamped to the years that can be written."""
    return min(max(wall_ms, _FIRST_MS), _LAST_MS) * 1_000


def micros_of(at: Instant | None) -> int | None:
    """Convert an instant to microseconds."""
    return None if at is None else wall_ms_of(at) * 1_000


def day_of(wall_ms: int) -> int:
    """Convert wall clock ms to the UTC day, counted from 1970."""
    return micros(wall_ms) // (DAY_MS * 1_000)


def name_of(member: Member | MemberRef) -> str:
    """The member's name for administrators: its instance id, or else its member id; for a client that is not a member,
    its client id."""
    return member.group_instance_id or member.member_id or member.client_id


_SILENT = frozenset({Cause.NOT_REJOINED, Cause.FIRST_JOIN_TIMED_OUT, Cause.SESSION_EXPIRED})


def rebalance_row(told: Rebalance, incident: Incident, log_partition: int) -> Row:
    """The row of a rebalance of an incident."""
    started_ms = told.started_ms
    return (
        told.group_id,
        told.incarnation,
        log_partition,
        told.first_seq,
        told.last_seq,
        day_of(started_ms),
        micros(started_ms),
        micros_of(told.ended_at),
        told.duration_ms,
        told.outcome.value,
        told.from_generation,
        told.to_generation,
        told.initial,
        *_trigger(told),
        [each.cause.value for each in told.folded],
        incident.id,
        incident.kind,
        incident.grade.value,
        *_phases(told),
        *_members(told),
        *_movement(told),
        partition_ms(told),
        sum(each.times for each in told.avoided if each.kind is not HappeningKind.PLANNED),
        list(told.notes),
    )


def _trigger(told: Rebalance) -> Row:
    trigger = told.trigger
    who = trigger.who[0] if trigger.who else None
    if who is None:
        return (trigger.cause.value, trigger.seq, None, None, None, None, None, None, trigger.client_reason)
    return (
        trigger.cause.value,
        trigger.seq,
        who.member_id,
        who.group_instance_id,
        who.client_id,
        who.client_host,
        who.session_timeout_ms,
        who.silence_ms,
        trigger.client_reason,
    )


def _phases(told: Rebalance) -> Row:
    join, sync = told.join_phase, told.sync_phase
    last = join.last_to_join
    return (
        join.duration_ms,
        join.timeout_ms,
        join.timed_out,
        None if sync is None else sync.duration_ms,
        list(dict.fromkeys(map(name_of, _waited_for(told)))),
        None if last is None else name_of(last.member),
        None if last is None else last.after_ms,
        None if told.leader is None else name_of(told.leader),
        told.protocol_type,
        told.protocol_name,
    )


def _waited_for(told: Rebalance) -> Iterator[MemberRef]:
    """The members lost while the join phase waited for them, static ones that it ended without, and those still
    awaited.
    """
    phase = told.join_phase
    for occurrence in (*told.folded, *phase.dropped):
        is_within = occurrence.at > told.started_at and (phase.ended_at is None or occurrence.at <= phase.ended_at)
        if occurrence.cause in _SILENT and is_within:
            yield from occurrence.who
    yield from phase.absent
    yield from phase.awaited


def _members(told: Rebalance) -> Row:
    before = {each.identity: each for each in told.members_before}
    after = {each.identity: each for each in told.members_after}
    return (
        len(told.members_before),
        len(told.members_after),
        [name_of(each) for identity, each in before.items() if identity not in after],
        [name_of(each) for identity, each in after.items() if identity not in before],
    )


def _movement(told: Rebalance) -> Row:
    movement = told.movement
    if movement is None:
        return (None, None, None, None)
    return (movement.moved, movement.gained, movement.lost, movement.stayed)


def incident_row(told: Incident, log_partition: int) -> Row:
    """The row of an incident. The full explanation, sentence by sentence, is in `muster replay why`."""
    cost = told.cost
    started_ms = wall_ms_of(told.started_at)
    return (
        told.group_id,
        told.id,
        log_partition,
        day_of(started_ms),
        micros(started_ms),
        micros_of(told.ended_at),
        told.kind,
        told.grade.value,
        told.headline,
        told.parent,
        [name_of(each) for each in told.culprits],
        [each.client_id for each in told.culprits],
        [each.client_host for each in told.culprits],
        len(told.rebalances),
        cost.rebalancing_ms,
        cost.partition_ms,
        cost.silent_partition_ms,
        cost.empty_partition_ms,
        cost.known_partition_ms,
        cost.partitions_moved,
        cost.partitions_moved_back,
        cost.unassigned_partition_ms,
        cost.restarts_absorbed,
        list(told.notes),
    )


def downtime_row(group_id: GroupId, away: Away, log_partition: int) -> Row:
    """The row of a time in which the group was not served."""
    return (
        group_id,
        log_partition,
        day_of(away.until_ms),
        micros(away.since_ms),
        away.last_known.value,
        micros(away.until_ms),
        away.longest_ms,
        away.shortest_ms,
        away.paused,
        away.owner_before,
        away.owner,
        len(away.members),
    )


def quarantine_row(topic: str, broken: Broken, group_id: GroupId | None) -> Row:
    """The row of an unreadable record. `group_id`: None if it concerns the whole partition."""
    at = broken.position
    return (topic, at.partition, at.offset, micros(at.timestamp_ms), group_id, broken.kind.value, broken.reason)
