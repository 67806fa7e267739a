"""Metrics and log lines for operators: for events that have just become durable, and for refused joins."""

from collections.abc import Callable, Iterable

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.outcomes import JoinGroupOutcome, Outcome, Reply
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.observability.group_metrics import NAMED_GROUPS
from muster.coordinator.observability.metrics import (
    GROUP_REBALANCES,
    GROUPS_EXPIRED,
    INSTANCE_DUELS,
    INSTANCE_FENCES,
    JOINS_TO_FULL_GROUPS,
    REBALANCES,
    STATIC_RESTARTS,
)
from muster.events.causes import Cause
from muster.events.events import AnyEvent, GroupDeleted, MemberFenced, RebalanceStarted, StaticMemberReplaced

log = structlog.get_logger(__name__)


def announce(events: Iterable[AnyEvent]) -> None:
    """Count, and log, events that have just become durable."""
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


class RefusedJoins:
    """Reports refused joins for which an operator can do something, in one log line a minute."""

    def __init__(self, settings: GroupSettings, monotonic_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._throttle = LogThrottle(monotonic_ms)

    def note_metadata_too_large(self, join: JoinGroup, size_bytes: int) -> None:
        """Report a join whose metadata is too large."""
        suppressed = self._throttle.due("metadata")
        if suppressed is None:
            return
        log.warning(
            "join refused: its metadata is larger than --member-metadata-max-bytes",
            group_id=join.group_id,
            client_id=join.caller.client_id,
            client_host=join.caller.client_host,
            size_bytes=size_bytes,
            limit_bytes=self._settings.member_metadata_max_bytes,
            others_since=suppressed,
        )

    def note_group_full(self, join: JoinGroup, replies: Iterable[Reply]) -> None:
        """Count and report the join if it is answered GROUP_MAX_SIZE_REACHED."""
        if not any(reply.request_id == join.caller.request_id and _is_full(reply.outcome) for reply in replies):
            return
        JOINS_TO_FULL_GROUPS.inc()
        suppressed = self._throttle.due(("full", join.group_id))
        if suppressed is not None:
            log.warning(
                "join refused: the group is full (group.max.size)",
                group_id=join.group_id,
                client_id=join.caller.client_id,
                client_host=join.caller.client_host,
                max_size=self._settings.max_size,
                others_since=suppressed,
            )


def _is_full(outcome: Outcome) -> bool:
    return isinstance(outcome, JoinGroupOutcome) and outcome.error is ErrorCode.group_max_size_reached
