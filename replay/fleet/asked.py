"""The values of options: engine, what causes are counted by, sort order."""

from enum import StrEnum, unique


@unique
class EngineName(StrEnum):
    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@unique
class By(StrEnum):
    """The things that `causes` can count: kinds of incidents, or triggers of rebalances."""

    KIND = "kind"
    TRIGGER = "trigger"


@unique
class Order(StrEnum):
    COST = "cost"
    TIME = "time"
