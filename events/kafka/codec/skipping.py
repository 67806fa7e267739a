"""Finds the end of each field of a message, by kio's schemas, without decoding it.

A skipper takes the bytes and an offset, and returns the offset after the field: at once, or in steps (events/steps.py)
for arrays whose items have to be skipped one by one. Bytes that end too early raise IndexError, struct.error or
SerialError, or give an offset beyond their end.
"""

from collections.abc import Callable, Sequence

from muster.events.kafka.codec.primitives import FIXED, INT16, INT32, tagged_fields_size, varint_at
from muster.events.kafka.codec.walk import AtOnce, Entity, Field, InSteps, flatten_parts, make_for_field
from muster.events.steps import ENTRIES_PER_STEP, Steps

SkipAtOnce = Callable[[bytes, int], int]
SkipInSteps = Callable[[bytes, int], Steps[int]]
Skip = AtOnce[SkipAtOnce] | InSteps[SkipInSteps]


def skip_field(field: Field) -> Skip:
    """Build the skipper of an untagged field."""
    return make_for_field(field, _Skips())


def skip_fields(fields: Sequence[Field]) -> Skip:
    """Build the skipper of consecutive fields."""
    return _in_turn([skip_field(field) for field in fields])


def skipped(skip: Skip, data: bytes, at: int) -> Steps[int]:
    """Skip at once, or in steps."""
    if isinstance(skip, InSteps):
        return (yield from skip.call(data, at))
    return skip.call(data, at)


class _Skips:
    """Makes skippers (see walk.py)."""

    def plain(self, field: Field) -> Skip:
        form = FIXED.get(field.kafka_type)
        if form is not None:
            return AtOnce(_Fixed(form.size))
        if field.is_flexible:
            return AtOnce(_skip_compact)
        return AtOnce(_skip_string if field.kafka_type == "string" else _skip_bytes)

    def struct(self, entity: Entity, parts: Sequence[tuple[Field, Skip]]) -> Skip:
        skips = [skip for _, skip in parts]
        return _in_turn([*skips, AtOnce(skip_tagged)] if entity.__flexible__ else skips)

    def optional(self, field: Field, _struct: Skip) -> Skip:
        raise NotImplementedError(f"{field.name} is a struct that may be null")

    def array(self, field: Field, item: Skip) -> Skip:
        if isinstance(item, InSteps):
            return InSteps(_items(item.call, flexible=field.is_flexible))
        if isinstance(item.call, _Fixed):
            return AtOnce(_fixed_items(item.call.size, flexible=field.is_flexible))
        return InSteps(_items_at_once(item.call, flexible=field.is_flexible))


class _Fixed:
    """Skips fields of fixed size; consecutive ones are merged."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, _data: bytes, at: int) -> int:
        return at + self.size


def _in_turn(skips: Sequence[Skip]) -> Skip:
    merged: list[Skip] = []
    for skip in skips:
        if isinstance(skip.call, _Fixed) and merged and isinstance(merged[-1].call, _Fixed):
            merged[-1] = AtOnce(_Fixed(merged[-1].call.size + skip.call.size))
        else:
            merged.append(skip)
    if len(merged) == 1:
        return merged[0]
    at_once = [skip.call for skip in merged if isinstance(skip, AtOnce)]

    def skip_all(data: bytes, at: int) -> int:
        for skip in at_once:
            at = skip(data, at)
        return at

    steps = flatten_parts(enumerate(merged))

    def skip_all_in_steps(data: bytes, at: int) -> Steps[int]:
        for _, skip, is_in_steps in steps:
            at = (yield from skip(data, at)) if is_in_steps else skip(data, at)
        return at

    return AtOnce(skip_all) if len(at_once) == len(merged) else InSteps(skip_all_in_steps)


def _fixed_items(size: int, *, flexible: bool) -> SkipAtOnce:
    def skip(data: bytes, at: int) -> int:
        count, at = count_at(data, at, flexible=flexible)
        return at + count * size

    return skip


def _items_at_once(skip_item: SkipAtOnce, *, flexible: bool) -> SkipInSteps:
    def skip(data: bytes, at: int) -> Steps[int]:
        count, at = count_at(data, at, flexible=flexible)
        for done in range(1, count + 1):  # no item is empty, so this ends with the bytes
            at = skip_item(data, at)
            if not done % ENTRIES_PER_STEP:
                yield ENTRIES_PER_STEP
        yield count % ENTRIES_PER_STEP
        return at

    return skip


def _items(skip_item: SkipInSteps, *, flexible: bool) -> SkipInSteps:
    def skip(data: bytes, at: int) -> Steps[int]:
        count, at = count_at(data, at, flexible=flexible)
        for _ in range(count):  # as above
            at = yield from skip_item(data, at)
            yield 1
        return at

    return skip


def count_at(data: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """Return the number of items, 0 for null, and the offset of the first."""
    if flexible:
        length, at = varint_at(data, at)
        return max(0, length - 1), at
    return max(0, INT32.unpack_from(data, at)[0]), at + INT32.size


def _skip_compact(data: bytes, at: int) -> int:
    length, at = varint_at(data, at)
    return at + max(0, length - 1)


def _skip_string(data: bytes, at: int) -> int:
    return at + INT16.size + max(0, int(INT16.unpack_from(data, at)[0]))


def _skip_bytes(data: bytes, at: int) -> int:
    return at + INT32.size + max(0, int(INT32.unpack_from(data, at)[0]))


def skip_tagged(data: bytes, at: int) -> int:
    """Skip the tagged fields at the end of a struct."""
    return at + tagged_fields_size(data, at) if data[at] else at + 1
