"""One line of the log, and the durations, of each rebalance: which group, why, by whom, and how long each phase took.

    RebalanceStarted      the join phase begins; a rebalance that had not ended is superseded
    JoinPhaseCompleted    the sync phase begins
    GroupStabilized       the end: every member can have its assignment
    GroupEmptied          the end: nobody has joined

What belongs here: what is told of a rebalance. What it must not know: how it is decided.
"""

from collections.abc import Iterable
from enum import StrEnum, unique

import msgspec
import structlog

from muster.coordinator.observability.metrics import REBALANCE_PHASE_SECONDS, REBALANCE_SECONDS
from muster.events.events import AnyEvent, GroupEmptied, GroupStabilized, JoinPhaseCompleted, RebalanceStarted, Why
from muster.events.state import GroupImage, GroupState

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_JOIN, _SYNC = REBALANCE_PHASE_SECONDS.labels("join"), REBALANCE_PHASE_SECONDS.labels("sync")


@unique
class Ended(StrEnum):
    """The end of a rebalance. The values are labels of a metric."""

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


def follow(under_way: UnderWay | None, events: Iterable[AnyEvent], now_ms: int) -> UnderWay | None:
    """Tell what has ended with these events, which are durable; returns what is under way from now on."""
    for event in events:
        if isinstance(event, RebalanceStarted):
            if under_way is not None:
                _tell(under_way, event.group_id, event.group, Ended.SUPERSEDED, now_ms)
            under_way = UnderWay(why=event.why, began_ms=now_ms)
        elif isinstance(event, JoinPhaseCompleted):
            under_way = under_way or BEGAN_ELSEWHERE
            if under_way.began_ms is not None:
                _JOIN.observe((now_ms - under_way.began_ms) / 1000)
            under_way = msgspec.structs.replace(under_way, joined_ms=now_ms, joined=event)
        elif isinstance(event, GroupStabilized | GroupEmptied):
            ended = Ended.STABLE if isinstance(event, GroupStabilized) else Ended.EMPTY
            _tell(under_way or BEGAN_ELSEWHERE, event.group_id, event.group, ended, now_ms)
            under_way = None
    return under_way


def _tell(under_way: UnderWay, group_id: str, group: GroupImage, ended: Ended, now_ms: int) -> None:
    told: dict[str, object] = {"cause": "began under a former owner"}
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
    log.info("rebalance", group_id=group_id, generation_id=group.generation_id, ended=ended.value, **told)


def _who(why: Why) -> dict[str, object]:
    """The member behind it, as far as it is known; its client's own words too."""
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
