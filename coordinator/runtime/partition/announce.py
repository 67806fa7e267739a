"""Metrics and log lines for events that have just become durable."""

from collections.abc import Iterable

import structlog

from muster.coordinator.observability.group_metrics import NAMED_GROUPS
from muster.coordinator.observability.metrics import (
    GROUP_REBALANCES,
    GROUPS_EXPIRED,
    INSTANCE_DUELS,
    INSTANCE_FENCES,
    REBALANCES,
    STATIC_RESTARTS,
)
from muster.events.causes import Cause
from muster.events.events import AnyEvent, GroupDeleted, MemberFenced, RebalanceStarted, StaticMemberReplaced

log = structlog.get_logger(__name__)


def announce(events: Iterable[AnyEvent]) -> None:
    for event in events:
        if isinstance(event, RebalanceStarted):
            REBALANCES.labels(event.why.cause.value).inc()
            if event.group_id in NAMED_GROUPS:
                GROUP_REBALANCES.labels(event.group_id, event.why.cause.value).inc()
        elif isinstance(event, StaticMemberReplaced):
            STATIC_RESTARTS.inc()
        elif isinstance(event, MemberFenced):
            _announce_fence(event)
        elif isinstance(event, GroupDeleted) and event.why.cause is Cause.GROUP_EXPIRED:
            GROUPS_EXPIRED.inc()


def _announce_fence(event: MemberFenced) -> None:
    if event.why.cause is not Cause.INSTANCE_DUEL:
        INSTANCE_FENCES.inc(1 + event.suppressed)
        return
    INSTANCE_DUELS.inc(1 + event.suppressed)
    log.warning(
        "two live processes share one group.instance.id and keep fencing each other",
        group_id=event.group_id,
        group_instance_id=event.why.group_instance_id,
        client_id=event.why.client_id,
        client_host=event.why.client_host,
        other_client_id=event.current_client_id,
        other_client_host=event.current_client_host,
        suppressed=event.suppressed,
        way_out="stop one of them, or give each process a group.instance.id of its own",
    )
