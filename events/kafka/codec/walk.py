"""Walks kio's schemas: builds a function for each field of a class, and combines these into one for the whole class.

Interprets kio's description of a version (annotations and metadata of dataclasses). Knows nothing of bytes. A `Maker`
builds readers (reading.py), writers (writing.py) or functions that find the end of a field (skipping.py). Its methods
are called from the inside out, once, when a version is first used:

    plain     for a number, a string, bytes                 by Kafka's name of the type
    struct    for a struct, from the products of its fields
    optional  for a struct that may be null (KIP-893), from the product of the struct
    array     for an array, from the product of its items

Tagged fields (KIP-482) are described with the others but not passed to a maker: Muster reads and writes none of them,
so they are skipped, known or not.

Anything with arrays is processed in steps (events/steps.py), all else at once: `AtOnce` and `InSteps` say which it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Generic, Protocol, TypeVar, get_args, get_origin

import msgspec

T = TypeVar("T")
K = TypeVar("K")

Entity = Any
"""One of kio's classes: recognized by attributes, since kio's own types are too general."""


class AtOnce(msgspec.Struct, Generic[T], frozen=True):
    """`call` does all of it."""

    call: T


class InSteps(msgspec.Struct, Generic[T], frozen=True):
    """`call` returns steps."""

    call: T


def flatten_parts(parts: Iterable[tuple[K, AtOnce[Any] | InSteps[Any]]]) -> tuple[tuple[K, Any, bool], ...]:
    """Pair each field with its call, and with whether the call works in steps."""
    return tuple((key, part.call, isinstance(part, InSteps)) for key, part in parts)


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a version.

    `kafka_type`: Kafka's name of a plain type, also in an array; "" for structs, whose class is `struct`. `default`:
    MISSING if there is none.
    """

    name: str
    kafka_type: str
    struct: Entity
    is_array: bool
    is_nullable: bool
    is_flexible: bool
    tag: int | None
    default: object


class Maker(Protocol[T]):
    """Builds a product, such as a reader, for each part of a schema. The product for a field is passed on together with
    the field.
    """

    def plain(self, field: Field) -> T: ...

    def struct(self, entity: Entity, parts: Sequence[tuple[Field, T]]) -> T: ...

    def optional(self, field: Field, struct: T, /) -> T: ...

    def array(self, field: Field, item: T) -> T: ...


def make_for(entity: Entity, maker: Maker[T]) -> T:
    """Return the maker's product for a kio class."""
    return maker.struct(entity, [(field, make_for_field(field, maker)) for field in untagged(entity)])


def make_for_field(field: Field, maker: Maker[T]) -> T:
    """Return the maker's product for one field."""
    made = maker.plain(field) if field.struct is None else make_for(field.struct, maker)
    if field.is_array:
        return maker.array(field, made)
    if field.struct is not None and field.is_nullable:
        return maker.optional(field, made)
    return made


@cache
def fields_of(entity: Entity) -> tuple[Field, ...]:
    """Return all fields, in their order."""
    return tuple(_described(each, is_flexible=bool(entity.__flexible__)) for each in fields(entity))


def untagged(entity: Entity) -> tuple[Field, ...]:
    """Return the untagged fields."""
    return tuple(field for field in fields_of(entity) if field.tag is None)


def field_named(entity: Entity, name: str) -> Field:
    (found,) = (field for field in fields_of(entity) if field.name == name)
    return found


def _described(field: Any, *, is_flexible: bool) -> Field:  # noqa: ANN401 -- one of dataclasses
    """Describe a field: arrays are tuples, and nullable types are unions with None."""
    union = () if get_origin(field.type) is tuple else get_args(field.type)
    (kind,) = (each for each in union if each is not NoneType) if union else (field.type,)
    is_array = get_origin(kind) is tuple
    if is_array:
        kind = get_args(kind)[0]
    return Field(
        name=field.name,
        kafka_type=field.metadata.get("kafka_type", ""),
        struct=kind if is_dataclass(kind) else None,
        is_array=is_array,
        is_nullable=NoneType in union,
        is_flexible=is_flexible,
        tag=field.metadata.get("tag"),
        default=field.default,
    )
