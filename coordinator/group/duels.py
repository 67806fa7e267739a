"""Duels: two live processes with one instance id, which take it from each other in turn.

Kafka fences the one that was there first, and if its client understands that it ends; restarted by its supervisor it
comes back and fences the other (known bug S16). A client that does not understand (S19) comes back at once. In both
cases it looks like restarts, until the process that lost the instance id is heard from again. So:

    replaced            a claim is noted: this member id lost its instance id
    heard from again    the process still lives; recorded, with both hosts, whatever error it is answered with
    replaced again      within ten minutes of that: a duel; recorded, counted, logged

A clean restart says nothing after it was replaced. A rolling deployment that overlaps has the first two, not the third.
"""

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Caller, JoinGroup
from muster.coordinator.group.soft import Claim
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import Member

CLAIMS_MAX = 1_000
"""Of a group; the oldest are forgotten."""

DUEL_WITHIN_MS = 600_000
"""A process that was last heard from longer ago is taken to have ended."""


def note_claim(turn: Turn, replaced: Member, command: JoinGroup) -> None:
    """The process of `replaced` lost its instance id to the sender of this join."""
    instance = command.group_instance_id
    assert instance is not None
    claims = turn.soft.claims
    earlier = [member_id for member_id, claim in claims.items() if claim.group_instance_id == instance]
    heard = [claims.pop(member_id).heard_again_ms for member_id in earlier]
    if any(heard_ms is not None and turn.now_ms - heard_ms <= DUEL_WITHIN_MS for heard_ms in heard):
        why = turn.why
        turn.because(Cause.INSTANCE_DUEL, command.caller, command.proposed_member_id, instance, command.reason)
        turn.note_duel(replaced)
        turn.why = why
    claims[replaced.member_id] = Claim(group_instance_id=instance)
    while len(claims) > CLAIMS_MAX:
        del claims[next(iter(claims))]


def note_if_fenced(
    turn: Turn,
    error: ErrorCode,
    caller: Caller,
    member_id: MemberId,
    group_instance_id: GroupInstanceId | None,
    *,
    reason: str | None = None,
) -> None:
    """Two processes claim one identity: record it, with both hosts (known bugs S16, S19)."""
    claim = turn.soft.claims.get(member_id)
    if claim is not None:
        turn.soft.claims[member_id] = msgspec.structs.replace(claim, heard_again_ms=turn.now_ms)
        group_instance_id = claim.group_instance_id
    elif error is not ErrorCode.fenced_instance_id:
        return
    if group_instance_id is not None:
        turn.because(Cause.INSTANCE_FENCED, caller, member_id, group_instance_id, reason)
        holder = turn.group.instances.get(group_instance_id)
        turn.note_fenced(error, None if holder is None else turn.group.members[holder])
