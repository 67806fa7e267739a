"""Runs of schedules: each is played and judged, and what happened in all of them is counted.

It runs one seed, or many.
"""

import gc
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog

from muster.coordinator.wire.registry import load_messages_of_members
from muster.events.avro.codec import decode
from muster.events.causes import Cause
from muster.events.events import CoordinatorReady, MemberRemoved, StaticMemberReplaced
from muster.events.records import StoredRecord
from tests.simulation.log_broker import LogBroker
from tests.simulation.schedule import REQUESTS_MIN, Played, Schedule
from tests.simulation.verdict import recorded_in, violations

GONE = "its process has ended"
"""The beginning of the reason with which one process removes another (peers/ownership_group.py)."""

COUNTED = (
    "takeovers",
    "short takeovers",
    "short takeovers of offsets",
    "fenced appends",
    "unknown outcomes",
    "repeated batches",
    "joins asked again",
    "evictions",
    "processes started again",
    "processes removed",
    "processes silent",
)
"""Events that have to happen in a run of some dozen schedules, or they try nothing."""


class Result(msgspec.Struct, frozen=True):
    """The outcome of one seed."""

    seed: int
    violations: tuple[str, ...]
    requests: int
    counts: Counter[str]


def play(seed: int) -> Result:
    """Play one schedule, and judge it."""
    with _log_lines_of_bugs() as bugs:
        load_messages_of_members()
        schedule = Schedule(seed)
        try:
            return _judged(schedule, seed, bugs)
        finally:
            with _in_silence():
                schedule.close()
                del schedule
                gc.collect()


def _judged(schedule: Schedule, seed: int, bugs: Sequence[str]) -> Result:
    try:
        played = schedule.play()
    except Exception as error:  # noqa: BLE001 -- a bug of ours in one of the processes is a finding
        return Result(seed, (f"0: {error!r}",), 0, Counter())
    found = [*(f"0: {bug}" for bug in bugs), *violations(played)]
    requests = played.members.ledger.requests
    if requests < REQUESTS_MIN or not played.faults:
        found.append(f"0: {requests} requests and {sum(played.faults.values())} faults try too little")
    return Result(seed, tuple(found), requests, _counts(played))


@contextmanager
def _in_silence() -> Iterator[None]:
    """Silence objects that are discarded: killed processes have not finished anything."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = before


def play_all(seeds: Iterable[int]) -> tuple[list[Result], Counter[str]]:
    """Play them; return those with violations, and the total counts."""
    bad, counts = [], Counter[str]()
    for seed in seeds:
        result = play(seed)
        counts += result.counts + Counter(schedules=1, requests=result.requests)
        if result.violations:
            bad.append(result)
    return bad, counts


def never_happened(counts: Counter[str]) -> list[str]:
    """The names of COUNTED that were not tried at all."""
    return [name for name in COUNTED if not counts[name]]


def _counts(played: Played) -> Counter[str]:
    events, offsets, ledger = played.topics.events, played.offsets, played.members.ledger
    counts = Counter({f"fault: {name}": times for name, times in played.faults.items()})
    counts["takeovers"] = sum(events.storage.epochs) - len(events.storage.epochs)
    counts["short takeovers"] = sum(_read_little(records) for records in events.storage.records)
    counts["short takeovers of offsets"] = played.topics.offsets.read_on
    counts["fenced appends"] = events.fenced + offsets.fenced
    counts["repeated batches"] = events.repeated + offsets.repeated
    counts["unknown outcomes"] = played.network.lost_answers
    counts["joins asked again"] = ledger.counts["joins asked again"]
    counts["evictions"] = ledger.counts["evictions"]
    counts["commits accepted"] = len(ledger.commits)
    return counts + (Counter() if played.kafka is None else _of_processes(played.kafka.events))


def _of_processes(broker: LogBroker) -> Counter[str]:
    """How processes have come and gone, by the events of the ownership group."""
    counts = Counter[str]()
    for recorded in recorded_in(broker):
        match recorded.event:
            case StaticMemberReplaced():
                counts["processes started again"] += 1
            case MemberRemoved(why=why) if why.cause is Cause.SESSION_EXPIRED:
                counts["processes silent"] += 1
            case MemberRemoved(why=why) if (why.client_reason or "").startswith(GONE):
                counts["processes removed"] += 1
    return counts


def _read_little(records: Sequence[StoredRecord]) -> int:
    """How many takeovers of a partition have read less than half of its events, by a standby."""
    short = events = 0
    for record in records:
        if record.value is not None:
            event = decode(record.value)
            short += isinstance(event, CoordinatorReady) and event.events_read < events / 2
            events += 1
    return short


@contextmanager
def _log_lines_of_bugs() -> Iterator[list[str]]:
    """Drop all log lines except those about bugs of ours; processes that are killed by the dozen log much."""
    bugs: list[str] = []

    def note(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
        if "exc_info" in line:
            bugs.append(f"{line['event']}: {line['exc_info']!r}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), processors=[note])
    try:
        yield bugs
    finally:
        structlog.configure(**before)
