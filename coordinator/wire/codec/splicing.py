"""Bytes of a message cut at its fields, by kio's schemas, so that some can be replaced and all others stay as they are.

What belongs here: which fields are replaced, and putting together what there is then; how far a field reaches is told
by skipping.py. What it must not know: what the fields mean. Nothing is decoded, so whatever a newer broker puts into a
version that is known (error codes, tagged fields, KIP-482) is passed on with the rest, and what comes behind the fields
that are asked for is not looked at. Bytes that end too early raise IndexError, struct.error or SerialError. Arrays are
gone through in steps (load/steps.py): an answer may have as many entries as a client has asked for.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from struct import Struct
from typing import Any

from muster.coordinator.load.steps import Steps
from muster.coordinator.wire.codec.skipping import (
    Skip,
    SkipInSteps,
    count_at,
    in_turn,
    item_of,
    skip_field,
    skip_tagged,
    skipped,
    varint_at,
)
from muster.coordinator.wire.codec.writing import write_uvarint

Splice = Callable[[bytes, int], Steps[bytes]]
"""From bytes and an offset in them to all that is there from the offset on, changed."""

Pieces = dict[str, bytes]
"""The fields of a struct in their order, by kio's names, each as its bytes; behind them the tagged ones as one."""

Change = Callable[[Pieces], Pieces | None]
"""From an item to the one that is there instead, which may be the same, changed; None drops the item."""

_ChangeInSteps = Callable[[Pieces], Steps[Pieces | None]]

_INT16, _INT32 = Struct(">h"), Struct(">i")


def change_items(entity: Any, name: str, change: Change) -> Splice:  # noqa: ANN401 -- kio's classes are told apart by their attributes; so below
    """For a kio class, and an array of structs in it: all from the offset on, with each of its items changed."""

    def change_in_steps(pieces: Pieces) -> Steps[Pieces | None]:
        yield 1
        return change(pieces)

    return _change_items(entity, name, change_in_steps)


def field_of(entity: Any, name: str) -> Callable[[bytes, int], Steps[bytes]]:  # noqa: ANN401
    """For a kio class, and a field that has no tag: its bytes, of what begins at the offset."""
    (at,) = (at for at, field in enumerate(fields(entity)) if field.name == name)
    skip_those_before = in_turn([skip_field(entity, each) for each in fields(entity)[:at]])
    skip = skip_field(entity, fields(entity)[at])

    def piece(data: bytes, start: int) -> Steps[bytes]:
        begins = yield from skipped(skip_those_before, data, start)
        return data[begins : (yield from skipped(skip, data, begins))]

    return piece


def _change_items(entity: Any, name: str, change: _ChangeInSteps) -> Splice:  # noqa: ANN401
    (at,) = (at for at, field in enumerate(fields(entity)) if field.name == name)
    field = fields(entity)[at]
    array = _Array(item_of(field), flexible=bool(entity.__flexible__), change=change)
    if "tag" in field.metadata:
        return _changes_tagged(entity, field.metadata["tag"], array)
    skip_those_before = in_turn([skip_field(entity, each) for each in fields(entity)[:at]])

    def changed(data: bytes, start: int) -> Steps[bytes]:
        begins = yield from skipped(skip_those_before, data, start)
        written, ends = yield from array.write(data, begins)
        return b"".join((data[start:begins], written, data[ends:]))

    return changed


def change_inner_items(entity: Any, outer: str, inner: str, change: Change) -> Splice:  # noqa: ANN401
    """The same for an array in each struct of another."""
    (field,) = (each for each in fields(entity) if each.name == outer)
    changed = change_items(item_of(field), inner, change)

    def change_inner(pieces: Pieces) -> Steps[Pieces | None]:
        return {outer: (yield from changed(b"".join(pieces.values()), 0))}

    return _change_items(entity, outer, change_inner)


def change_fields(entity: Any, change: Change) -> Splice:  # noqa: ANN401
    """For a kio class: all from the offset on, with its own fields changed; it cannot be dropped."""
    cut = _cutter(entity)

    def changed(data: bytes, start: int) -> Steps[bytes]:
        pieces, ends = yield from cut(data, start)
        return b"".join((*(change(pieces) or pieces).values(), data[ends:]))

    return changed


def text_of(piece: bytes, *, flexible: bool) -> str:
    """The text of a string's bytes; "" for null."""
    _, at = varint_at(piece, 0) if flexible else (0, _INT16.size)
    return piece[at:].decode()


def text_piece(text: str, *, flexible: bool) -> bytes:
    """The bytes of a string."""
    encoded = text.encode()
    if not flexible:
        return _INT16.pack(len(encoded)) + encoded
    out = bytearray()
    write_uvarint(out, len(encoded) + 1)
    return bytes(out + encoded)


class _Array:
    """An array whose items are changed."""

    def __init__(self, item: Any, *, flexible: bool, change: _ChangeInSteps) -> None:  # noqa: ANN401
        self._cut = _cutter(item)
        self._flexible = flexible
        self._change = change

    def write(self, data: bytes, begins: int) -> Steps[tuple[bytes, int]]:
        """The changed array that begins there, and the offset behind the one that there was."""
        count, at = count_at(data, begins, flexible=self._flexible)
        kept = []
        for _ in range(count):
            pieces, at = yield from self._cut(data, at)
            changed = yield from self._change(pieces)
            if changed is not None:
                kept.append(b"".join(changed.values()))
        if not count:
            return data[begins:at], at  # null, or none
        length = bytearray()
        if self._flexible:
            write_uvarint(length, len(kept) + 1)
        else:
            length += _INT32.pack(len(kept))
        return b"".join((length, *kept)), at


def _changes_tagged(entity: Any, tag: int, array: _Array) -> Splice:  # noqa: ANN401
    skip_untagged = in_turn([skip_field(entity, each) for each in fields(entity) if "tag" not in each.metadata])

    def changed(data: bytes, start: int) -> Steps[bytes]:
        at = yield from skipped(skip_untagged, data, start)
        count, at = varint_at(data, at)
        for _ in range(count):
            begins = at
            number, at = varint_at(data, at)
            size, at = varint_at(data, at)
            if number == tag:
                written, _ = yield from array.write(data, at)
                length = bytearray()
                write_uvarint(length, tag)
                write_uvarint(length, len(written))
                return b"".join((data[start:begins], length, written, data[at + size :]))
            at += size
        return data[start:]

    return changed


@cache
def _cutter(entity: Any) -> Callable[[bytes, int], Steps[tuple[Pieces, int]]]:  # noqa: ANN401
    """A struct's fields, and the offset behind the struct."""
    skips: list[tuple[str, Skip]] = [
        (field.name, skip_field(entity, field)) for field in fields(entity) if "tag" not in field.metadata
    ]
    if entity.__flexible__:
        skips.append(("", skip_tagged))

    def cut(data: bytes, at: int) -> Steps[tuple[Pieces, int]]:
        pieces = {}
        for name, skip in skips:
            ends = (yield from skip.steps(data, at)) if isinstance(skip, SkipInSteps) else skip(data, at)
            if ends > len(data):
                raise IndexError(f"the bytes end at {len(data)}, in a field that ends at {ends}")
            pieces[name] = data[at:ends]
            at = ends
        return pieces, at

    return cut
