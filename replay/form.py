"""The forms of an answer, and for whom it is printed."""

from datetime import UTC, tzinfo
from enum import StrEnum, unique

import msgspec


@unique
class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    MD = "md"


@unique
class Sort(StrEnum):
    """The ways to sort groups."""

    NAME = "name"
    STATE = "state"
    MEMBERS = "members"
    REBALANCES = "rebalances"
    LAST = "last"
    EVENTS = "events"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer is printed. `zone`: in which times are told, but for JSON, which has UTC always."""

    form: Format = Format.TABLE
    zone: tzinfo = UTC
