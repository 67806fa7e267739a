"""How certain a statement is."""

from enum import StrEnum, unique


@unique
class Grade(StrEnum):
    """The certainty of a statement, in all output formats."""

    RECORDED = "recorded"
    """Events state it."""
    INFERRED = "inferred"
    """Events support it, but do not state it."""
    UNKNOWN = "unknown"
    """Events do not support it."""


def at_best(limit: Grade, grade: Grade) -> Grade:
    """Return the grade, or the limit if that is lower: an incident is no more certain than its parts."""
    return max(limit, grade, key=list(Grade).index)
