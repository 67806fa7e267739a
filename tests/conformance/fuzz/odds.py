"""The probabilities of a schedule's choices.

Random members, ids, versions and partitions.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, TypeVar

from tests.conformance.fuzz.schedule import (
    NAMES,
    Choice,
    DeleteGroups,
    DescribeGroups,
    Generation,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    Partition,
    SyncGroup,
)
from tests.conformance.member import CLICKS, NO_SUCH_TOPIC, ORDERS

T = TypeVar("T")

MEMBERS: Final = len(NAMES)
EVERYBODY: Final = tuple(range(MEMBERS))
SUBSCRIPTIONS: Final[Mapping[tuple[str, ...], int]] = {(ORDERS,): 6, (CLICKS,): 2, (ORDERS, CLICKS): 2, (): 1}
PARTITIONS: Final[Mapping[Partition, int]] = {
    (ORDERS, 0): 6,
    (ORDERS, 1): 3,
    (ORDERS, 2): 2,
    (CLICKS, 0): 3,
    (ORDERS, 3): 1,
    (NO_SUCH_TOPIC, 0): 1,
}
VERSIONS: Final[Mapping[type, Sequence[int]]] = {
    JoinGroup: range(10),
    SyncGroup: range(6),
    Heartbeat: range(5),
    LeaveGroup: range(6),
    OffsetCommit: range(2, 11),
    OffsetFetch: range(1, 11),
    DescribeGroups: range(7),
    ListGroups: range(6),
    DeleteGroups: range(3),
}
"""The versions that both servers offer; a test compares them with Muster's own list."""


def pick(rng: Random, weights: Mapping[T, int]) -> T:
    """One of these, with probability proportional to its weight."""
    return rng.choices(list(weights), list(weights.values()))[0]


def anybody(rng: Random) -> int:
    return rng.randrange(MEMBERS)


def some(rng: Random) -> tuple[int, ...]:
    """In random order: the first to join leads. Mostly all who fit into the group."""
    count = pick(rng, {1: 1, 2: 3, 3: 3, 4: 3, 5: 8})
    return tuple(rng.sample(EVERYBODY, count))


def identity(rng: Random) -> tuple[Choice, Choice, int | None]:
    """Usually with at most one thing wrong."""
    wrong: Choice = pick(rng, {"none": 3, "old": 3, "nobody": 2})
    kind = pick(rng, {"right": 12, "id": 3, "instance": 3, "pose": 3, "mixed": 2, "both": 1})
    if kind == "right":
        return "own", "own", None
    if kind == "id":
        return wrong, "own", None
    instance: Choice = pick(rng, {"none": 3, "nobody": 3, "empty": 1})
    if kind == "instance":
        return "own", instance, None
    if kind == "pose":
        return "own", "own", anybody(rng)
    if kind == "mixed":  # another's instance id without its member id
        return wrong, "own", anybody(rng)
    return wrong, instance, None


def generation(rng: Random) -> Generation:
    return pick(rng, {"own": 14, "next": 1, "past": 2, "none": 1})


def maybe_version(rng: Random, step: type) -> int | None:
    return rng.choice(VERSIONS[step]) if rng.random() < 0.2 else None


def partitions(rng: Random) -> tuple[Partition, ...]:
    return tuple(dict.fromkeys(pick(rng, PARTITIONS) for _ in range(rng.choice((1, 2, 3)))))
