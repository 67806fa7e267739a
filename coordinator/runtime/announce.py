"""What operators are told of events that have just become durable, and of refusals: counters, and lines of the log."""

from collections.abc import Callable, Iterable

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.outcomes import JoinGroupOutcome, Outcome, Reply
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.observability.metrics import (
    GROUPS_EXPIRED,
    INSTANCE_DUELS,
    INSTANCE_FENCES,
    JOINS_TO_FULL_GROUPS,
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


class RefusedJoins:
    """Joins that an operator can do something about: one line a minute, since a client may ask as often as it likes."""

    def __init__(self, settings: GroupSettings, monotonic_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._occasions = Occasions(monotonic_ms)

    def tell_metadata(self, join: JoinGroup, size_bytes: int) -> None:
        """One with too much metadata: name it, and how many there were since the last line."""
        unsaid = self._occasions.tell("metadata")
        if unsaid is None:
            return
        log.warning(
            "join refused: its metadata is larger than --member-metadata-max-bytes",
            group_id=join.group_id,
            client_id=join.caller.client_id,
            client_host=join.caller.client_host,
            size_bytes=size_bytes,
            limit_bytes=self._settings.member_metadata_max_bytes,
            others_since=unsaid,
        )

    def look(self, join: JoinGroup, replies: Iterable[Reply]) -> None:
        """Whether its group had no room for it, as its reply tells: counted, and told once a minute for each group."""
        if not any(reply.request_id == join.caller.request_id and _is_full(reply.outcome) for reply in replies):
            return
        JOINS_TO_FULL_GROUPS.inc()
        unsaid = self._occasions.tell(("full", join.group_id))
        if unsaid is not None:
            log.warning(
                "join refused: the group is full (group.max.size)",
                group_id=join.group_id,
                client_id=join.caller.client_id,
                client_host=join.caller.client_host,
                max_size=self._settings.max_size,
                others_since=unsaid,
            )


def _is_full(outcome: Outcome) -> bool:
    return isinstance(outcome, JoinGroupOutcome) and outcome.error is ErrorCode.group_max_size_reached
