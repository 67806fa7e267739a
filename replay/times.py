"""Wall clock and durations as people and programs read them: the one place that formats either. All times are UTC."""

import re
from datetime import UTC, datetime, timedelta
from typing import NewType

Instant = NewType("Instant", str)
"""ISO 8601, UTC, always with three digits of milliseconds: '2026-11-21T02:14:07.250Z'. So it sorts as text."""

FORMS_OF_AT = (
    "a seq number (17), a time (2026-11-21T02:14:07Z; without zone: UTC), or a time of the last 24 hours (02:14:07)"
)
"""The forms of a moment that `muster replay state --at` takes."""

_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d{1,3})?)?")
DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(wall_ms: int) -> Instant:
    """The instant of a wall clock in ms."""
    moment = _EPOCH + timedelta(milliseconds=wall_ms)
    return Instant(moment.isoformat(timespec="milliseconds")[:-6] + "Z")  # in place of '+00:00'


def _wall_ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def wall_ms_of(at: Instant) -> int:
    """The wall clock in ms of an instant."""
    return _wall_ms(datetime.fromisoformat(at))


def day_of(at: Instant) -> str:
    return at[:10]


def clock_of(at: Instant) -> str:
    """The time of day, to the millisecond."""
    return at[11:23]


def read_time(text: str, *, now_ms: int) -> int | None:
    """Wall clock ms of an ISO time (no zone: UTC), or of the last such time of day until now; None if it is neither."""
    is_of_day = _TIME_OF_DAY.fullmatch(text) is not None
    if is_of_day:
        text = f"{day_of(instant(now_ms))}T{text.zfill(len(text) + (text.index(':') == 1))}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    wall_ms = _wall_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return wall_ms - DAY_MS if is_of_day and wall_ms > now_ms else wall_ms


def duration(ms: int) -> str:
    """A duration in the unit that fits: '12 ms', '4.2 s', '3 min 05 s', '2 h 10 min', '3 d 4 h'."""
    if ms < 0:
        return f"-{duration(-ms)}"
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f} s" if ms < 59_950 else "1 min 00 s"
    seconds = round(ms / 1_000)
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    minutes = seconds // 60
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = minutes // 60
    return f"{hours // 24} d {hours % 24} h"


def setting(ms: int) -> str:
    """A configured duration, without digits that nobody configured: '45 s', '5 min', '1.5 s', '250 ms'."""
    if ms >= 60_000 and ms % 60_000 == 0:
        return f"{ms // 60_000} min"
    if ms >= 1_000:
        return f"{ms / 1_000:g} s"
    return f"{ms} ms"
