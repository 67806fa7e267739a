"""Time zones: finds the one that `--tz` names, or this machine's, and converts results to it.

Uses only `zoneinfo`. In a result the fields with instants are found by their annotation (`times.Instant`), so text from
clients that looks like an instant is left alone, as is quoted text in a sentence (`times.Sentence`).
"""

import os
import typing
from collections.abc import Callable
from datetime import UTC, tzinfo
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from muster.replay.text.times import Instant, Sentence, in_zone, sentence_in_zone

R = TypeVar("R")

_LOCALTIME = Path("/etc/localtime")


class UnknownZone(ValueError):
    """There is no time zone with that name."""


def zone_named(name: str) -> tzinfo:
    """Return the zone with this name: 'UTC', 'local', or a time zone database name ('Europe/Berlin'). Raises
    UnknownZone.
    """
    if name.upper() in ("UTC", "Z"):
        return UTC
    if name == "local":
        return local_zone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UnknownZone(f"{name!r} is no time zone: give UTC, local, or a name such as Europe/Berlin") from error


def local_zone() -> tzinfo:
    """Return this machine's zone: that of TZ, or of /etc/localtime, else UTC."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if not name:
        _, _, name = os.path.realpath(_LOCALTIME).partition("zoneinfo/")
    if name:
        try:
            return zone_named(name) if name != "local" else UTC
        except UnknownZone:
            return UTC
    try:
        with _LOCALTIME.open("rb") as file:
            return ZoneInfo.from_file(file, key="local")
    except (OSError, ValueError):
        return UTC


def told_in(result: R, zone: tzinfo) -> R:
    """Return the result with all its instants in the zone."""
    if zone is UTC:
        return result
    kind: Any = type(result)
    told: R = _teller(kind)(result, zone)
    return told


Tell = Callable[[Any, tzinfo], Any]


def _as_it_is(value: Any, _zone: tzinfo) -> Any:  # noqa: ANN401 -- any value of a result
    return value


@cache
def _teller(kind: Any) -> Tell:  # noqa: ANN401 -- an annotation
    """Return the function that converts a value of this type to a zone."""
    if kind is Instant:
        return in_zone
    if kind == Sentence:
        return sentence_in_zone
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _teller_of_struct(kind)
    inner = [_teller(each) for each in typing.get_args(kind) if each is not Ellipsis]
    if all(each is _as_it_is for each in inner):
        return _as_it_is
    origin = typing.get_origin(kind)
    if origin is tuple:
        return lambda values, zone: tuple(inner[0](value, zone) for value in values)
    if origin in (typing.Union, UnionType):
        return lambda value, zone: _of_union(kind, value, zone)
    return _as_it_is


def _of_union(kind: Any, value: Any, zone: tzinfo) -> Any:  # noqa: ANN401 -- any value of a result
    """Convert a value of a union type: a struct by its own type; other unions have one type besides None."""
    if value is None:
        return None
    if isinstance(value, msgspec.Struct):
        return _teller(type(value))(value, zone)
    (other,) = (each for each in typing.get_args(kind) if each is not type(None))
    return _teller(other)(value, zone)


def _teller_of_struct(kind: type[msgspec.Struct]) -> Tell:
    tellers: dict[str, Tell] = {}

    def tell(value: msgspec.Struct, zone: tzinfo) -> msgspec.Struct:
        if not tellers:
            tellers.update(
                {name: _teller(hint) for name, hint in typing.get_type_hints(kind, include_extras=True).items()}
            )
        changed = {
            name: telling(getattr(value, name), zone) for name, telling in tellers.items() if telling is not _as_it_is
        }
        return msgspec.structs.replace(value, **changed) if changed else value

    return tell
