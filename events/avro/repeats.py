"""Repeats: runs of fields that recur byte for byte in a history, so that a decoder need not read them again.

This module finds such runs in a schema, by the names that our events share, and caches their decoded values. The
group's id, its state and the reason often repeat the previous event; a member's description repeats that member's last
event.

The bytes decide, not the names: a run is reused only if the same bytes begin there, since decoding is a function of the
bytes. So if a name ever gets another meaning, decoding becomes slower, but not wrong.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from muster.events.avro.schema import Schema

Known = dict[str, dict[Any, tuple[Any, Any]]]
"""The bytes and the values of the runs that were read, by signature and key (None: the run of the last event)."""

NOTHING: tuple[Any, Any] = ((), None)
"""Stands for a run that was not read yet: no bytes begin with its first item."""

KNOWN_MAX = 4_096
KNOWN_BYTES_MAX = 1_024
"""How many runs of one signature are kept at a time, and how long each may be."""

_GROUP = ("group_id", "incarnation")
_MEMBER = "member_id"
_SINCE = "joined_ms"
_CHANGING = ("bytes", "long")
"""The types of assignments and times: a member's run ends before the first such field, and another one begins at
_SINCE.
"""


class FieldRun(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive fields of a record. `wanted`: the types of those that are needed, by name.

    `repeats`: whether they often have the same values as before; `key`: the preceding field that identifies whose they
    are.
    """

    fields: list[Schema]
    wanted: dict[str, inspect.Type]
    repeats: bool = False
    key: str | None = None

    @property
    def signature(self) -> str:
        """The signature; runs with the same one decode the same bytes to the same values."""
        return json.dumps([self.fields, *map(repr, self.wanted.items())])


def split_into_runs(schema: Schema, wanted: Mapping[str, inspect.Type], *, is_event: bool) -> Iterator[FieldRun]:
    """Split the fields of a record into runs, in their order. `is_event`: the record is the whole event."""
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
    """Return whether a field of the event is a record that belongs to no member: the group's state, or the reason."""
    return field["type"] == "record" and bool(field["fields"][0]["name"] != _MEMBER)


def remember(known: dict[Any, tuple[Any, Any]], key: object, read: bytes, size: int, values: tuple[Any, ...]) -> None:
    """Keep what was read, for reuse. `size`: its length; a value that ends too early is shorter, and is not kept."""
    if len(read) == size <= KNOWN_BYTES_MAX:
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[key] = read, values
