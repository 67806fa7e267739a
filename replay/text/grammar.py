"""Numbers, nouns and lists in English."""

from collections.abc import Sequence

NAMED_MAX = 5
"""The number of things that a sentence names; the rest are counted."""


def listed(words: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def few(words: Sequence[str], at_most: int = NAMED_MAX, noun: str = "other") -> str:
    """'a, b and 4 others': the first few words, and the number of the rest."""
    rest = len(words) - at_most
    return listed([*words[:at_most], plural(rest, noun)] if rest > 0 else words)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def size_text(size: int) -> str:
    """A size in bytes: '12 KB', '1.4 MB'; at least 1 KB unless it is 0."""
    return f"{size / 1e6:,.1f} MB" if size >= 1_000_000 else f"{min(1, size) if size < 1_000 else size // 1_000} KB"
