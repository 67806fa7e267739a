"""How a process is configured, its group's place and time, and the requests that its client library makes.

When requests are sent, and how responses are handled, is in `process.py`.
"""

from typing import Any, Self

import msgspec

from muster.coordinator.group.commands import Caller, JoinGroup, LeaveGroup, LeavingMember
from muster.coordinator.group.connections import ConnectionRecord
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.state import Protocol
from muster.replay.fleet.simulation.world.assignors import COOPERATIVE, Owned, as_subscription
from muster.replay.fleet.simulation.world.rules import GROUP_ID, Rules

HOSTS = 1_024
"""The number of addresses reserved for a group of a fleet, so that no two groups share a host."""


class PlaceAndTime(msgspec.Struct, frozen=True, kw_only=True):
    """The place and time of a group. `began_ms`: wall clock; None: random.

    `first_host`: the number of its first host within 10.0.0.0/8, of HOSTS; None: the judge's usual hosts.
    """

    group_id: GroupId = GROUP_ID
    began_ms: int | None = None
    first_host: int | None = None

    def host(self, number: int) -> str:
        """The host with this number, as Kafka prints it; processes on a shared host are on number 0."""
        if self.first_host is None:
            return f"/10.0.{number // 200}.{number % 200 + 1}" if number else "/127.0.0.1"
        address = (self.first_host + number % HOSTS) % 2**24
        return f"/10.{address >> 16}.{address >> 8 & 255}.{address & 255}"


NOWHERE = PlaceAndTime()


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How a process is configured and how slow it is; times in ms. `name` identifies it across restarts."""

    name: str
    client_id: str
    host: str
    instance: str | None
    library: str
    version: int
    session_ms: int
    rebalance_ms: int
    assignors: tuple[str, ...]
    topics: tuple[str, ...] = ("orders",)
    heartbeat_ms: int = 3_000
    poll_ms: int = 400
    """The longest time until its next poll, at which it rejoins."""
    assign_ms: int = 30

    @property
    def tells_reasons(self) -> bool:
        return self.library == "java" and self.version >= 8

    def but(self, **fields: Any) -> Self:
        """A copy with these fields changed."""
        return msgspec.structs.replace(self, **fields)


JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
NEEDED_ID = "need to re-join with the given member-id: {}"
REBALANCING = "group is already rebalancing"
FORGOTTEN = "encountered UNKNOWN_MEMBER_ID from HEARTBEAT response"
REVOKED = "need to revoke partitions [] as indicated by the current assignment and re-join"


def join_group(
    setup: Setup,
    rules: Rules,
    request_id: int,
    *,
    member_id: MemberId,
    proposed_member_id: MemberId,
    owned: Owned,
    reason: str | None,
    connection: ConnectionRecord,
) -> JoinGroup:
    """Make a JoinGroup; a cooperative member includes the partitions that it owns."""
    metadata = as_subscription(setup.topics, owned if COOPERATIVE in setup.assignors else None)
    return JoinGroup(
        group_id=rules.group_id,
        caller=caller(setup, rules, (JOIN, setup.version), request_id, connection),
        member_id=member_id,
        group_instance_id=instance_of(setup),
        proposed_member_id=proposed_member_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=tuple(Protocol(name=name, metadata=metadata) for name in setup.assignors),
        session_timeout_ms=setup.session_ms,
        rebalance_timeout_ms=setup.rebalance_ms,
        reason=reason if setup.tells_reasons else None,
        requires_known_member_id=setup.version >= 4 and setup.instance is None,
        supports_skip_assignment=setup.version >= 9,
    )


def leave_group(
    setup: Setup,
    rules: Rules,
    request_id: int,
    *,
    member_id: MemberId,
    reason: str | None,
    connection: ConnectionRecord,
) -> LeaveGroup:
    """Make a LeaveGroup of one member."""
    told = reason if setup.tells_reasons else None
    leaving = LeavingMember(member_id=member_id, group_instance_id=instance_of(setup), reason=told)
    asking = caller(setup, rules, (LEAVE, 5), request_id, connection)
    return LeaveGroup(group_id=rules.group_id, caller=asking, members=(leaving,))


def instance_of(setup: Setup) -> GroupInstanceId | None:
    """The instance id; None for a dynamic member."""
    return None if setup.instance is None else GroupInstanceId(setup.instance)


def caller(setup: Setup, rules: Rules, api: tuple[int, int], request_id: int, connection: ConnectionRecord) -> Caller:
    """The caller of a request that arrives immediately."""
    api_key, api_version = api
    connection.received_ms = rules.now_ms
    return Caller(
        request_id=request_id,
        client_id=setup.client_id,
        client_host=setup.host,
        principal=f"User:{rules.group_id}",
        api_key=api_key,
        api_version=api_version,
        arrived_ms=rules.now_ms,
        arrived_wall_ms=rules.wall_ms,
        connection=connection,
    )
