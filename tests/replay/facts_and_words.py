"""Checksums over a result: one over the facts that programs read, and one over the text.

A reworded sentence changes only the second one.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

WORDS: Final = frozenset({"text", "headline", "advice", "notes", "reason"})
"""The fields with text for users."""


def checksums(value: object) -> str:
    """Return both checksums, in hex."""
    built = msgspec.to_builtins(value)
    facts, words = msgspec.json.encode(_facts(built)), msgspec.json.encode(list(_words(built)))
    return f"[{zlib.crc32(facts):08x}, in words {zlib.crc32(words):08x}]"


def _facts(value: Any) -> Any:
    match value:
        case dict():
            return {key: _facts(each) for key, each in value.items() if key not in WORDS}
        case list() | tuple():
            return [_facts(each) for each in value]
    return value


def _words(value: Any) -> Iterator[Any]:
    match value:
        case dict():
            for key, each in value.items():
                if key in WORDS:
                    yield each
                else:
                    yield from _words(each)
        case list() | tuple():
            for each in value:
                yield from _words(each)
