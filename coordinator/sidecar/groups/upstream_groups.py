"""Groups that clients join here but that stay upstream: log lines, a metric, and entries in `muster status`."""

import shlex
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from cachetools import TTLCache

from muster.coordinator.log_throttle import SILENT_FOR_MS, LogThrottle, NamesThrottle
from muster.coordinator.observability.metrics import GROUPS_LEFT_UPSTREAM
from muster.coordinator.observability.status import NAMED_MAX, UpstreamGroupStatus
from muster.coordinator.upstream.group_probe import ForeignShadow, KeptUpstream, NotPermitted
from muster.events.ids import GroupId

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

GROUPS_COUNTED_MAX: Final = 10_000
"""Limit of groups counted in log lines: groups of another Muster, or groups that Muster has no READ on."""
KEPT_MS: Final = 600_000
"""How long the status lists a group after its last join."""

_REASONS: Final = {ForeignShadow: "another-muster", NotPermitted: "not-permitted"}
"""The labels of a metric; for any other reason, upstream has members in the group."""


class UpstreamGroups:
    """Groups that clients join here but that upstream coordinates."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._reason_throttle = LogThrottle(monotonic_ms)
        self._names_throttle = NamesThrottle(monotonic_ms)
        self._troubled: dict[type[KeptUpstream], TTLCache[GroupId, None]] = {
            kind: TTLCache(GROUPS_COUNTED_MAX, SILENT_FOR_MS, timer=monotonic_ms)
            for kind in (ForeignShadow, NotPermitted)
        }
        self._kept: dict[GroupId, tuple[int, UpstreamGroupStatus]] = {}
        """The entries of the status with the time of the last join, in that order."""

    def note(self, group_id: GroupId, theirs: KeptUpstream) -> None:
        """Count and report a join of the group."""
        GROUPS_LEFT_UPSTREAM.labels(_REASONS.get(type(theirs), "members")).inc()
        self._kept.pop(group_id, None)
        self._kept[group_id] = self._monotonic_ms(), _status_of(group_id, theirs)
        if len(self._kept) > NAMED_MAX:
            del self._kept[next(iter(self._kept))]
        event = f"group not taken: {'another Muster' if isinstance(theirs, ForeignShadow) else 'upstream'} has it"
        troubled = self._troubled.get(type(theirs))
        if troubled is not None:  # usually many groups have the same problem
            troubled[group_id] = None
            suppressed = self._names_throttle.due(type(theirs), group_id)
            if suppressed is not None:
                groups = len(troubled)
                log.warning(event, group_id=group_id, reason=theirs.reason, groups=groups, others_since=suppressed)
            return
        suppressed = self._reason_throttle.due((group_id, theirs.reason))
        if suppressed is not None:
            log.info(event, group_id=group_id, reason=theirs.reason, others_since=suppressed)

    def forget(self, group_id: GroupId) -> None:
        """Note that Muster coordinates the group now."""
        self._kept.pop(group_id, None)

    def status(self) -> Sequence[UpstreamGroupStatus]:
        """Return the groups of the last minutes, the newest first. Thread-safe."""
        since_ms = self._monotonic_ms() - KEPT_MS
        newest = reversed(list(self._kept.values()))  # list() of a dictionary is atomic
        return [status for joined_ms, status in newest if joined_ms > since_ms]


def _status_of(group_id: GroupId, theirs: KeptUpstream) -> UpstreamGroupStatus:
    way_out = "docs/sidecar.md#what-can-go-wrong-and-what-it-says describes what to do"
    if type(theirs) is KeptUpstream:
        way_out = (
            f"Muster takes it when it has no members there: stop them, or muster adopt {shlex.quote(group_id)}; "
            "give clients of another kind their own group.id"
        )
    return UpstreamGroupStatus(group_id=group_id, reason=theirs.reason, way_out=way_out)
