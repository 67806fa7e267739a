"""ReleaseGroup: hand a group over to the cluster upstream, whose own coordinator serves it from then on.

Members cannot be handed over; they have to join there again. So all members are removed in one transition, and parked
requests are answered UNKNOWN_MEMBER_ID, on which every client joins as a new member. The group's configs and
registrations stay, for when the group is adopted again.

A group is released because its shadow upstream was lost (the command), or because an administrator has set
`members.coordinator` (`membership_change.py`): then no client can join it here until that is set back (`decide.py`).
"""

import msgspec

from muster.coordinator.group.commands import ReleaseGroup
from muster.coordinator.group.held_joins import reject_held_join
from muster.coordinator.group.outcomes import ReleasedMember, ReleaseGroupOutcome
from muster.coordinator.group.rebalance import complete_join_phase, prepare_rebalance
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import Why
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.state import GroupState, Member


def release_group(turn: Turn, command: ReleaseGroup) -> None:
    """Make the group Empty, in the next generation; an Empty group is left unchanged."""
    turn.caused_by(Cause.GROUP_RELEASED, command.caller, UNKNOWN_MEMBER_ID, None)
    turn.reply(command.caller, ReleaseGroupOutcome(members=release_members(turn, turn.why)))


def release_members(turn: Turn, asked: Why) -> tuple[ReleasedMember, ...]:
    """Remove all members, attributed to `asked`, and return them."""
    leader_id = turn.image.leader_id
    # The leader last: otherwise each removed leader would be replaced by one that is about to be removed.
    members = sorted(turn.group.members.values(), key=lambda member: member.member_id == leader_id)
    released = tuple(_released(turn, member) for member in members)
    turn.soft.pending_members.clear()
    for member_id in list(turn.soft.held_joins):
        reject_held_join(turn, member_id)
    for member in members:
        turn.why = _because(asked, member.member_id, member.group_instance_id)
        turn.remove(member)
    turn.why = _because(asked, None, None)
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        complete_join_phase(turn, Cause.GROUP_RELEASED)  # also an initial one, which nothing else ends early (I7)
    elif turn.image.state is not GroupState.EMPTY:
        prepare_rebalance(turn)
    return released


def _because(asked: Why, member_id: MemberId | None, group_instance_id: GroupInstanceId | None) -> Why:
    return msgspec.structs.replace(
        asked, cause=Cause.GROUP_RELEASED, member_id=member_id, group_instance_id=group_instance_id
    )


def _released(turn: Turn, member: Member) -> ReleasedMember:
    return ReleasedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        was_parked=member.member_id in turn.soft.parked_joins or member.member_id in turn.soft.parked_syncs,
    )
