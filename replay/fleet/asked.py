"""The values of options: engine, what causes are counted by, sort order."""

from enum import StrEnum, unique


@unique
class EngineName(StrEnum):
    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@unique
class By(StrEnum):
    """Whether `causes` counts kinds of incidents, or what started the rebalances."""

    KIND = "kind"
    TRIGGER = "trigger"


@unique
class Order(StrEnum):
    COST = "cost"
    TIME = "time"
