"""Makes text from clients safe for a terminal: a client id may have escape sequences, or rich's own markup."""

import re
from typing import Final

from rich.text import Text

LONG_WORD: Final = 500
"""Longer words are shortened: Kafka accepts ids of up to 32 KB, and a page has many. JSON has them in full.
"""

_HEAD, _TAIL = 200, 40
_LONG = re.compile(rf"\S{{{LONG_WORD + 1},}}")


def printable(text: str) -> str:
    """Escape everything that is not printable, and shorten words of more than LONG_WORD characters to both ends."""
    if len(text) > LONG_WORD:
        text = _LONG.sub(_both_ends, text)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _both_ends(found: re.Match[str]) -> str:
    word = found[0]
    return f"{word[:_HEAD]}...({len(word) - _HEAD - _TAIL:,} more characters)...{word[-_TAIL:]}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def text(content: object, style: str = "") -> Text:
    """Make a table cell: no markup, no control characters. None becomes a dash."""
    return Text("-" if content is None else printable(str(content)), style=style)
