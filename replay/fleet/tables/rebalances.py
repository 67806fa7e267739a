"""A rebalance -> a row of `rebalances`. Pure."""

from collections.abc import Iterator

from muster.events.causes import Cause
from muster.replay.fleet.tables.values import Row, day_of, micros, micros_of, name_of
from muster.replay.incidents.cost import partition_ms
from muster.replay.incidents.incident import Incident
from muster.replay.rebalances.rebalance import HappeningKind, MemberRef, Rebalance

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
    """The members that were given up when the join phase ended, and static ones that it did without."""
    phase = told.join_phase
    for occurrence in (*told.folded, *phase.dropped):
        if occurrence.cause in _SILENT and occurrence.at == phase.ended_at:
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
