"""Pauses of this process or its machine: they extend sessions and phases, and are recorded in the log."""

from collections.abc import Iterable

from muster.coordinator.clock import Clock
from muster.coordinator.group.extensions import rearm
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.runtime.partition.group_context import GroupContext
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.avro.codec import records_of
from muster.events.events import CoordinatorPaused
from muster.events.records import Transition
from muster.events.state import Group
from muster.events.steps import Steps


def versions(context: GroupContext) -> Iterable[tuple[Group | None, SoftState]]:
    """Yield the group as it is durable, and as it is decided if a batch is in progress."""
    yield context.group, context.soft
    if context.batch is not None:
        yield context.batch.group, context.batch.soft


def rearm_all(contexts: Iterable[GroupContext], clock: Clock, late_ms: int) -> Steps[tuple[int, int]]:
    """Re-arm all groups. Returns the number of sessions with their full time, and of those extended by `late_ms`."""
    in_full = sessions = 0
    for context in contexts:
        now_ms = clock.monotonic_ms()
        durable, *_ = [rearm(group, soft, now_ms, late_ms=late_ms) for group, soft in versions(context)]
        in_full += durable
        sessions += len(context.soft.sessions)
        yield 1 + len(context.soft.sessions)
    return in_full, sessions - in_full


def pause_record(owner: Owner, number: int, epoch: int, *, late_ms: int, sessions: int) -> Transition:
    """Create the record of a pause. `sessions`: how many restart with their full time."""
    paused = CoordinatorPaused(
        partition=number,
        owner_epoch=epoch,
        owner=owner.name,
        paused_ms=owner.clock.wall_ms(),
        late_ms=late_ms,
        sessions=sessions,
        uptime_ms=owner.clock.monotonic_ms(),
    )
    return records_of([paused], owner.event_log.format_level)
