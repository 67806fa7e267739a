"""Which members of groups that are upstream's were heard of here lately: those that are connected to this sidecar.

Their requests are relayed, so nothing else is known of them. A group can be adopted if all its members are among them.
Anybody can claim to be a member: one is heard of when the broker has taken it for one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from cachetools import FIFOCache
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.messages.own_requests import read_answer_in_steps
from muster.coordinator.sidecar.relay.intercept import ClientRequest
from muster.coordinator.wire import heartbeat, sync_group
from muster.events.ids import GroupId, MemberId
from muster.events.steps import Steps

MEMBERS_MAX = 100_000
"""The one that was silent for longest is forgotten first."""
IDS_BYTES_MAX = 1_024
"""Of a group's id and a member's together. Whose ids are longer is never heard of, so its group cannot be adopted."""
RECENT_WINDOW_MS = 60_000
"""Clients heartbeat every few seconds, but not while a rebalance keeps their join waiting."""
_LISTENED_TO = frozenset({heartbeat.KEY, sync_group.API.key})
"""Their answers are short; whoever has joined syncs next."""
_TOLD_TO_MEMBERS = frozenset({ErrorCode.none, ErrorCode.rebalance_in_progress})


class RecentMembers:
    """See the module."""

    def __init__(self, monotonic_ms: Callable[[], int], *, members_max: int = MEMBERS_MAX) -> None:
        self._monotonic_ms = monotonic_ms
        self._seen_ms: FIFOCache[tuple[GroupId, MemberId], int] = FIFOCache(members_max)

    def relay(self, request: ClientRequest) -> None:
        """A membership request of a group that is upstream's goes there."""
        body, context = request.body, request.context
        if context.api_key in _LISTENED_TO and body.member_id:
            schema = load_response_schema(context.api_key, context.api_version)
            request.client.relay(rewrite=partial(self._listen, schema, body.group_id, body.member_id))
        else:
            request.relay()

    def _listen(self, schema: type[Any], group_id: GroupId, member_id: MemberId, payload: bytes) -> Steps[bytes]:
        """The answer, unchanged. Raises ProtocolError when it is none."""
        if (yield from read_answer_in_steps(schema, payload)).error_code in _TOLD_TO_MEMBERS:
            self.record(group_id, member_id, self._monotonic_ms())
        return payload

    def record(self, group_id: GroupId, member_id: MemberId, now_ms: int) -> None:
        """The broker has answered a request of this member as a member's."""
        if len(group_id.encode()) + len(member_id.encode()) > IDS_BYTES_MAX:
            return
        self._seen_ms[group_id, member_id] = now_ms

    def is_recent(self, group_id: GroupId, member_id: MemberId, now_ms: int) -> bool:
        """Whether it was heard of lately."""
        seen_ms = self._seen_ms.get((group_id, member_id))
        return seen_ms is not None and now_ms - seen_ms <= RECENT_WINDOW_MS
