"""The client for administrators: requests to groups' coordinators as Python functions.

    async with GroupAdmin("127.0.0.1:9092") as admin:
        for each in await admin.list_members("orders"):
            print(each.group_instance_id, each.standing)

What belongs here: the names that programs may rely on. `coordinator/client/` implements them.
"""

from muster.coordinator.client.coordinator_link import (
    AdminError,
    AuthenticationFailed,
    InvalidArgument,
    NoCoordinator,
    NotCoordinatedHere,
    NotMuster,
    NotReady,
    OutcomeUnknown,
    Refused,
)
from muster.coordinator.client.group_admin import ConfigEntry, GroupAdmin, MemberResult
from muster.coordinator.group.outcomes import ListedMember, Standing
from muster.events.kafka.security import KafkaSecurity, security_given

__all__ = [
    "AdminError",
    "AuthenticationFailed",
    "ConfigEntry",
    "GroupAdmin",
    "InvalidArgument",
    "KafkaSecurity",
    "ListedMember",
    "MemberResult",
    "NoCoordinator",
    "NotCoordinatedHere",
    "NotMuster",
    "NotReady",
    "OutcomeUnknown",
    "Refused",
    "Standing",
    "security_given",
]
