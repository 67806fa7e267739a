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
