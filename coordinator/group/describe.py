"""DescribeGroups, for one group."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import DescribedMember, DescribeGroupOutcome
from muster.events.state import Group, GroupState


def describe(group: Group | None) -> DescribeGroupOutcome:
    """Describe a group (DG1 to DG4): metadata and protocol only in Stable, assignments as long as they are valid."""
    if group is None:
        return DescribeGroupOutcome(error=ErrorCode.group_id_not_found, state=GroupState.DEAD)
    image = group.image
    protocol_name = image.protocol_name if image.state is GroupState.STABLE else None
    return DescribeGroupOutcome(
        state=image.state,
        protocol_type=image.protocol_type or "",
        protocol_name=protocol_name or "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata_for(protocol_name),
                assignment=group.assignment_of(member),
            )
            for member in group.members.values()
        ),
    )
