"""The other settings of a what-if, and what they make of members, groups and the rules' settings."""

import msgspec

from muster.coordinator.group.configs import EXPANSION_DELAY
from muster.coordinator.group.settings import INT32_MAX, GroupSettings
from muster.events.causes import Cause
from muster.events.events import MemberEvent, MemberRemoved
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import Group, Member
from muster.replay.history import Happened, History
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.identity import Identities, Life


class Alterations(msgspec.Struct, frozen=True, kw_only=True):
    """None: as recorded. `is_static`: each process that can be told apart has an instance id, and keeps it."""

    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    scale_up_delay_ms: int | None = None
    initial_rebalance_delay_ms: int | None = None
    is_static: bool = False

    @property
    def told(self) -> dict[str, str]:
        """The settings by their names in Kafka and Muster."""
        named = {
            "session.timeout.ms": self.session_timeout_ms,
            "rebalance.timeout.ms": self.rebalance_timeout_ms,
            EXPANSION_DELAY: self.scale_up_delay_ms,
            "group.initial.rebalance.delay.ms": self.initial_rebalance_delay_ms,
        }
        told = {name: str(value) for name, value in named.items() if value is not None}
        return told | ({"group.instance.id": "of each process"} if self.is_static else {})

    def of_settings(self, settings: GroupSettings) -> GroupSettings:
        """The rules' settings. Session timeouts are not refused, whatever the coordinator's bounds were."""
        delay_ms = self.initial_rebalance_delay_ms
        return msgspec.structs.replace(
            settings,
            min_session_timeout_ms=0,
            max_session_timeout_ms=INT32_MAX,
            initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms if delay_ms is None else delay_ms,
        )


class Altered:
    """The members of one history under the other settings."""

    def __init__(self, alterations: Alterations, identities: Identities) -> None:
        self.alterations = alterations
        self._identities = identities

    def is_known(self, member: Member) -> bool:
        """Whether it would be known again under an instance id: it has one, or its process can be told apart."""
        return self._identities.process_of(member).grade is not Grade.UNKNOWN

    def session_timeout_ms(self, member: Member) -> int:
        given = self.alterations.session_timeout_ms
        return member.session_timeout_ms if given is None else given

    def member(self, member: Member) -> Member:
        """The member under the other settings."""
        given = self.alterations.rebalance_timeout_ms
        instance = member.group_instance_id
        if instance is None and self.alterations.is_static and self.is_known(member):
            instance = GroupInstanceId("/".join(self._identities.process_of(member).key))
        return msgspec.structs.replace(
            member,
            group_instance_id=instance,
            session_timeout_ms=self.session_timeout_ms(member),
            rebalance_timeout_ms=member.rebalance_timeout_ms if given is None else given,
        )

    def group(self, group: Group) -> Group:
        """A group as recorded, under the other settings."""
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


def identities_of(history: History) -> Identities:
    """Tell who is who, over the whole history: whoever shared a client id and a host once cannot be told apart."""
    lives: dict[MemberId, Life] = {}
    for item in history.items:
        if not isinstance(item, Happened) or not isinstance(item.event, MemberEvent):
            continue
        event = item.event
        member = event.member
        known = lives.get(member.member_id)
        begin_ms = known.begin_ms if known is not None else member.joined_ms
        if isinstance(event, MemberRemoved):
            end_ms = event.last_seen_ms if event.why.cause is Cause.SESSION_EXPIRED else item.at_ms
            lives[member.member_id] = Life(member=member, begin_ms=begin_ms, end_ms=end_ms)
        else:
            lives[member.member_id] = Life(member=member, begin_ms=begin_ms)
    return Identities(lives.values())
