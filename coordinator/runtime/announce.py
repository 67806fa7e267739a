"""What operators are told of events that have just become durable, and of refusals: counters, and lines of the log."""

from collections.abc import Callable, Iterable

import structlog

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.observability.metrics import (
    GROUPS_EXPIRED,
    INSTANCE_DUELS,
    INSTANCE_FENCES,
    REBALANCES,
    STATIC_RESTARTS,
)
from muster.coordinator.occasions import Occasions
from muster.events.causes import Cause
from muster.events.events import AnyEvent, GroupDeleted, MemberFenced, RebalanceStarted, StaticMemberReplaced

log = structlog.get_logger(__name__)


def announce(events: Iterable[AnyEvent]) -> None:
    """Events that a group has just made durable."""
    for event in events:
        if isinstance(event, RebalanceStarted):
            REBALANCES.labels(event.why.cause.value).inc()
        elif isinstance(event, StaticMemberReplaced):
            STATIC_RESTARTS.inc()
        elif isinstance(event, MemberFenced):
            _announce_fence(event)
        elif isinstance(event, GroupDeleted) and event.why.cause is Cause.GROUP_EXPIRED:
            GROUPS_EXPIRED.inc()


def _announce_fence(event: MemberFenced) -> None:
    if event.why.cause is not Cause.INSTANCE_DUEL:
        INSTANCE_FENCES.inc()
        return
    INSTANCE_DUELS.inc(1 + event.suppressed)
    log.warning(
        "two live processes have one group.instance.id, and take it from each other",
        group_id=event.group_id,
        group_instance_id=event.why.group_instance_id,
        client_id=event.why.client_id,
        client_host=event.why.client_host,
        other_client_id=event.current_client_id,
        other_client_host=event.current_client_host,
        suppressed=event.suppressed,
    )


class RefusedMetadata:
    """Joins with more metadata than `limit_bytes`: one line a minute, since a client may ask as often as it likes."""

    def __init__(self, limit_bytes: int, monotonic_ms: Callable[[], int]) -> None:
        self._limit_bytes = limit_bytes
        self._occasions = Occasions(monotonic_ms)

    def tell(self, join: JoinGroup, size_bytes: int) -> None:
        """Name it, and how many there were since the last line."""
        unsaid = self._occasions.tell("metadata")
        if unsaid is None:
            return
        log.warning(
            "join refused: its metadata is larger than --member-metadata-max-bytes",
            group_id=join.group_id,
            client_id=join.caller.client_id,
            client_host=join.caller.client_host,
            size_bytes=size_bytes,
            limit_bytes=self._limit_bytes,
            others_since=unsaid,
        )
