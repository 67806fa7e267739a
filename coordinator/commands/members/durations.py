"""Parsing durations into ms: 30s, 5m, 1h30m, 1.5h, 250ms."""

import re

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*(d|h|ms|m|s)\s*", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


class BadDuration(ValueError):
    """The text is no duration; the message shows examples."""


def read_duration(text: str) -> int:
    """Parse a duration into whole ms; a number needs a unit. Raises BadDuration."""
    plain = text.strip().lower()
    if not _WHOLE.fullmatch(plain):
        raise BadDuration(f"{text!r} should be a number with a unit, such as 30s, 5m, 1h30m or 250ms")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(plain)))
