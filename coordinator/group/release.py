"""ReleaseGroup: a group goes back to the cluster upstream, whose own coordinator is to serve it from here on.

Nobody can be handed over: the clients have to join there anew. So all members are taken out in one transition, and
what is parked is answered as for one unknown, which every client takes as: come back as a new member. What was set for
the group and whom it expects is an operator's; it stays, for when the group is taken over again.
"""

from coordinator.group.arrivals import give_up
from coordinator.group.commands import ReleaseGroup
from coordinator.group.outcomes import ReleasedMember, ReleaseGroupOutcome
from coordinator.group.rebalance import complete_join_phase, prepare_rebalance
from coordinator.group.turn import Turn
from events.causes import Cause
from events.ids import UNKNOWN_MEMBER_ID
from events.state import GroupState, Member


def release_group(turn: Turn, command: ReleaseGroup) -> None:
    """The group is Empty, in the next generation, and waits for nobody; one that was Empty stays as it is."""
    leader_id = turn.image.leader_id
    # The leader last: with everybody else gone there is no next one to be looked for, again and again.
    members = sorted(turn.group.members.values(), key=lambda member: member.member_id == leader_id)
    turn.soft.pending.clear()
    for member_id in list(turn.soft.arrivals):
        give_up(turn, member_id)
    for member in members:
        turn.because(Cause.GROUP_RELEASED, command.caller, member.member_id, member.group_instance_id)
        turn.remove(member)
    turn.because(Cause.GROUP_RELEASED, command.caller, UNKNOWN_MEMBER_ID, None)
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        complete_join_phase(turn, Cause.GROUP_RELEASED)  # also an initial one, which nothing else ends early (I7)
    elif turn.image.state is not GroupState.EMPTY:
        prepare_rebalance(turn)
    turn.reply(command.caller, ReleaseGroupOutcome(members=tuple(map(_released, members))))


def _released(member: Member) -> ReleasedMember:
    return ReleasedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )
