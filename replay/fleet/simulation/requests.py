"""The requests of a process, as its client library writes them.

What belongs here: who a process says to be, and what it subscribes. What it must not know: when it asks, and what it
makes of the answers (`process.py`).
"""

from typing import TYPE_CHECKING, Final

from muster.coordinator.group.commands import Caller, JoinGroup
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from muster.events.ids import GroupInstanceId
from muster.events.state import Protocol
from muster.replay.fleet.simulation.assignors import COOPERATIVE, as_subscription

if TYPE_CHECKING:
    from muster.replay.fleet.simulation.process import Process

JOIN: Final = 11


def join_group(process: "Process", reason: str | None, request_id: int) -> JoinGroup:
    """Make its JoinGroup; a cooperative member says what it owns."""
    setup = process.setup
    owned = process.owned if COOPERATIVE in setup.assignors else None
    metadata = as_subscription(setup.topics, owned)
    return JoinGroup(
        group_id=process.world.rules.group_id,
        caller=caller(process, JOIN, setup.version, request_id),
        member_id=process.member_id,
        group_instance_id=instance_of(process),
        proposed_member_id=process.world.new_member_id(process),
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=tuple(Protocol(name=name, metadata=metadata) for name in setup.assignors),
        session_timeout_ms=setup.session_ms,
        rebalance_timeout_ms=setup.rebalance_ms,
        reason=reason if setup.tells_reasons else None,
        requires_known_member_id=setup.version >= 4 and setup.instance is None,
        supports_skip_assignment=setup.version >= 9,
    )


def instance_of(process: "Process") -> GroupInstanceId | None:
    """Its instance id; None: it is dynamic."""
    return None if process.setup.instance is None else GroupInstanceId(process.setup.instance)


def caller(process: "Process", api_key: int, api_version: int, request_id: int) -> Caller:
    """Say who asks, and when it arrives: at once."""
    rules = process.world.rules
    return Caller(
        request_id=request_id,
        client_id=process.setup.client_id,
        client_host=process.setup.host,
        principal=f"User:{rules.group_id}",
        api_key=api_key,
        api_version=api_version,
        arrived_ms=process.world.now_ms,
        arrived_wall_ms=rules.wall_ms,
    )
