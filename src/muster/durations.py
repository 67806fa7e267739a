"""Durations as people write them: 30s, 5m, 1h30m, 1.5h, 250ms, 7d. The one place that reads them into ms, and back."""

import re
from typing import Final

import typer

DURATION_OR_MS: Final = "should be a duration, such as 30s, 5m or 1500ms, or a number of ms"
"""For errors of settings and options whose name ends in ms."""
INT32_MAX: Final = 2**31 - 1
_UNITS_MS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*(w|d|h|ms|m|s)\s*", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


class BadDuration(ValueError):
    """The text is no duration; the message shows examples."""


def read_duration(text: str) -> int:
    """Parse a duration into whole ms; a number needs a unit. Raises BadDuration."""
    plain = text.strip().lower()
    if not _WHOLE.fullmatch(plain):
        raise BadDuration(f"{text!r} should be a number with a unit, such as 30s, 5m, 1h30m or 250ms")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(plain)))


def read_duration_or_ms(text: str) -> int:
    """Parse a duration, or a number of ms, as settings take whose name ends in ms. Raises BadDuration."""
    plain = text.strip()
    return int(plain) if plain.isascii() and plain.isdecimal() and len(plain) <= 19 else read_duration(text)


def written(ms: int) -> str:
    """The duration as it is read: '7d', '10m', '1500ms'."""
    units = ((unit, size) for unit, size in _UNITS_MS.items() if unit != "w" and ms >= size and ms % size == 0)
    unit, size = next(units, ("ms", 1))
    return f"{ms // size}{unit}"


def readable(ms: int) -> str:
    """Format a duration with a suitable unit: '12 ms', '4.2 s', '3 min 05 s', '2 h 10 min', '3 d 4 h'."""
    if ms < 0:
        return f"-{readable(-ms)}"
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


# ---- options of commands ------------------------------------------------------------------------


def duration(text: str) -> int:
    """Parse the value of an option into ms; 0 needs no unit. Raises BadParameter."""
    try:
        return 0 if text.strip() == "0" else read_duration(text)
    except BadDuration as bad:
        raise typer.BadParameter(str(bad)) from bad


def milliseconds(text: str) -> int:
    """Parse the value of an option whose name ends in -ms: a number of ms, or a duration. Raises BadParameter."""
    try:
        return read_duration_or_ms(text)
    except BadDuration as bad:
        raise typer.BadParameter(f"{text!r} {DURATION_OR_MS}") from bad
