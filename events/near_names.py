"""Finds known names that are similar to an unknown one."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

NAME_CHARACTERS_MAX: Final = 255
"""Only this many characters of a name are compared, since the time for a comparison is quadratic in the length."""


def did_you_mean(name: str, known: Iterable[str], *, at_most: int = 3) -> str:
    """Return `; did you mean A or B?` to append to a sentence; "" if no known name is similar."""
    near = get_close_matches(name[:NAME_CHARACTERS_MAX], known, n=at_most)
    return f"; did you mean {' or '.join(near)}?" if near else ""
