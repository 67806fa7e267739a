"""The other settings of a what-if, and how they change members, commands, groups and the coordinator's settings."""

import msgspec

from muster.coordinator.group.commands import AnyCommand, LeaveGroup, LeavingMember
from muster.coordinator.group.configs import EXPANSION_DELAY
from muster.coordinator.group.settings import INT32_MAX, GroupSettings
from muster.events.ids import GroupInstanceId
from muster.events.state import Group, Member
from muster.replay.whatif.addresses import SharedAddresses


class Alterations(msgspec.Struct, frozen=True, kw_only=True):
    """The other settings; None: as recorded. `is_static`: each process that can be identified gets an instance id and
    keeps it.
    """

    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    scale_up_delay_ms: int | None = None
    initial_rebalance_delay_ms: int | None = None
    is_static: bool = False

    @property
    def told(self) -> dict[str, str]:
        """The changed settings by their names in Kafka and Muster."""
        named = {
            "session.timeout.ms": self.session_timeout_ms,
            "rebalance.timeout.ms": self.rebalance_timeout_ms,
            EXPANSION_DELAY: self.scale_up_delay_ms,
            "group.initial.rebalance.delay.ms": self.initial_rebalance_delay_ms,
        }
        told = {name: str(value) for name, value in named.items() if value is not None}
        return told | ({"group.instance.id": "one for each process"} if self.is_static else {})

    def of_settings(self, settings: GroupSettings) -> GroupSettings:
        """Return the coordinator's settings with these changes, and without its bounds for session timeouts."""
        delay_ms = self.initial_rebalance_delay_ms
        return msgspec.structs.replace(
            settings,
            min_session_timeout_ms=0,
            max_session_timeout_ms=INT32_MAX,
            initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms if delay_ms is None else delay_ms,
        )


class Altered:
    """The members of one history under the other settings."""

    def __init__(self, alterations: Alterations, shared: SharedAddresses) -> None:
        self.alterations = alterations
        self._shared = shared

    def is_known(self, member: Member) -> bool:
        """Return whether the member has an instance id, or its process can be identified and so could have one."""
        return member.group_instance_id is not None or not self._shared.has(member)

    def session_timeout_ms(self, member: Member) -> int:
        given = self.alterations.session_timeout_ms
        return member.session_timeout_ms if given is None else given

    def member(self, member: Member) -> Member:
        """Return the member with the other settings."""
        given = self.alterations.rebalance_timeout_ms
        instance = member.group_instance_id
        if instance is None and self.alterations.is_static and self.is_known(member):
            instance = GroupInstanceId(f"{member.client_id}/{member.client_host}")
        return msgspec.structs.replace(
            member,
            group_instance_id=instance,
            session_timeout_ms=self.session_timeout_ms(member),
            rebalance_timeout_ms=member.rebalance_timeout_ms if given is None else given,
        )

    def command(self, command: AnyCommand, group: Group | None) -> AnyCommand:
        """Return the command for the simulated group: members that have an instance id there are removed by that id."""
        if group is None or not isinstance(command, LeaveGroup):
            return command

        def altered(leaving: LeavingMember) -> LeavingMember:
            member = group.members.get(leaving.member_id)
            instance = leaving.group_instance_id if member is None else member.group_instance_id
            return msgspec.structs.replace(leaving, group_instance_id=instance)

        return msgspec.structs.replace(command, members=tuple(map(altered, command.members)))

    def group(self, group: Group) -> Group:
        """Return the recorded group with the other settings."""
        altered = group.copy()
        for member in group.members.values():
            twin = self.member(member)
            altered.members[member.member_id] = twin
            if twin.group_instance_id is not None:
                altered.instances[twin.group_instance_id] = twin.member_id
        delay_ms = self.alterations.scale_up_delay_ms
        if delay_ms is not None:
            altered.config = msgspec.structs.replace(altered.config, expansion_delay_ms=delay_ms or None)
        return altered
