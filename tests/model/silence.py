"""The invariants of silence, and of the log read as bytes: checked in new states, not on steps.

Silence: from a state with parked requests only time passes; each must be answered within the longest rebalance
timeout (invariant 5), and the time that an arrival may be held before. Bytes: the way to a state is gone once more,
with its events written and read as records, as they are and as compaction may leave them; what the records add up to
is the live group (7), and no decision on the way changed what it was given (11). The second is costly, so one state
in `SAMPLED` is looked at, and its silence to the end; which ones depends on the state alone.
"""

import copy
import math
import zlib
from collections.abc import Sequence

from muster.coordinator.group.commands import AnyCommand
from muster.coordinator.group.decide import Decision
from muster.coordinator.group.held_joins import HOLD_MS_MAX
from muster.coordinator.group.soft_state import Sessions, SoftState
from muster.events.avro.codec import records_of
from muster.events.ids import MemberId
from muster.events.projector import Projector
from muster.events.records import FORMAT_LEVEL, StoredRecord
from muster.events.state import GroupState
from tests.coordinator.group.deadlines import all_due, next_deadline_ms
from tests.model.invariants import Violation
from tests.model.state import State
from tests.model.world import GROUP_ID, REBALANCE_MS, STATIC_SESSION_MS, Rules, World, touched

SAMPLED = 16
COMMANDS_MAX = 60
"""More deadlines than so small a world can have one after another."""

LONGEST_END_MS = 2 * (REBALANCE_MS + STATIC_SESSION_MS)


def is_sampled(key: bytes) -> bool:
    """Return whether the state belongs to the sample that is checked more closely."""
    return zlib.crc32(key) % SAMPLED == 0


def check_silence(world: World, state: State, *, to_the_end: bool = False) -> None:
    """Check that every waiting request is answered; `to_the_end`: and that the group is empty in the end."""
    group, soft, now_ms = state.group, state.soft, state.now_ms
    longest_ms = REBALANCE_MS + (HOLD_MS_MAX if world.is_planned else 0)
    for _ in range(COMMANDS_MAX):
        waiting = _waiting(soft)
        if group is None or (not waiting and (not to_the_end or group.state is GroupState.EMPTY)):
            break
        next_ms = next_deadline_ms(soft)
        if next_ms == math.inf:
            break
        now_ms = max(now_ms, int(next_ms))
        if waiting and now_ms - state.now_ms > longest_ms:
            raise Violation(5, f"{waiting} not answered for {now_ms - state.now_ms} ms")
        command = all_due(GROUP_ID, soft, now_ms)[0]
        decision = world.rules.decide(command, group, soft, world.now(state, now_ms), world.settings)
        group, soft = decision.group, decision.soft
    else:
        raise Violation(5, "something comes again and again")
    if waiting := _waiting(soft):
        raise Violation(5, f"nothing will ever answer {waiting}")
    if to_the_end and group is not None and group.state is not GroupState.EMPTY:
        raise Violation(5, f"the group stays {group.state}")
    if now_ms - state.now_ms > LONGEST_END_MS:
        raise Violation(5, f"the group was empty after {now_ms - state.now_ms} ms")


def _waiting(soft: SoftState) -> list[MemberId]:
    """Return the members with parked requests."""
    if not (soft.parked_joins or soft.parked_syncs or soft.held_joins):
        return []
    return sorted(
        [*soft.parked_joins, *soft.parked_syncs, *(key for key, arrival in soft.held_joins.items() if arrival.parked)]
    )


class Again(World):
    """The same world, which encodes decisions as records, and checks that the rules do not modify their inputs."""

    def __init__(self, *, rules: Rules, version: int, is_planned: bool) -> None:
        super().__init__(rules=rules, version=version, is_planned=is_planned)
        self.records: list[StoredRecord] = []

    def decide(self, state: State, command: AnyCommand) -> Decision:
        group, soft = state.group, state.soft
        before = (group.copy() if group is not None else None, _deep_copy(soft))
        decision = self.rules.decide(command, group, soft, self.now(state, state.now_ms), self.settings)
        if before != (group, soft):
            raise Violation(11, f"{type(command).__name__} changed what it was given")
        for record in records_of(decision.events, FORMAT_LEVEL):
            offset = len(self.records)
            self.records.append(
                StoredRecord(partition=0, offset=offset, timestamp_ms=0, key=record.key, value=record.value)
            )
        return touched(decision, state.now_ms)


def _deep_copy(soft: SoftState) -> SoftState:
    copied = soft.copy()
    copied.sessions = Sessions((member_id, copy.copy(session)) for member_id, session in soft.sessions.items())
    copied.pending_members = Sessions(
        (member_id, copy.copy(session)) for member_id, session in soft.pending_members.items()
    )
    return copied


def check_bytes(state: State, records: Sequence[StoredRecord]) -> None:
    """The group that the records make, all of them and compacted, is the live one."""
    last = {record.key: record.offset for record in records}
    compacted = [record for record in records if last[record.key] == record.offset]
    for name, kept in (("the records", records), ("the compacted records", compacted)):
        projector = Projector()
        for record in kept:
            projector.feed(record)
        projected = projector.groups.get(GROUP_ID)
        if projected != state.group:
            raise Violation(7, f"{name} project to {projected}, not to {state.group}")
