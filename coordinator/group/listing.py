"""The listing of a group for administrators: its configs, its members, and the expected ones."""

import math
from collections.abc import Iterable

from muster.coordinator.group.configs import LEARNERS, LIST_LENGTH_MAX, REGISTERED, RETIRED, values_set
from muster.coordinator.group.departures import retiring_members
from muster.coordinator.group.outcomes import DescribeGroupConfigOutcome, ListedMember, Standing
from muster.coordinator.group.roles import learners
from muster.coordinator.group.soft_state import HeldJoin, SoftState
from muster.coordinator.group.turn import Now
from muster.events.ids import MemberId
from muster.events.state import Group, Member, Registration


def describe_config(group: Group | None, soft: SoftState, now: Now) -> DescribeGroupConfigOutcome:
    """Describe a group's configs and members; a group that does not exist has none, without an error (as in Kafka)."""
    if group is None:
        return DescribeGroupConfigOutcome()
    lists: dict[str, list[str]] = {
        LEARNERS: _that_fit(member.name for member in learners(group)),
        REGISTERED: list(group.registrations),
        RETIRED: [member.name for member in retiring_members(group)],
    }
    arrived = {held.join.group_instance_id for held in soft.held_joins.values()}
    return DescribeGroupConfigOutcome(
        values=values_set(group.config) | {name: ",".join(names) for name, names in lists.items() if names},
        members=(
            *(_member(group, each, soft, now) for each in group.members.values()),
            *(_waiting(member_id, each, now) for member_id, each in soft.held_joins.items()),
            *(_expected(each) for instance, each in group.registrations.items() if instance not in arrived),
        ),
    )


def _that_fit(names: Iterable[str]) -> list[str]:
    """Return the first names that fit into one value, since only the size of the group limits the number of
    learners.
    """
    shown, left = [], LIST_LENGTH_MAX
    for name in names:
        left -= len(name) + 1
        if left < 0:
            break
        shown.append(name)
    return shown


def _member(group: Group, member: Member, soft: SoftState, now: Now) -> ListedMember:
    session = soft.sessions[member.member_id]
    left_ms = None if session.deadline_ms == math.inf else max(0, int(session.deadline_ms) - now.monotonic_ms)
    return ListedMember(
        group_instance_id=member.group_instance_id,
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        standing=Standing(member.role.value),
        retiring=member.retiring,
        is_leader=member.member_id == group.leader_id,
        session_left_ms=None if session.awaits_first_join else left_ms,
        join_left_ms=left_ms if session.awaits_first_join else None,
        since_ms=member.joined_ms,
    )


def _waiting(member_id: MemberId, held: HeldJoin, now: Now) -> ListedMember:
    caller = held.join.caller
    return ListedMember(
        group_instance_id=held.join.group_instance_id,
        member_id=member_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        standing=Standing.WAITING,
        retiring=False,
        is_leader=False,
        session_left_ms=None,
        since_ms=now.wall_of(held.arrived_ms),
    )


def _expected(registration: Registration) -> ListedMember:
    return ListedMember(
        group_instance_id=registration.group_instance_id,
        member_id=MemberId(""),
        client_id="",
        client_host="",
        standing=Standing.EXPECTED,
        retiring=False,
        is_leader=False,
        session_left_ms=None,
        since_ms=registration.registered_ms,
    )
