"""The only module that formats wall clock times and durations for people and programs, and that parses times.

Durations are parsed and formatted in `muster.durations`.

Results have instants in UTC (`Instant`). Text output shows them in the user's zone (`zones.py`), in the same form, with
the zone's offset in place of the Z: '2026-11-21T03:14:07.250+01:00'.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Annotated, Final, NewType, TypeVar

from muster.durations import BadDuration, read_duration, readable

Instant = NewType("Instant", str)
"""ISO 8601, UTC, always with three digits of milliseconds: '2026-11-21T02:14:07.250Z'. Sorting them as text sorts them
by time.
"""

Sentence = Annotated[str, "times in UTC"]
"""English with times in UTC, as `incidents/evidence/naming.py` writes them; text output converts them to its zone."""

FORMS_OF_TIME: Final = (
    "a time (2026-11-21T02:14:07Z; without zone: that of --tz), a time of the last 24 hours (02:14:07, 02:14:07Z), an"
    " age (2h, 30m, 7d), or now-10m"
)
"""The forms of a point in time that every command takes."""

FORMS_OF_AT: Final = f"a generation (7), {FORMS_OF_TIME}"
"""The forms of a point in the history of one group. With --seq a number means an event."""

_OF_SENTENCE = re.compile(
    r"""'[^']*'|"[^"]*"|"""  # text in quotes comes from a client
    r"(?P<begin>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: to (?P<end_day>\d{4}-\d\d-\d\d )?(?P<end>\d\d:\d\d:\d\d))? UTC"
)
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d{1,3})?)?(?P<zone>Z|[+-]\d{2}:?\d{2})?")
_ZONE_AS_TOLD = re.compile(r" ?UTC([+-]\d{2}:\d{2})?$")
DAY_MS: Final = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
K = TypeVar("K")
V = TypeVar("V")
_SECONDS_KEPT: Final = 1_024
_INSTANTS_KEPT: Final = 4_096
"""Size of the caches: a rebalance has few distinct times, but each is formatted many times."""
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999
"""The first and the last instant that can be formatted: the start of year 1 and the end of year 9999."""


class NoSuchTime(ValueError):
    """A local time that occurs twice in its zone, or not at all; the message has both readings."""


def _kept(make: Callable[[K], V]) -> Callable[[K], V]:
    """Cache the function's last results."""
    return lru_cache(maxsize=_INSTANTS_KEPT)(make)


@_kept
def instant(wall_ms: int) -> Instant:
    """Return the instant of a wall clock in ms, clamped to the years that can be formatted."""
    seconds, ms = divmod(min(max(wall_ms, _FIRST_MS), _LAST_MS), 1_000)
    return Instant(f"{_second(seconds)}.{ms:03d}Z")


@lru_cache(maxsize=_SECONDS_KEPT)
def _second(seconds: int) -> str:
    """Format a time in seconds since 1970; a history has many events in each second."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:-6]  # without '+00:00'


def _wall_ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@_kept
def wall_ms_of(at: Instant) -> int:
    """Return the wall clock in ms of an instant."""
    return _begin_ms(at[:19] + at[23:]) + int(at[20:23])


@lru_cache(maxsize=_SECONDS_KEPT)
def _begin_ms(second: str) -> int:
    """Return the wall clock in ms of a second with its zone."""
    return _wall_ms(datetime.fromisoformat(second))


def day_of(at: Instant) -> str:
    return at[:10]


def clock_of(at: Instant) -> str:
    """Return the time of day, to the millisecond."""
    return at[11:23]


def zone_of(at: Instant) -> str:
    """Return the zone of an instant: 'UTC', or 'UTC+01:00'."""
    return "UTC" if at.endswith(("Z", "+00:00")) else f"UTC{at[23:]}"


def moment_of(at: Instant) -> str:
    """Return day, time of day and zone: '2026-11-21 02:13:30.185 UTC'."""
    return f"{day_of(at)} {clock_of(at)} {zone_of(at)}"


def moment(wall_ms: int) -> str:
    """Return day and time of day to the second: '2026-11-21 02:14:07 UTC'."""
    at = instant(wall_ms)
    return f"{day_of(at)} {clock_of(at)[:8]} UTC"


def clock_beside(at: Instant, head: Instant) -> str:
    """Return the time of day, with its day or zone only if they differ from those of `head`, which is shown in full."""
    day = "" if day_of(at) == day_of(head) else f"{day_of(at)} "
    return f"{day}{clock_of(at)}{zone_beside(at, head)}"


def zone_beside(at: Instant, head: Instant) -> str:
    """Return the zone with a leading blank; empty if it is that of `head`, which is shown in full next to it."""
    return "" if zone_of(at) == zone_of(head) else f" {zone_of(at)}"


def zone_of_all(instants: Iterable[Instant]) -> str | None:
    """Return the zone of all these instants; None if they differ because of a change to or from daylight saving
    time.
    """
    zones = set(map(zone_of, instants))
    return None if len(zones) > 1 else next(iter(zones), "UTC")


def in_zone(at: Instant, zone: tzinfo) -> Instant:
    """Return the instant in a zone; in UTC it is unchanged."""
    if zone is UTC:
        return at
    try:
        return Instant(datetime.fromisoformat(at).astimezone(zone).isoformat(timespec="milliseconds"))
    except OverflowError:  # on the first or the last day that can be formatted
        return at


def sentence_in_zone(sentence: Sentence, zone: tzinfo) -> Sentence:
    """Return the sentence with its times in a zone."""
    return sentence if zone is UTC else _OF_SENTENCE.sub(lambda found: _told_in(found, zone), sentence)


def _told_in(found: re.Match[str], zone: tzinfo) -> str:
    """Convert one time, or a range: '2026-11-21 03:14:07 to 03:14:21 UTC+01:00'."""
    if found["begin"] is None:
        return found[0]
    begin = _of_second(found["begin"], zone)
    told = f"{day_of(begin)} {clock_of(begin)[:8]}"
    if found["end"] is None:
        return f"{told} {zone_of(begin)}"
    end = _of_second((found["end_day"] or found["begin"][:11]) + found["end"], zone)
    day = "" if day_of(begin) == day_of(end) else f"{day_of(end)} "
    return f"{told}{zone_beside(begin, end)} to {day}{clock_of(end)[:8]} {zone_of(end)}"


def _of_second(text: str, zone: tzinfo) -> Instant:
    return in_zone(Instant(f"{text.replace(' ', 'T')}.000Z"), zone)


def read_time(text: str, *, now_ms: int, zone: tzinfo = UTC) -> int | None:
    """Return the wall clock ms of a time in one of the FORMS_OF_TIME; None if it is in none of them.

    A time without a zone is in `zone`; a time of day is its last occurrence until now. The zone may also have the form
    that Muster prints: '02:14:07 UTC+01:00'. Raises NoSuchTime.
    """
    if text == "now":
        return now_ms
    with suppress(BadDuration):
        at_ms = now_ms - read_duration(text.removeprefix("now-"))
        return at_ms if at_ms >= _FIRST_MS else None
    text = _ZONE_AS_TOLD.sub(lambda told: told[1] or "Z", text)
    of_day = _TIME_OF_DAY.fullmatch(text)
    try:
        if of_day is not None:
            text = f"{_day_at(now_ms, of_day['zone'], zone)}T{text.zfill(len(text) + (text.index(':') == 1))}"
        moment = datetime.fromisoformat(text)
        if of_day is None or _local_ms(moment, zone) <= now_ms:
            return _local_ms(moment, zone)
        return _local_ms(moment - timedelta(days=1), zone)
    except NoSuchTime:
        raise
    except (ValueError, OverflowError):
        return None


def _day_at(now_ms: int, own_zone: str | None, zone: tzinfo) -> str:
    """Return today's date in the zone that the time itself names, or else in `zone`. Raises ValueError."""
    if own_zone is not None:
        zone = time.fromisoformat(f"00:00{own_zone}").tzinfo or zone
    return day_of(in_zone(instant(now_ms), zone))


def _local_ms(moment: datetime, zone: tzinfo) -> int:
    """Return the wall clock ms of a time, which is in `zone` if it names no zone. Raises NoSuchTime."""
    if moment.tzinfo is not None:
        return _wall_ms(moment)
    first, second = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return _wall_ms(first)
    readings = " or ".join(
        each.astimezone(zone).isoformat() for each in sorted(each.astimezone(UTC) for each in (first, second))
    )
    is_twice = first.astimezone(UTC) < second.astimezone(UTC)
    happens = f"occurs twice in {zone}" if is_twice else f"does not exist in {zone}, since the clocks go forward then"
    raise NoSuchTime(f"{moment.isoformat()} {happens}: give it with its offset, {readings}")


duration: Final = readable
"""Format a duration with a suitable unit: '4.2 s', '3 min 05 s'."""


def setting(ms: int) -> str:
    """Format a configured duration without superfluous digits: '45 s', '5 min', '1.5 s', '250 ms'."""
    if ms >= 60_000 and ms % 60_000 == 0:
        return f"{ms // 60_000} min"
    if ms >= 1_000:
        return f"{f'{ms / 1_000:.3f}'.rstrip('0').rstrip('.')} s"  # all digits, unlike :g
    return f"{ms} ms"
