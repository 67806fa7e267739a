"""Repeats: runs of fields that come again byte for byte in a history, and that a decoder need not read again.

What belongs here: where in a schema such runs of fields stand, and what is known of them. By the names that our events
share: who the group is, how it stands and why are as in the event before; who a member is, as in its own last event.

The bytes decide, not the names: a run is taken as it was if the same bytes stand where it begins, since reading is a
function of the bytes. So a name that means something else one day costs time, and is never read wrongly.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from muster.events.avro.schema import Schema

Known = dict[str, dict[Any, tuple[Any, Any]]]
"""The runs that were read: by their form, and by whose each is (None: the last one's), its bytes and its values."""

NOTHING: tuple[Any, Any] = ((), None)
"""Stands for a run that was not read yet: no bytes begin with the first of it."""

KNOWN_MAX = 4_096
KNOWN_BYTES_MAX = 1_024
"""How many runs of one form are known at a time, and how long each may be."""

_GROUP = ("group_id", "incarnation")
_MEMBER = "member_id"
_SINCE = "joined_ms"
_CHANGING = ("bytes", "long")
"""The types of assignments and of times, which end what is known of a member, until the time since when it is one."""


class FieldRun(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a record that follow each other. `wanted`: the types of those that somebody wants, by name.

    `repeats`: whether they are often as they were; `key`: the field before them that says whose they are.
    """

    fields: list[Schema]
    wanted: dict[str, inspect.Type]
    repeats: bool = False
    key: str | None = None

    @property
    def signature(self) -> str:
        """The same for runs whose bytes mean the same values."""
        return json.dumps([self.fields, *map(repr, self.wanted.items())])


def split_into_runs(schema: Schema, wanted: Mapping[str, inspect.Type], *, is_event: bool) -> Iterator[FieldRun]:
    """The fields of a record, in their order. `is_event`: of the whole event."""
    fields = schema["fields"]
    names = [field["name"] for field in fields]

    def run(start: int, end: int, *, repeats: bool = False, key: str | None = None) -> FieldRun:
        chosen = {name: wanted[name] for name in names[start:end] if name in wanted}
        return FieldRun(fields=fields[start:end], wanted=chosen, repeats=repeats and bool(chosen), key=key)

    if is_event:
        begin = len(_GROUP) if tuple(names[: len(_GROUP)]) == _GROUP else 0
        yield run(0, begin, repeats=True)
        for number in range(begin, len(fields)):
            yield run(number, number + 1, repeats=_is_as_before(fields[number]["type"]))
    elif _MEMBER in wanted and _MEMBER in names:
        begin = names.index(_MEMBER) + 1
        changing = (n for n in range(begin, len(fields)) if fields[n]["type"]["type"] in _CHANGING)
        end = next(changing, len(fields))
        again = names.index(_SINCE) if _SINCE in names[end:] else len(fields)
        yield run(0, begin)
        yield run(begin, end, repeats=True, key=_MEMBER)
        yield run(end, again)
        if again < len(fields):
            yield run(again, len(fields), repeats=True, key=_MEMBER)
    else:
        yield run(0, len(fields))


def _is_as_before(field: Schema) -> bool:
    """Whether a field of the event is a record that is of no one member: how the group stands, or why."""
    return field["type"] == "record" and bool(field["fields"][0]["name"] != _MEMBER)


def remember(known: dict[Any, tuple[Any, Any]], key: object, read: bytes, size: int, values: tuple[Any, ...]) -> None:
    """Note what was read, for the next time; `size`: its bytes, of which a value that ends too early has fewer."""
    if len(read) == size <= KNOWN_BYTES_MAX:
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[key] = read, values
