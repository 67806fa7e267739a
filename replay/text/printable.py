"""Making text from clients safe for a terminal: a client id may have escape sequences, or rich's own markup."""

import re
from typing import Final

from rich.text import Text

LONG_WORD: Final = 500
"""The length from which on a word is cut: Kafka takes ids of up to 32 KB, and a page has many. JSON has them whole."""

_HEAD, _TAIL = 200, 40
_LONG = re.compile(rf"\S{{{LONG_WORD + 1},}}")


def printable(text: str) -> str:
    """The text with everything that is not a printable character as an escape, and of a word of pages both ends."""
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
    """A cell: never markup, never a control character. None is a dash."""
    return Text("-" if content is None else printable(str(content)), style=style)
