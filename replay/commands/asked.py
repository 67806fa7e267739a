"""Parses views, times, windows and groups; if the log lacks what was asked for, reports what it has instead."""

import sys
import time
from contextlib import aclosing
from typing import Final, NoReturn, Protocol

import msgspec

from muster.events.ids import GroupId
from muster.events.near_names import did_you_mean
from muster.replay.commands.opening import CANNOT_READ, NOT_FOUND, fail
from muster.replay.form import Format, View
from muster.replay.history.items import Item
from muster.replay.history.window import At, AtGeneration, AtSeq, AtTime, Window, read_at
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import Start, find_start, from_the_beginning, items, survey_times
from muster.replay.results.groups import read_names
from muster.replay.results.state import StateFold
from muster.replay.text.grammar import few
from muster.replay.text.printable import printable
from muster.replay.text.times import FORMS_OF_AT, FORMS_OF_TIME, NoSuchTime, in_zone, instant
from muster.replay.text.zones import UnknownZone, local_zone, zone_named

NAMED_MAX: Final = 5
"""The number of groups that are named if the requested one does not exist."""


def view_of(form: Format, tz: str | None) -> View:
    """Make a view from a command's options: local times for a table on a terminal, else UTC, unless a zone is given."""
    if tz is None:
        return View(form=form, zone=local_zone() if form is Format.TABLE and sys.stdout.isatty() else View().zone)
    try:
        return View(form=form, zone=zone_named(tz))
    except UnknownZone as error:
        fail(f"--tz: {error}", CANNOT_READ)


def point(option: str, text: str, view: View, *, is_seq: bool) -> At | AtGeneration:
    """Parse a point in one group's history; end the command if it is invalid. `is_seq`: a number is a `seq`, not a
    generation.
    """
    return _read(option, text, view, FORMS_OF_AT, is_seq=is_seq)


def moment(option: str, text: str, view: View, *, is_seq: bool = False) -> At:
    """Parse a time, or with `is_seq` an event number; end the command if it is invalid."""
    at = _read(option, text, view, FORMS_OF_TIME, is_seq=is_seq)
    if isinstance(at, AtGeneration):
        fail(f"{option} {text}: a number is not a time; give {FORMS_OF_TIME}", CANNOT_READ)
    return at


def _read(option: str, text: str, view: View, forms: str, *, is_seq: bool) -> At | AtGeneration:
    try:
        at = read_at(text, now_ms=time.time_ns() // 1_000_000, zone=view.zone, is_seq=is_seq)
    except NoSuchTime as error:
        fail(f"{option}: {error}", CANNOT_READ)
    if at is None:
        fail(f"{option} {printable(text)!r} is none of these: {forms}", CANNOT_READ)
    return at


def window_of(since: str | None, until: str | None, view: View, *, is_seq: bool = False) -> Window:
    """Parse `--since` and `--until`; end the command if one is invalid, or if they are the wrong way round."""
    window = Window(
        since=None if since is None else moment("--since", since, view, is_seq=is_seq),
        until=None if until is None else moment("--until", until, view, is_seq=is_seq),
    )
    first, last = window.since, window.until
    is_empty = (isinstance(first, AtTime) and isinstance(last, AtTime) and first.wall_ms > last.wall_ms) or (
        isinstance(first, AtSeq) and isinstance(last, AtSeq) and first.seq > last.seq
    )
    if is_empty:
        fail(f"--since {since} is after --until {until}", CANNOT_READ)
    return window


class Fold(Protocol):
    """A fold over a group's items."""

    def feed(self, item: Item, /) -> bool:
        """Process the next item; return whether more are wanted."""


async def feed(fold: Fold, reading: Reading, start: Start) -> None:
    """Feed a group's items to the fold until it needs no more of them; end the command if there is no such group."""
    is_known = False
    reads = items(reading, start)
    async with aclosing(reads):
        async for item in reads:
            is_known = True
            if not fold.feed(item):
                break
    if not is_known:
        await fail_unknown(reading, start.group_id)


# ---- not in the log -----------------------------------------------------------------------------


async def start_of(
    reading: Reading,
    group: GroupId,
    window: Window,
    view: View,
    *,
    goes_on: bool = False,
    quiet_ms: int = 0,
    may_go_on: bool = False,
) -> Start:
    """Return the start of a window; end the command if the group's history does not reach it. `quiet_ms`: see `Skim`.

    `may_go_on`: accept a window of times without an event, since an incident may extend into it, or the coordinator may
    be unreachable.
    """
    times = await times_of(reading, group, window.since, window.until)
    reading.notes.extend(times.texts)
    if window.since is None and not window.has_seq:
        return msgspec.structs.replace(from_the_beginning(group), times=times)
    start = await find_start(reading, group, window, quiet_ms=quiet_ms, rebalances=2, times=times)
    may_go_on = may_go_on and isinstance(window.since, AtTime)
    if start.last is not None and not start.is_reached and not goes_on and not may_go_on:
        await fail_outside(reading, start, window, view)
    return start


async def times_of(reading: Reading, group: GroupId, *asked: object) -> Times:
    """Return the corrected times of a group's events if one of these points is a time; else the recorded ones."""
    if not any(isinstance(each, AtTime) for each in asked):
        return AS_RECORDED
    return await survey_times(reading, group)


async def fail_unknown(reading: Reading, group: str) -> None:
    """End the command, suggesting groups with similar names."""
    names, unreadable = await read_names(reading)
    reading.note_unreadable(unreadable)
    message = f"there is no group {printable(group)!r} in {reading.log.location}"
    near = did_you_mean(group, names)
    message += printable(near)
    if names and not near:
        message += f"; it has {few(list(map(printable, names)), NAMED_MAX)}"
    if not near:
        message += (
            ". A group that a Kafka cluster coordinates is not in the log: muster status names those behind a sidecar"
        )
    fail(message, NOT_FOUND)


def fail_unmatched(location: str, wanted: str) -> NoReturn:
    """End the command: no group id matches the pattern."""
    fail(f"no group in {location} matches {printable(wanted)!r}", NOT_FOUND)


async def fail_outside(reading: Reading, start: Start, window: Window, view: View) -> NoReturn:
    """End the command: the log does not cover that time. The message has the span that it covers."""
    everything = await find_start(reading, start.group_id, None, times=start.times)
    first, last = everything.first, everything.last
    earliest_ms, latest_ms = everything.earliest_ms, everything.latest_ms
    if first is None or last is None or earliest_ms is None or latest_ms is None:
        extent = "none of its events can be read"
    else:
        begin, end = (in_zone(instant(each), view.zone) for each in (earliest_ms, latest_ms))
        lives = "" if first.incarnation == last.incarnation else " of its last life"
        extent = f"it has seq {first.seq} to {last.seq}{lives}, from {begin} to {end}"
    fail(
        f"{reading.log.location} has no events of {printable(start.group_id)}{when(window, view)}; {extent}",
        NOT_FOUND,
    )


async def fail_not_reached(reading: Reading, start: Start, fold: StateFold, view: View) -> NoReturn:
    """End the command: the log does not have the requested point. The message has what it has."""
    at = fold.at
    if not isinstance(at, AtGeneration):
        await fail_outside(reading, start, Window(since=at, until=at), view)
    first, last = fold.generations
    if first is None:
        there = "the start of no generation"
    elif first == last:
        there = f"only the start of generation {first}{fold.lives}"
    else:
        there = f"the starts of generations {first} to {last}{fold.lives}"
    name = printable(start.group_id)
    fail(
        f"{reading.log.location} does not have the start of generation {at.generation_id} of {name}; it has {there}",
        NOT_FOUND,
    )


def when(window: Window, view: View) -> str:
    """Return the window as text, with a leading blank; empty for the whole history."""

    def of(at: At) -> str:
        return f"seq {at.seq}" if isinstance(at, AtSeq) else in_zone(instant(at.wall_ms), view.zone)

    if window.since is not None and window.since == window.until:
        return f" at {of(window.since)}"
    told = [
        *([f" since {of(window.since)}"] if window.since is not None else []),
        *([f" until {of(window.until)}"] if window.until is not None else []),
    ]
    return "".join(told)
