"""Heartbeat: reads, and answers. It never writes and never changes a group's state (H9)."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Heartbeat
from muster.coordinator.group.identity import validate_member
from muster.coordinator.group.standbys import heartbeat_of
from muster.events.state import Group, GroupState


def heartbeat_error(group: Group, command: Heartbeat) -> ErrorCode:
    """H2 to H7; in Stable, a standby that was called is to rejoin.

    With NONE and with REBALANCE_IN_PROGRESS the session has its full time again.
    """
    if group.image.state is GroupState.EMPTY:
        return ErrorCode.unknown_member_id
    error = validate_member(group, command.member_id, command.group_instance_id)
    if error is not ErrorCode.none:
        return error
    if command.generation_id != group.image.generation_id:
        return ErrorCode.illegal_generation
    if group.image.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    if group.image.state is GroupState.STABLE:
        return heartbeat_of(group.members[command.member_id])
    return ErrorCode.none
