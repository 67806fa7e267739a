"""Duels: two live processes with one instance id fence each other in turn.

Kafka fences the earlier process, whose client exits if it understands the error; restarted by its supervisor, it comes
back and fences the other one (known bug S16). A client that does not understand it (S19) comes back immediately. Both
look like restarts until the replaced process sends something. So:

    replaced          the replaced member id is noted (`ReplacedMember`)
    seen again        its process still lives; recorded, with both hosts, whatever error it is answered with
    replaced again    within ten minutes of that: a duel; recorded, counted, logged

A process that was restarted cleanly sends nothing after it was replaced. A rolling deployment that overlaps has the
first two, not the third.
"""

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Caller, JoinGroup
from muster.coordinator.group.soft_state import ReplacedMember
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import Member

REPLACED_MEMBERS_MAX = 1_000
"""Replaced member ids that a group remembers; the oldest are forgotten."""

DUEL_WINDOW_MS = 600_000
"""A process that was last seen longer ago is assumed to have ended."""


def note_replaced(turn: Turn, replaced: Member, command: JoinGroup) -> None:
    """Remember that the sender of this join took the instance id from the process of `replaced`; record a duel."""
    instance = command.group_instance_id
    assert instance is not None
    replaced_members = turn.soft.replaced_members
    rivals = [member_id for member_id, rival in replaced_members.items() if rival.group_instance_id == instance]
    seen = [replaced_members.pop(member_id).seen_again_ms for member_id in rivals]
    if any(last_seen_ms is not None and turn.now_ms - last_seen_ms <= DUEL_WINDOW_MS for last_seen_ms in seen):
        why = turn.why
        turn.caused_by(Cause.INSTANCE_DUEL, command.caller, command.proposed_member_id, instance, command.reason)
        turn.note_duel(replaced)
        turn.why = why
    replaced_members[replaced.member_id] = ReplacedMember(group_instance_id=instance)
    while len(replaced_members) > REPLACED_MEMBERS_MAX:
        del replaced_members[next(iter(replaced_members))]


def note_if_fenced(
    turn: Turn,
    error: ErrorCode,
    caller: Caller,
    member_id: MemberId,
    group_instance_id: GroupInstanceId | None,
    *,
    reason: str | None = None,
) -> None:
    """Record, with both hosts, that a process used an instance id that another one has (known bugs S16, S19)."""
    earlier = turn.soft.replaced_members.get(member_id)
    if earlier is not None:
        turn.soft.replaced_members[member_id] = msgspec.structs.replace(earlier, seen_again_ms=turn.now_ms)
        group_instance_id = earlier.group_instance_id
    elif error is not ErrorCode.fenced_instance_id:
        return
    if group_instance_id is not None:
        turn.caused_by(Cause.INSTANCE_FENCED, caller, member_id, group_instance_id, reason)
        holder = turn.group.instances.get(group_instance_id)
        turn.note_fenced(error, None if holder is None else turn.group.members[holder])
