"""What the broker lets a client do with a group, asked on the client's own connection and kept for a while.

The broker alone knows who the client is and which ACLs there are. DescribeGroups v5 tells the operations that are
allowed (KIP-430), also for a group that does not exist; v6 hides them then. Who may not even describe the group is
answered 30, and may do nothing with it. A verdict belongs to one connection: another one that repeats a member's bytes
is asked about anew.
"""

from collections.abc import Callable

import msgspec
from cachetools import FIFOCache
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.types import GroupId as KioGroupId
from kio.static.primitive import i32

from muster.coordinator.sidecar.messages.own_requests import BrokerLink, ask
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.wire.authorized_operations import DESCRIBE
from muster.events.ids import GroupId

GROUPS_MAX = 4_096
"""Groups remembered for one connection; the one asked about first makes room."""


class GroupAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """`operations` are Kafka's bits. `error` stands for all when the broker could not tell."""

    operations: int
    error: ErrorCode
    until_ms: int

    def refusal(self, operation: int) -> ErrorCode:
        """NONE if the operation is allowed."""
        if self.error is not ErrorCode.none:
            return self.error
        return ErrorCode.none if self.operations & operation else ErrorCode.group_authorization_failed


class AuthorizationCache:
    """Those of one connection. `keep_ms`: how long one is good; 0 asks each time."""

    def __init__(
        self, client: BrokerLink, *, metrics: RelayMetrics, monotonic_ms: Callable[[], int], keep_ms: int
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._monotonic_ms = monotonic_ms
        self._keep_ms = keep_ms
        self._cached: FIFOCache[GroupId, GroupAuthorization] = FIFOCache(GROUPS_MAX)

    def known(self, group_id: GroupId, now_ms: int) -> GroupAuthorization | None:
        """The authorization, if there is one that is still good."""
        authorization = self._cached.get(group_id)
        return authorization if authorization is not None and now_ms < authorization.until_ms else None

    def last(self, group_id: GroupId) -> GroupAuthorization | None:
        """The verdict of last time, also if it is good no more."""
        return self._cached.get(group_id)

    async def of(self, group_id: GroupId) -> GroupAuthorization:
        """The authorization, asked for if need be. Raises ProtocolError."""
        known = self.known(group_id, self._monotonic_ms())
        return known or (await self.ask((group_id,)))[group_id]

    async def refusal_at_any_broker(self, group_id: GroupId, operation: int) -> ErrorCode:
        """NONE if the operation (READ or DESCRIBE) is allowed; also where another broker coordinates the group.

        There a broker says no more than who may not describe it, and to a heartbeat who may not read: both are asked
        before whose the group is. Raises ProtocolError.
        """
        authorization = await self.of(group_id)
        if authorization.error is not ErrorCode.not_coordinator:
            return authorization.refusal(operation)
        if operation == DESCRIBE:
            return ErrorCode.none
        nobody = HeartbeatRequest(group_id=KioGroupId(group_id), generation_id=i32(-1), member_id="")
        answer = await ask(self._client, nobody, HeartbeatResponse)
        denied = answer.error_code is ErrorCode.group_authorization_failed
        return answer.error_code if denied else ErrorCode.none

    async def ask(self, group_ids: tuple[GroupId, ...]) -> dict[GroupId, GroupAuthorization]:
        """Fresh authorizations. Raises ProtocolError."""
        request = DescribeGroupsRequest(
            groups=tuple(KioGroupId(group_id) for group_id in group_ids), include_authorized_operations=True
        )
        until_ms = self._monotonic_ms() + self._keep_ms  # from before the question on
        self._metrics.authorizations_asked += 1
        answer = await ask(self._client, request, DescribeGroupsResponse)
        authorizations: dict[GroupId, GroupAuthorization] = {}
        for group in answer.groups:
            group_id = GroupId(group.group_id)
            denied = group.error_code is ErrorCode.group_authorization_failed
            authorization = GroupAuthorization(
                operations=0 if denied else max(i32(0), group.authorized_operations),
                error=ErrorCode.none if denied else group.error_code,
                until_ms=until_ms,
            )
            authorizations[group_id] = authorization
            if authorization.error is ErrorCode.none:
                self._cached[group_id] = authorization
        return authorizations

    def forget(self) -> None:
        """Ask anew about all: the client may be somebody else from here on."""
        self._cached.clear()
