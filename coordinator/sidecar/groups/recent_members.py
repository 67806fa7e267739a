"""Members of upstream's groups whose requests were relayed here within the last minute.

Nothing else is known of them, since their requests are relayed. A group can be adopted if all its members are recent.
Any client can claim to be a member, so a member is recorded only after the broker has answered it as one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from cachetools import FIFOCache
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.observability.group_metrics import in_slices
from muster.coordinator.sidecar.messages.own_requests import read_answer_in_steps
from muster.coordinator.sidecar.relay.intercept import ClientRequest
from muster.coordinator.wire import heartbeat, sync_group
from muster.events.ids import GroupId, MemberId, is_remembered
from muster.events.steps import Steps

MEMBERS_MAX = 100_000
"""Limit of members; the one not seen for the longest time is removed first. A member with a very long id is not
recorded, so its group cannot be adopted.
"""
RECENT_WINDOW_MS = 60_000
"""Clients send heartbeats every few seconds, but none while their join waits for a rebalance."""
_LISTENED_TO = frozenset({heartbeat.KEY, sync_group.API.key})
"""The APIs whose responses are read; these are short. A member that has joined sends SyncGroup next."""
_TOLD_TO_MEMBERS = frozenset({ErrorCode.none, ErrorCode.rebalance_in_progress})


class RecentMembers:
    """Members seen within the last minute, by upstream group."""

    def __init__(self, monotonic_ms: Callable[[], int], *, members_max: int = MEMBERS_MAX) -> None:
        self._monotonic_ms = monotonic_ms
        self._seen_ms: FIFOCache[tuple[GroupId, MemberId], int] = FIFOCache(members_max)

    def relay(self, request: ClientRequest) -> None:
        """Relay a membership request of an upstream group, and read the response."""
        body, context = request.body, request.context
        if context.api_key in _LISTENED_TO and body.member_id:
            schema = load_response_schema(context.api_key, context.api_version)
            request.client.relay(rewrite=partial(self._listen, schema, body.group_id, body.member_id))
        else:
            request.relay()

    def _listen(self, schema: type[Any], group_id: GroupId, member_id: MemberId, payload: bytes) -> Steps[bytes]:
        """Read the response and return it unchanged. Raises ProtocolError if it cannot be read."""
        if (yield from read_answer_in_steps(schema, payload)).error_code in _TOLD_TO_MEMBERS:
            self.record(group_id, member_id, self._monotonic_ms())
        return payload

    def record(self, group_id: GroupId, member_id: MemberId, now_ms: int) -> None:
        """Record that the broker has answered this member as one."""
        if is_remembered(group_id, member_id):
            self._seen_ms[group_id, member_id] = now_ms

    def counted(self) -> tuple[int, int]:
        """Return how many groups and members were seen within RECENT_WINDOW_MS. Thread-safe."""
        since_ms = self._monotonic_ms() - RECENT_WINDOW_MS
        groups: set[GroupId] = set()
        members = 0
        for key in in_slices(list(self._seen_ms)):  # list() of a dictionary is atomic
            if self._seen_ms.get(key, 0) >= since_ms:
                members += 1
                groups.add(key[0])
        return len(groups), members

    def is_recent(self, group_id: GroupId, member_id: MemberId, now_ms: int) -> bool:
        """Return whether the member was seen within RECENT_WINDOW_MS."""
        seen_ms = self._seen_ms.get((group_id, member_id))
        return seen_ms is not None and now_ms - seen_ms <= RECENT_WINDOW_MS
