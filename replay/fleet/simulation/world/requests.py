"""The requests of a process, as its client library writes them.

What belongs here: who a process says to be, and what it subscribes. What it must not know: when it asks, and what it
makes of the answers (`process.py`).
"""

from muster.coordinator.group.commands import Caller, JoinGroup, LeaveGroup, LeavingMember
from muster.coordinator.group.connections import ConnectionRecord
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import Protocol
from muster.replay.fleet.simulation.world.assignors import COOPERATIVE, Owned, as_subscription
from muster.replay.fleet.simulation.world.rules import Rules
from muster.replay.fleet.simulation.world.setup import Setup

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
    """Make a JoinGroup; a cooperative member says what it owns."""
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
    """The instance id; None: it is dynamic."""
    return None if setup.instance is None else GroupInstanceId(setup.instance)


def caller(setup: Setup, rules: Rules, api: tuple[int, int], request_id: int, connection: ConnectionRecord) -> Caller:
    """Say who asks, and when it arrives: at once."""
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
