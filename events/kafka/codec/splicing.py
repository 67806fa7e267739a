"""Cuts a message at its fields, by kio's schemas, so that some can be replaced and all others stay unchanged.

Replaces fields and joins the pieces; skipping.py finds the ends of fields. Nothing is decoded, so additions of newer
brokers to a known version (error codes, tagged fields, KIP-482) are passed on with the rest, and bytes after the
requested fields are not read. Bytes that end too early raise IndexError, struct.error or SerialError. Arrays are
processed in steps (events/steps.py): a response may have as many entries as a client has requested.
"""

from collections.abc import Callable
from functools import cache

from muster.events.kafka.codec.primitives import INT16, INT32, uvarint, varint_at
from muster.events.kafka.codec.skipping import Skip, count_at, skip_field, skip_fields, skip_tagged, skipped
from muster.events.kafka.codec.walk import AtOnce, Entity, field_named, flatten_parts, untagged
from muster.events.steps import Steps

Splice = Callable[[bytes, int], Steps[bytes]]
"""Takes bytes and an offset; returns all bytes from the offset on, changed."""

Pieces = dict[str, bytes]
"""The fields of a struct in their order, by kio's names, each as its bytes; then the tagged ones as one piece."""

CutMessage = Callable[[bytes, int], Steps[tuple[Pieces, int]]]
"""Takes bytes and an offset; returns the struct's pieces there, and the offset after it."""

FieldChange = Callable[[Pieces], Pieces | None]
"""Takes an item; returns its replacement, which may be the same item, changed; None drops the item."""

_ChangeInSteps = Callable[[Pieces], Steps[Pieces | None]]


@cache
def cut_struct(entity: Entity, last: str | None = None) -> CutMessage:
    """Build the cut of a kio class: its fields up to `last`, or all of them."""
    skips: list[tuple[str, Skip]] = []
    for field in untagged(entity):
        skips.append((field.name, skip_field(field)))
        if field.name == last:
            break
    else:
        if entity.__flexible__:
            skips.append(("", AtOnce(skip_tagged)))
    steps = flatten_parts(skips)

    def cut(data: bytes, at: int) -> Steps[tuple[Pieces, int]]:
        pieces = {}
        for name, skip, is_in_steps in steps:
            ends = (yield from skip(data, at)) if is_in_steps else skip(data, at)
            if ends > len(data):
                raise IndexError(f"the bytes end at {len(data)}, in a field that ends at {ends}")
            pieces[name] = data[at:ends]
            at = ends
        return pieces, at

    return cut


def change_fields(entity: Entity, last: str, change: FieldChange) -> Splice:
    """Build the splice of a kio class that changes its own fields up to `last`; it cannot be dropped."""
    cut = cut_struct(entity, last)

    def changed(data: bytes, start: int) -> Steps[bytes]:
        pieces, ends = yield from cut(data, start)
        return b"".join((*(change(pieces) or pieces).values(), data[ends:]))

    return changed


def change_items(entity: Entity, name: str, change: FieldChange) -> Splice:
    """Build the splice of a kio class that changes each item of an array of structs in it."""

    def change_in_steps(pieces: Pieces) -> Steps[Pieces | None]:
        yield 1
        return change(pieces)

    return _change_items(entity, name, change_in_steps)


def change_inner_items(entity: Entity, outer: str, inner: str, change: FieldChange) -> Splice:
    """Build the splice that changes each item of an array in each struct of another array."""
    changed = change_items(field_named(entity, outer).struct, inner, change)

    def change_inner(pieces: Pieces) -> Steps[Pieces | None]:
        return {outer: (yield from changed(b"".join(pieces.values()), 0))}

    return _change_items(entity, outer, change_inner)


def text_of(piece: bytes, *, flexible: bool) -> str:
    """Decode a string's bytes; "" for null."""
    _, at = varint_at(piece, 0) if flexible else (0, INT16.size)
    return piece[at:].decode()


def text_piece(text: str, *, flexible: bool) -> bytes:
    """Encode a string."""
    encoded = text.encode()
    return (uvarint(len(encoded) + 1) if flexible else INT16.pack(len(encoded))) + encoded


def _change_items(entity: Entity, name: str, change: _ChangeInSteps) -> Splice:
    field = field_named(entity, name)
    array = _Array(field.struct, flexible=field.is_flexible, change=change)
    all_untagged = untagged(entity)
    if field.tag is not None:
        return _change_tagged(skip_fields(all_untagged), field.tag, array)
    skip_those_before = skip_fields(all_untagged[: all_untagged.index(field)])

    def changed(data: bytes, start: int) -> Steps[bytes]:
        begins = yield from skipped(skip_those_before, data, start)
        written, ends = yield from array.write(data, begins)
        return b"".join((data[start:begins], written, data[ends:]))

    return changed


class _Array:
    """An array whose items are changed."""

    def __init__(self, item: Entity, *, flexible: bool, change: _ChangeInSteps) -> None:
        self._cut = cut_struct(item)
        self._flexible = flexible
        self._change = change

    def write(self, data: bytes, begins: int) -> Steps[tuple[bytes, int]]:
        """Return the changed array, and the offset after the original one."""
        count, at = count_at(data, begins, flexible=self._flexible)
        kept = []
        for _ in range(count):
            pieces, at = yield from self._cut(data, at)
            changed = yield from self._change(pieces)
            if changed is not None:
                kept.append(b"".join(changed.values()))
        if not count:
            return data[begins:at], at  # null or empty
        length = uvarint(len(kept) + 1) if self._flexible else INT32.pack(len(kept))
        return b"".join((length, *kept)), at


def _change_tagged(skip_untagged: Skip, tag: int, array: _Array) -> Splice:
    def changed(data: bytes, start: int) -> Steps[bytes]:
        at = yield from skipped(skip_untagged, data, start)
        count, at = varint_at(data, at)
        for _ in range(count):
            begins = at
            number, at = varint_at(data, at)
            size, at = varint_at(data, at)
            if number == tag:
                written, _ = yield from array.write(data, at)
                return b"".join((data[start:begins], uvarint(tag), uvarint(len(written)), written, data[at + size :]))
            at += size
        return data[start:]

    return changed
