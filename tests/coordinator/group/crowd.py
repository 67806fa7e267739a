"""A group of thousands and its rules only, to measure the cost of a decision.

Unlike the harness it checks nothing, since that would cost more than the decision. A test moves the clock.
"""

from typing import Any

from muster.coordinator.group.commands import (
    AnyCommand,
    Caller,
    EndJoinPhase,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from muster.coordinator.group.commands import LeavingMember as Leaving
from muster.coordinator.group.decide import Decision, decide
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.turn import Now
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE, encode_assignment, encode_subscription
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupId, GroupInstanceId, MemberId
from muster.events.state import Group, GroupState, Protocol

GROUP_ID = GroupId("orders")
WALL_OFFSET_MS = 1_700_000_000_000
SUBSCRIPTION = encode_subscription(["orders"])
PROTOCOLS = tuple(Protocol(name=name, metadata=SUBSCRIPTION) for name in ("range", "cooperative-sticky"))
ASSIGNMENT = encode_assignment({"orders": [0]})


class Crowd:
    """See the module. `group` and `soft` are the result of the last command."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.soft = SoftState()
        self.settings = GroupSettings()
        self._group: Group | None = None
        self._requests = 0

    @property
    def group(self) -> Group:
        assert self._group is not None
        return self._group

    def send(self, command: AnyCommand) -> Decision:
        decision = decide(command, self._group, self.soft, self.now(), self.settings)
        self._group, self.soft = decision.group, decision.soft
        return decision

    def now(self) -> Now:
        return Now(monotonic_ms=self.now_ms, wall_ms=self.now_ms + WALL_OFFSET_MS, owner_epoch=0, incarnation=1)

    # ---- requests -------------------------------------------------------------------------------

    def join(self, member_id: MemberId, instance: str | None = None, proposed: str = "") -> JoinGroup:
        return JoinGroup(
            **self._request(11),
            member_id=member_id,
            group_instance_id=None if instance is None else GroupInstanceId(instance),
            proposed_member_id=MemberId(proposed),
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=PROTOCOLS,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            reason=None,
            requires_known_member_id=instance is None,
            supports_skip_assignment=True,
        )

    def sync(self, member_id: MemberId) -> SyncGroup:
        """SyncGroup; the leader's has an assignment for all members."""
        leads = member_id == self.group.leader_id
        return SyncGroup(
            **self._request(14),
            member_id=member_id,
            group_instance_id=None,
            generation_id=self.group.generation_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=self.group.image.protocol_name,
            assignments=tuple((each, ASSIGNMENT) for each in self.group.members) if leads else (),
        )

    def heartbeat(self, member_id: MemberId) -> Heartbeat:
        return Heartbeat(
            **self._request(12),
            member_id=member_id,
            group_instance_id=None,
            generation_id=self.group.generation_id,
        )

    def leave(self, member_id: MemberId) -> LeaveGroup:
        leaving = Leaving(member_id=member_id, group_instance_id=None, reason=None)
        return LeaveGroup(**self._request(13), members=(leaving,))

    def _request(self, api_key: int) -> dict[str, Any]:
        self._requests += 1
        return {
            "group_id": GROUP_ID,
            "caller": Caller(
                request_id=self._requests,
                client_id="app",
                client_host="/10.0.0.1",
                principal="User:orders",
                api_key=api_key,
                api_version=9,
                arrived_ms=self.now_ms,
                arrived_wall_ms=self.now_ms + WALL_OFFSET_MS,
            ),
        }

    # ---- what members do ------------------------------------------------------------------------

    def come(self, name: str) -> MemberId:
        """Join a new dynamic member in two steps (KIP-394)."""
        self.send(self.join(UNKNOWN_MEMBER_ID, proposed=name))
        self.send(self.join(MemberId(name)))
        return MemberId(name)

    def rejoin_all(self) -> None:
        """Rejoin every member that the running join phase waits for."""
        for member_id in [each for each in self.group.members if each not in self.soft.parked_joins]:
            self.send(self.join(member_id, self.group.members[member_id].group_instance_id))

    def sync_all(self) -> None:
        """All members sync, the leader last."""
        leader_id = self.group.leader_id
        for member_id in sorted(self.group.members, key=lambda each: each == leader_id):
            self.send(self.sync(member_id))
        assert self.group.state is GroupState.STABLE


def formed(size: int, *, static: bool = False) -> Crowd:
    """A stable group of this size."""
    crowd = Crowd()
    for number in range(size):
        name = f"consumer-orders-{number}-5e54f7ce-f4ae-4e4f-9c1e-{number:012d}"
        if static:
            crowd.send(crowd.join(UNKNOWN_MEMBER_ID, f"i{number}", name))
        else:
            crowd.come(name)
    while crowd.group.state is GroupState.PREPARING_REBALANCE:
        assert crowd.soft.join_deadline_ms is not None
        crowd.now_ms = crowd.soft.join_deadline_ms
        crowd.send(EndJoinPhase(group_id=GROUP_ID, due_ms=crowd.now_ms))
    crowd.sync_all()
    return crowd
