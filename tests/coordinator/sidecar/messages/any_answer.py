"""Responses of any kind with random contents, built from kio's classes by a seed."""

from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode

_TEXTS = ("", "kafka-1.example.org", "ein Wort für später", "x" * 300)


def any_answer(entity: Any, random: Random) -> Any:
    """A kio response; tagged fields are present now and then."""
    values = {}
    for field in fields(entity):
        if "tag" in field.metadata and field.default is not MISSING and random.random() < 0.3:
            continue
        values[field.name] = _value(field.type, field.metadata.get("kafka_type"), random)
    return entity(**values)


def _value(kind: Any, kafka_type: str | None, random: Random) -> Any:
    for candidate in (kind, *get_args(kind)):
        if get_origin(candidate) is tuple:
            (item, _) = get_args(candidate)
            return tuple(_value(item, kafka_type, random) for _ in range(random.randrange(4)))
    if NoneType in get_args(kind) and random.random() < 0.3:
        return None
    (kind,) = (each for each in get_args(kind) or (kind,) if each is not NoneType)
    return any_answer(kind, random) if is_dataclass(kind) else _plain(kafka_type, random)


def _plain(kafka_type: str | None, random: Random) -> Any:
    match kafka_type:
        case "string":
            return random.choice(_TEXTS)
        case "records" | "bytes":
            return random.randbytes(random.choice([0, 5, 200]))
        case "uuid":
            return UUID(int=random.getrandbits(128))
        case "bool":
            return random.random() < 0.5
        case "error_code":
            return random.choice([ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.unknown_server_error])
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=random.randrange(100_000))
        case "datetime_i64":
            return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=random.randrange(10**6))
        case "int8" | "int16" | "int32" | "int64":
            return random.randrange(-1, 100)
        case _:
            raise NotImplementedError(kafka_type)
