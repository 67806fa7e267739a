"""The forms of an answer."""

from enum import StrEnum, unique


@unique
class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
