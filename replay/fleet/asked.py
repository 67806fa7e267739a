"""The values of options: which engine, what is counted by, in which order."""

from enum import StrEnum, unique


@unique
class EngineName(StrEnum):
    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@unique
class By(StrEnum):
    """The things that `causes` counts by: kinds of incidents, or what started the rebalances."""

    KIND = "kind"
    TRIGGER = "trigger"


@unique
class Order(StrEnum):
    COST = "cost"
    TIME = "time"
