"""Making text from clients safe for a terminal: a client id may have escape sequences, or rich's own markup."""

from rich.text import Text


def printable(text: str) -> str:
    """The text with everything that is not a printable character as an escape."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def text(content: object, style: str = "") -> Text:
    """A cell: never markup, never a control character. None is a dash."""
    return Text("-" if content is None else printable(str(content)), style=style)
