"""The operations that the broker allows a client on a group: requested on the client's connection, and cached.

Only the broker knows the client's principal and the ACLs. DescribeGroups v5 returns the allowed operations (KIP-430),
even for a group that does not exist; v6 omits them then. A client without DESCRIBE on the group gets error 30
(GROUP_AUTHORIZATION_FAILED) and is allowed nothing on it. Denials are not cached, since a client could name any number
of groups. Each connection has its own cache: a request with the same bytes on another connection is authorized again.
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
from muster.events.ids import GroupId, is_remembered

CACHED_BYTES_MAX = 16_384
"""Limit of a connection's cache, about 80 groups with ids of ordinary length; the oldest entry makes room for a new
one.

A connection may keep this much uncounted (FREE_BYTES). Very long ids are not cached.
"""
_ENTRY_BYTES, _CHARACTER_BYTES = 128, 4
"""The bytes of an entry without its id, and the most that each character of the id takes."""


class GroupAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """`operations` are Kafka's bits. `error`, if set, is the broker's error instead."""

    group_id: GroupId
    operations: int
    error: ErrorCode
    until_ms: int

    def refusal(self, operation: int) -> ErrorCode:
        """Return NONE if the operation is allowed, else the error."""
        if self.error is not ErrorCode.none:
            return self.error
        return ErrorCode.none if self.operations & operation else ErrorCode.group_authorization_failed


class AuthorizationCache:
    """The authorizations of one connection. `keep_ms`: how long each is cached; 0 disables the cache."""

    def __init__(
        self, client: BrokerLink, *, metrics: RelayMetrics, monotonic_ms: Callable[[], int], keep_ms: int
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._monotonic_ms = monotonic_ms
        self._keep_ms = keep_ms
        self._cached: FIFOCache[GroupId, GroupAuthorization] = FIFOCache(CACHED_BYTES_MAX, getsizeof=_entry_bytes)

    def cached(self, group_id: GroupId, now_ms: int) -> GroupAuthorization | None:
        """Return the cached authorization if it has not expired."""
        authorization = self._cached.get(group_id)
        return authorization if authorization is not None and now_ms < authorization.until_ms else None

    def last(self, group_id: GroupId) -> GroupAuthorization | None:
        """Return the last authorization, even if it has expired."""
        return self._cached.get(group_id)

    async def of(self, group_id: GroupId) -> GroupAuthorization:
        """Return the authorization from the cache or from the broker. Raises ProtocolError."""
        cached = self.cached(group_id, self._monotonic_ms())
        return cached or (await self.ask((group_id,)))[group_id]

    async def refusal_at_any_broker(self, group_id: GroupId, operation: int) -> ErrorCode:
        """Return NONE if the operation (READ or DESCRIBE) is allowed, even if another broker coordinates the group.

        Another broker answers NOT_COORDINATOR, but it checks the ACL first: DESCRIBE for DescribeGroups, READ for
        Heartbeat. So a denial is certain, and any other response means allowed. Raises ProtocolError.
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
        """Ask the broker and update the cache. Raises ProtocolError."""
        request = DescribeGroupsRequest(
            groups=tuple(KioGroupId(group_id) for group_id in group_ids), include_authorized_operations=True
        )
        until_ms = self._monotonic_ms() + self._keep_ms  # counted from before the request
        self._metrics.authorizations_asked += 1
        answer = await ask(self._client, request, DescribeGroupsResponse)
        authorizations: dict[GroupId, GroupAuthorization] = {}
        for group in answer.groups:
            group_id = GroupId(group.group_id)
            denied = group.error_code is ErrorCode.group_authorization_failed
            authorization = GroupAuthorization(
                group_id=group_id,
                operations=0 if denied else max(i32(0), group.authorized_operations),
                error=ErrorCode.none if denied else group.error_code,
                until_ms=until_ms,
            )
            authorizations[group_id] = authorization
            self._cached.pop(group_id, None)
            if authorization.operations and authorization.error is ErrorCode.none and is_remembered(group_id):
                self._cached[group_id] = authorization
        return authorizations

    def forget(self) -> None:
        """Clear the cache: the client may now have another principal."""
        self._cached.clear()


def _entry_bytes(authorization: GroupAuthorization) -> int:
    return _ENTRY_BYTES + _CHARACTER_BYTES * len(authorization.group_id)
