"""How well a statement is known."""

from enum import StrEnum, unique


@unique
class Grade(StrEnum):
    """The grade of a statement, in every form of an answer."""

    RECORDED = "recorded"
    """Events say it."""
    INFERRED = "inferred"
    """Events bear it, and do not say it."""
    UNKNOWN = "unknown"
    """Events do not bear it."""


def at_best(limit: Grade, grade: Grade) -> Grade:
    """The grade, or the limit if that is worse: a story is no better known than its parts."""
    return max(limit, grade, key=list(Grade).index)
