"""Validation of member id and instance id, the same for all requests (M4). `duels.py` records the refusals."""

from kio.schema.errors import ErrorCode

from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import Group


def validate_member(group: Group, member_id: MemberId, group_instance_id: GroupInstanceId | None) -> ErrorCode:
    """Check, in this order (M4): instance unknown: 25; instance has another member id: 82; member id unknown: 25."""
    if group_instance_id is not None:
        holder = group.instances.get(group_instance_id)
        if holder is None:
            return ErrorCode.unknown_member_id
        if holder != member_id:
            return ErrorCode.fenced_instance_id
    if member_id not in group.members:
        return ErrorCode.unknown_member_id
    return ErrorCode.none
