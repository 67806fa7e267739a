"""Says what a group has by a name that an administrator gives, for the messages that refuse it.

A name is an instance id, or the member id of a member without one.
"""

from collections.abc import Mapping
from typing import Final

from muster.coordinator.group.configs import LEARNERS, REGISTERED, RETIRED
from muster.coordinator.group.held_joins import held_join_of
from muster.coordinator.group.turn import Turn
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.near_names import did_you_mean
from muster.events.state import Member, MemberRole

LISTED_AS: Final[Mapping[str, str]] = {LEARNERS: "a learner", REGISTERED: "expected", RETIRED: "retiring"}
"""The nature of a name that is in the list of a config."""

_ROLES: Final[Mapping[MemberRole, str]] = {
    MemberRole.ACTIVE: "an active member",
    MemberRole.LEARNER: "a learner",
    MemberRole.STANDBY: "a standby",
    MemberRole.CALLED: "a standby that was called",
}


def what_is(turn: Turn, name: str) -> str | None:
    """Say what the group has by this name; None if it has nothing."""
    group, instance = turn.group, GroupInstanceId(name)
    member = group.members.get(group.instances.get(instance) or MemberId(name))
    if member is not None:
        return _member(member, name)
    if held_join_of(turn.soft, instance) is not None or name in turn.soft.held_joins:
        return "expected, and its join waits for others"
    if instance in group.registrations:
        return "expected, and has not joined"
    return None


def like(turn: Turn, name: str) -> str:
    """Return names like this one, to be put behind a sentence."""
    members = (member.name for member in turn.group.members.values())
    return did_you_mean(name, [*members, *turn.group.registrations])


def _member(member: Member, name: str) -> str:
    if name != member.name:
        return f"the member id of {member.name!r}, which has to be named by its instance id"
    return f"{_ROLES[member.role]}{' that is retiring' if member.retiring else ''}"
