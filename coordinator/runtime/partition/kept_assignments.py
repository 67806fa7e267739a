"""Logs static members that rejoin with another subscription: as in Kafka, this causes no rebalance.

They get the assignment that they had, and newly subscribed topics have no consumer until the next rebalance. In each
group ten members get their own log lines, one a minute; the others share one.
"""

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from muster.coordinator.log_throttle import NAMES_MAX, NamesThrottle
from muster.coordinator.observability.metrics import SUBSCRIPTIONS_NOT_ASSIGNED
from muster.events.causes import Cause
from muster.events.consumer_protocol import subscribed_topics
from muster.events.events import AnyEvent, StaticMemberReplaced
from muster.events.state import Group, Member

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

EVENT: Final = "a static member rejoined with another subscription and kept its assignment, without a rebalance"


class KeptAssignments:
    """Logs static members that rejoined with another subscription but kept their old assignment."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._throttle = NamesThrottle(monotonic_ms)

    def note(self, events: Iterable[AnyEvent], before: Group | None) -> None:
        """Log those that rejoined in these durable events. `before`: the group before the events."""
        for event in events:
            if isinstance(event, StaticMemberReplaced) and event.why.cause is Cause.STATIC_RESTART_ABSORBED:
                replaced = None if before is None else before.members.get(event.replaced_member_id)
                if replaced is not None and replaced.protocols != event.member.protocols:
                    self._note(event, replaced)

    def _note(self, event: StaticMemberReplaced, replaced: Member) -> None:
        topics, former = _topics(event.member), _topics(replaced)
        if topics is None or former is None or topics == former:
            return
        SUBSCRIPTIONS_NOT_ASSIGNED.inc()
        suppressed = self._throttle.due(event.group_id, event.member.group_instance_id)
        if suppressed is not None:
            log.warning(
                EVENT,
                group_id=event.group_id,
                group_instance_id=event.member.group_instance_id,
                client_id=event.member.client_id,
                client_host=event.member.client_host,
                **_named(new_topics=topics - former, former_topics=former - topics),
                way_out=f"after all of them have restarted: muster members rebalance {event.group_id}",
                others_since=suppressed,
            )


def _named(**topics: frozenset[str]) -> dict[str, list[str]]:
    """Return the fields that name at least one topic."""
    return {field: sorted(named)[:NAMES_MAX] for field, named in topics.items() if named}


def _topics(member: Member) -> frozenset[str] | None:
    return subscribed_topics(member.protocols[0].metadata) if member.protocols else None
