"""Heartbeat: validated against the group, which it never changes (H9)."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Heartbeat
from muster.coordinator.group.identity import validate_member
from muster.coordinator.group.standby_members import stable_heartbeat_error
from muster.events.state import Group, GroupState


def heartbeat_error(group: Group, command: Heartbeat) -> ErrorCode:
    """Return the error that answers a heartbeat (H2 to H7); for a called standby it is REBALANCE_IN_PROGRESS.

    NONE and REBALANCE_IN_PROGRESS refresh the session.
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
        return stable_heartbeat_error(group.members[command.member_id])
    return ErrorCode.none
