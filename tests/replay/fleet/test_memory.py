"""A group with most of the events is folded in limited memory: only one episode is kept, however old the group is."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from muster.events.events import AnyEvent, MemberEvent
from muster.events.ids import GroupId
from muster.replay.fleet.building import open_items
from muster.replay.fleet.building.fold import GroupFold
from muster.replay.history.items import Happened, LogPosition
from tests.judge.case import play
from tests.judge.scenarios import SCENARIOS

TIMES: Final = 60
QUIET_MS: Final = 600_000
MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * MINUTE_MS
NEXT_MS: Final = 9 * MINUTE_MS


def again_and_again(apart_ms: int) -> Iterator[list[Happened]]:
    """Return a deployment, over and over in one incarnation, each time this long after the previous one."""
    events = _deployment()
    for time in range(TIMES):
        first = time * len(events)
        yield [
            Happened(
                position=LogPosition(partition=0, offset=first + number, timestamp_ms=0),
                event=_later(event, time * apart_ms, first + number + 1),
            )
            for number, event in enumerate(events)
        ]


def _deployment() -> list[AnyEvent]:
    """Return the events since the last quiet time, of a case that took less than NEXT_MS from there."""
    cases = (play(SCENARIOS["deployment"], seed) for seed in range(60))
    stretches = (
        _last_stretch([item.event for item in case.history.items if isinstance(item, Happened)]) for case in cases
    )
    return next(each for each in stretches if each[-1].why.decided_ms - each[0].why.decided_ms < NEXT_MS)


def _last_stretch(events: list[AnyEvent]) -> list[AnyEvent]:
    """Return the events since the last quiet time."""
    times = [event.why.decided_ms for event in events]
    begins = [number for number in range(1, len(times)) if times[number] - times[number - 1] > QUIET_MS]
    return events[begins[-1] if begins else 0 :]


def _later(event: AnyEvent, by_ms: int, seq: int) -> AnyEvent:
    why = event.why
    uptime_ms = None if why.uptime_ms is None else why.uptime_ms + by_ms
    why = msgspec.structs.replace(
        why, decided_ms=why.decided_ms + by_ms, arrived_ms=why.arrived_ms + by_ms, uptime_ms=uptime_ms
    )
    if isinstance(event, MemberEvent):
        return msgspec.structs.replace(event, seq=seq, why=why, last_seen_ms=event.last_seen_ms + by_ms)
    return msgspec.structs.replace(event, seq=seq, why=why)


def kept_bytes(apart_ms: int) -> tuple[list[int], int]:
    """Return the size of the fold after each time, and the total number of rows."""
    fold = GroupFold(GroupId("orders"), 0, "log")
    sizes, rows = [], 0
    for reads in again_and_again(apart_ms):
        rows += sum(1 for read in reads for _ in fold.feed(read))
        sizes.append(len(open_items.dump(fold)))
    return sizes, rows


def test_the_state_kept_for_a_group_does_not_grow_with_its_history() -> None:
    """After quiet days nothing from before is kept."""
    sizes, rows = kept_bytes(DAY_MS)
    assert rows > 2 * TIMES
    assert max(sizes[2:]) < 1.1 * min(sizes[2:])


def test_nor_where_a_group_is_never_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An episode ends at a number of acts, which is lowered here."""
    monkeypatch.setattr("muster.replay.incidents.episode.episode.ACTS_MAX", 300)
    sizes, rows = kept_bytes(NEXT_MS)
    assert rows > TIMES
    assert max(sizes[30:]) < 1.5 * max(sizes[:20])
