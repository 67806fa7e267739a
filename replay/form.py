"""The output formats, and the view that a result is printed for."""

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
    NAME = "name"
    STATE = "state"
    MEMBERS = "members"
    REBALANCES = "rebalances"
    LAST = "last"
    EVENTS = "events"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """`zone`: the time zone that times are shown in; JSON is always in UTC."""

    form: Format = Format.TABLE
    zone: tzinfo = UTC
