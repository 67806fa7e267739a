"""Walks kio's schemas: makes something for each field of a class, and from those something for the class.

What belongs here: how kio says what a version has (annotations and metadata of dataclasses). What it must not know:
bytes. What is made is the business of a `Maker`: a reader (reading.py), a writer (writing.py) or something that tells
how far a field reaches (skipping.py). It is asked from the inside out, once, when a version is first spoken:

    plain     for a number, a string, bytes                 by Kafka's name of the type
    struct    for a struct, from what was made of its fields
    optional  for a struct that may be null (KIP-893), from what was made of the struct
    array     for an array, from what was made of its items

Tagged fields (KIP-482) are described with the others and handed to no maker: nothing that is read or written here is
in one, so they are stepped over, known or not.

What has arrays is worked on in steps (events/steps.py), all else at once: `AtOnce` and `InSteps` say which it is.
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
"""One of kio's classes: told apart by attributes, since kio's own types say too little."""


class AtOnce(msgspec.Struct, Generic[T], frozen=True):
    """`call` does all of it."""

    call: T


class InSteps(msgspec.Struct, Generic[T], frozen=True):
    """`call` gives steps."""

    call: T


def flatten_parts(parts: Iterable[tuple[K, AtOnce[Any] | InSteps[Any]]]) -> tuple[tuple[K, Any, bool], ...]:
    """Pair each field with its call, and say if the call works in steps."""
    return tuple((key, part.call, isinstance(part, InSteps)) for key, part in parts)


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a version. `kafka_type`: Kafka's name of a type that is plain, also in an array; "" for structs, whose
    class is `struct`. `default`: MISSING where there is none.
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
    """Makes one thing for each part of a schema. What is made for a field is passed on together with the field."""

    def plain(self, field: Field) -> T: ...

    def struct(self, entity: Entity, parts: Sequence[tuple[Field, T]]) -> T: ...

    def optional(self, field: Field, struct: T, /) -> T: ...

    def array(self, field: Field, item: T) -> T: ...


def make_for(entity: Entity, maker: Maker[T]) -> T:
    """Return the maker's product for a class of kio's."""
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
    """Arrays are tuples, and what may be null is a union with None."""
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
