"""Permanently refused joins: each is counted, and a log line says which client was refused, why, and what to do.

After such an error a client stops, or retries the same join forever. For each reason ten groups get their own log
lines, one a minute; all others share one, because group ids can be many, or made up. Ten client hosts have such lines
of their own, and each host has a share of the records, so that a client that makes up group ids hides no other client's
refusal. The limits apply to the process, not to each partition. Errors that clients recover from by themselves (an
unknown member id, a rebalance) are not refusals; a fenced instance id is handled in `announce.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum, unique
from typing import Final

import msgspec
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.decide import Decision
from muster.coordinator.group.join import METADATA_TOO_LARGE, metadata_bytes
from muster.coordinator.group.members import supported_by_all
from muster.coordinator.group.outcomes import JoinGroupOutcome, Reply
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.log_throttle import LINE_INTERVAL_MS, NAMES_MAX, LogThrottle, NamesThrottle
from muster.coordinator.observability.metrics import JOINS_REFUSED
from muster.events.events import JoinRefused
from muster.events.state import Group

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@unique
class RefusedFor(StrEnum):
    """Why a join was refused. The values are labels of a metric."""

    PROTOCOL = "protocol"
    """Its protocol type differs from the group's, or it has no protocol that all members support."""
    GROUP_FULL = "group-full"
    SESSION_TIMEOUT = "session-timeout"
    METADATA_SIZE = "metadata-size"
    NO_GROUP_ID = "no-group-id"


REFUSALS: Final = {
    ErrorCode.inconsistent_group_protocol: RefusedFor.PROTOCOL,
    ErrorCode.group_max_size_reached: RefusedFor.GROUP_FULL,
    ErrorCode.invalid_session_timeout: RefusedFor.SESSION_TIMEOUT,
    METADATA_TOO_LARGE: RefusedFor.METADATA_SIZE,
    ErrorCode.invalid_group_id: RefusedFor.NO_GROUP_ID,
}

RECORDS_WITHOUT_GROUP_MAX: Final = 100
"""Refusals written to the event log per minute for groups that do not exist."""
HOST_SHARE: Final = 5
"""A client host may cause a fifth of the refusals left over by other hosts, but at least one while any are left."""

for _reason in RefusedFor:
    JOINS_REFUSED.labels(_reason.value)  # each exists from the start, so that the first one counts as an increase


class RefusedJoins:
    """Counts, logs and limits the records of permanently refused joins. One for the whole process."""

    def __init__(self, settings: GroupSettings, monotonic_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        self._throttle = NamesThrottle(monotonic_ms)
        self._records = LogThrottle(monotonic_ms)
        self._began_ms = monotonic_ms()
        self._written: Counter[str] = Counter()
        """The records since `_began_ms`, by client host."""

    def recorded(self, decision: Decision, client_host: str) -> Decision:
        """Return the decision with the event to write for a refusal in a group that does not exist: one a minute.

        Such a group keeps no soft state, so the limit is here; made-up groups share one limit.
        """
        group_id, suppressed = decision.events[0].group_id, None
        if self._has_room_for(client_host):  # checked first, so that made-up groups push out no other's count
            suppressed = self._records.due(group_id)
        else:
            self._records.suppress(group_id)
        if suppressed is None:
            return msgspec.structs.replace(decision, events=())
        self._written[client_host] += 1
        events = (
            msgspec.structs.replace(event, suppressed=suppressed) if isinstance(event, JoinRefused) else event
            for event in decision.events
        )
        return msgspec.structs.replace(decision, events=tuple(events))

    def _has_room_for(self, host: str) -> bool:
        now_ms = self._monotonic_ms()
        if now_ms - self._began_ms >= LINE_INTERVAL_MS:
            self._began_ms = now_ms
            self._written.clear()
        left = RECORDS_WITHOUT_GROUP_MAX - self._written.total()
        of_host = self._written[host]
        return left > 0 and of_host < max(1, (left + of_host) // HOST_SHARE)

    def note(self, join: JoinGroup, replies: Iterable[Reply], group: Group | None) -> None:
        """Count and report the join if its response refuses it. `group`: its current state."""
        refused_for = _refused_for(join, replies, self._settings)
        if refused_for is None:
            return
        JOINS_REFUSED.labels(refused_for.value).inc()
        suppressed = self._throttle.due_of(join.caller.client_host, refused_for, join.group_id)
        if suppressed is None:
            return
        event, details = self._log_line(refused_for, join, group)
        log.warning(
            event,
            group_id=join.group_id,
            client_id=join.caller.client_id,
            client_host=join.caller.client_host,
            **({} if join.group_instance_id is None else {"group_instance_id": join.group_instance_id}),
            **details,
            others_since=suppressed,
        )

    def _log_line(self, refused_for: RefusedFor, join: JoinGroup, group: Group | None) -> tuple[str, dict[str, object]]:
        """Return the message of the log line and the fields for this reason."""
        settings = self._settings
        match refused_for:
            case RefusedFor.PROTOCOL:
                return _protocol(join, group)
            case RefusedFor.GROUP_FULL:
                event = "join refused: the group is full (group.max.size)"
                way_out = "raise group.max.size, or start fewer consumers"
                return event, {"max_size": settings.max_size, "way_out": way_out}
            case RefusedFor.SESSION_TIMEOUT:
                event = (
                    "join refused: the session timeout is outside group.min.session.timeout.ms and "
                    "group.max.session.timeout.ms"
                )
                return event, {
                    "session_timeout_ms": join.session_timeout_ms,
                    "least_ms": settings.min_session_timeout_ms,
                    "most_ms": settings.max_session_timeout_ms,
                    "way_out": "set the client's session.timeout.ms to a value between them",
                }
            case RefusedFor.METADATA_SIZE:
                event = "join refused: its metadata exceeds --member-metadata-max-bytes"
                return event, {
                    "size_bytes": metadata_bytes(join),
                    "limit_bytes": settings.member_metadata_max_bytes,
                    "way_out": "subscribe to fewer topics, or raise --member-metadata-max-bytes",
                }
            case RefusedFor.NO_GROUP_ID:
                return "join refused: it has no group id", {"way_out": "set the client's group.id"}


def _refused_for(join: JoinGroup, replies: Iterable[Reply], settings: GroupSettings) -> RefusedFor | None:
    """Return why the join's own response refuses it; None if it does not, or only temporarily."""
    for reply in replies:
        if reply.request_id != join.caller.request_id or not isinstance(reply.outcome, JoinGroupOutcome):
            continue
        refused_for = REFUSALS.get(reply.outcome.error)
        if refused_for is RefusedFor.METADATA_SIZE and metadata_bytes(join) <= settings.member_metadata_max_bytes:
            return None  # the same error has other causes
        return refused_for
    return None


def _protocol(join: JoinGroup, group: Group | None) -> tuple[str, dict[str, object]]:
    offers = [protocol.name for protocol in join.protocols[:NAMES_MAX]]
    if group is None or not group.members or not join.protocol_type or not offers:
        way_out = "the client sends no protocol (no partition.assignment.strategy), and no group accepts that"
        return "join refused: it offers no protocol", {"offers": offers, "way_out": way_out}
    has_type = group.image.protocol_type
    if join.protocol_type != has_type:
        return "join refused: the group has another protocol type", {
            "offers_type": join.protocol_type,
            "group_has_type": has_type,
            "way_out": "the group id is used by clients of another protocol type: give these another group.id",
        }
    common = sorted(supported_by_all(group.members.values()))[:NAMES_MAX]
    return "join refused: it offers no protocol that all members of the group support", {
        "offers": offers,
        "all_members_have": common,
        "way_out": f"add {' or '.join(common)} to the client's partition.assignment.strategy",
    }
