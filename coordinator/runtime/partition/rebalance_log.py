"""Logs each rebalance in one line (which group, why, triggered by which member, how long), and measures its phases.

    RebalanceStarted      the join phase begins; a rebalance that had not ended is superseded
    JoinPhaseCompleted    the sync phase begins
    GroupStabilized       the end: every member can get its assignment
    GroupEmptied          the end: no member has joined

A client that joins and leaves in a loop would fill the log, so each minute a group has at most LINES_OF_GROUP_MAX lines
and a partition LINES_MAX. Suppressed lines are counted in one line at the end of the minute; the metrics count all
rebalances, and the event log has all.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum, unique
from typing import Final

import msgspec
import structlog

from muster.coordinator.log_throttle import LINE_INTERVAL_MS, NAMES_MAX
from muster.coordinator.observability.metrics import REBALANCE_PHASE_SECONDS, REBALANCE_SECONDS
from muster.events.events import AnyEvent, GroupEmptied, GroupStabilized, JoinPhaseCompleted, RebalanceStarted, Why
from muster.events.state import GroupImage, GroupState

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

LINES_OF_GROUP_MAX: Final = 10
LINES_MAX: Final = 200

_JOIN, _SYNC = REBALANCE_PHASE_SECONDS.labels("join"), REBALANCE_PHASE_SECONDS.labels("sync")


@unique
class Ended(StrEnum):
    """How a rebalance ended. The values are labels of a metric."""

    STABLE = "stable"
    EMPTY = "empty"
    SUPERSEDED = "superseded"
    """Another rebalance began in its sync phase."""


_TAKEN = {ended: REBALANCE_SECONDS.labels(ended.value) for ended in Ended}


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance that has not ended. Times: monotonic, in ms; None: it began under a former owner."""

    why: Why | None = None
    began_ms: int | None = None
    joined_ms: int | None = None
    joined: JoinPhaseCompleted | None = None


BEGAN_ELSEWHERE = UnderWay()


class RebalanceLines:
    """The rate-limited log lines of one partition; must run on the event loop."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._began_ms = 0
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def write(self, group_id: str, told: dict[str, object]) -> None:
        """Write a line, unless this minute's limit is reached."""
        now_ms = self._monotonic_ms()
        if now_ms - self._began_ms >= LINE_INTERVAL_MS:
            self.end_minute()
            self._began_ms = now_ms
        if self._written[group_id] < LINES_OF_GROUP_MAX and self._written.total() < LINES_MAX:
            self._written[group_id] += 1
            log.info("rebalance", group_id=group_id, **told)
            return
        self._left_out[group_id] += 1
        if self._timer is None:
            left_ms = self._began_ms + LINE_INTERVAL_MS - now_ms
            self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self.end_minute)

    def end_minute(self) -> None:
        """Log how many lines were suppressed, and reset the limits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._left_out:
            log.warning(
                "rebalances without a log line: too many in this minute",
                lines_of_group_max=LINES_OF_GROUP_MAX,
                lines_max=LINES_MAX,
                rebalances=self._left_out.total(),
                groups=len(self._left_out),
                most=dict(self._left_out.most_common(NAMES_MAX)),
            )
        self._written.clear()
        self._left_out.clear()


def follow(
    under_way: UnderWay | None, events: Iterable[AnyEvent], now_ms: int, lines: RebalanceLines
) -> UnderWay | None:
    """Log the rebalances that ended with these durable events; return the rebalance that is under way after them."""
    for event in events:
        if isinstance(event, RebalanceStarted):
            if under_way is not None:
                lines.write(event.group_id, _details(under_way, event.group, Ended.SUPERSEDED, now_ms))
            under_way = UnderWay(why=event.why, began_ms=now_ms)
        elif isinstance(event, JoinPhaseCompleted):
            under_way = under_way or BEGAN_ELSEWHERE
            if under_way.began_ms is not None:
                _JOIN.observe((now_ms - under_way.began_ms) / 1000)
            under_way = msgspec.structs.replace(under_way, joined_ms=now_ms, joined=event)
        elif isinstance(event, GroupStabilized | GroupEmptied):
            ended = Ended.STABLE if isinstance(event, GroupStabilized) else Ended.EMPTY
            lines.write(event.group_id, _details(under_way or BEGAN_ELSEWHERE, event.group, ended, now_ms))
            under_way = None
    return under_way


def _details(under_way: UnderWay, group: GroupImage, ended: Ended, now_ms: int) -> dict[str, object]:
    """Record the durations, and return the fields of the log line."""
    told: dict[str, object] = {"cause": "began under a previous owner"}
    if (why := under_way.why) is not None:
        told = {"cause": why.cause.value, **_who(why)}
    if under_way.began_ms is not None:
        took_ms = now_ms - under_way.began_ms
        _TAKEN[ended].observe(took_ms / 1000)
        told["took_ms"] = took_ms
        if under_way.joined_ms is not None:
            told["join_ms"] = under_way.joined_ms - under_way.began_ms
    if under_way.joined_ms is not None:
        sync_ms = told["sync_ms"] = now_ms - under_way.joined_ms
        if ended is Ended.STABLE:
            _SYNC.observe(sync_ms / 1000)
    if (joined := under_way.joined) is not None and joined.timed_out:
        told["join_phase"] = joined.why.cause.value
    return {"generation_id": group.generation_id, "ended": ended.value, **told}


def _who(why: Why) -> dict[str, object]:
    """The member that triggered it, as far as known, and its client's own reason."""
    who = {
        "member": why.group_instance_id or why.member_id,
        "client_id": why.client_id,
        "client_host": why.client_host,
        "client_reason": why.client_reason,
    }
    return {name: value for name, value in who.items() if value}


def under_way_at_load(group: GroupImage) -> UnderWay | None:
    """Return the rebalance that is under way in a group that was just read from the log."""
    is_rebalancing = group.state in {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}
    return BEGAN_ELSEWHERE if is_rebalancing else None
