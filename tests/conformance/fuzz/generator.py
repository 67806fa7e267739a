"""A seed gives a schedule.

What belongs here: how often what is done. What it must not know: servers, answers; a schedule does not depend on them.

Most steps let members behave, so that there are stable groups to do mischief to; mischief is one odd thing at a time,
mostly: a request with everything wrong only tells which check comes first.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

from tests.conformance.eras import ALL, STATIC
from tests.conformance.fuzz.schedule import (
    NAMES,
    AnyStep,
    Behave,
    Cast,
    Choice,
    DeleteGroups,
    DescribeGroups,
    Gather,
    Generation,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    ListGroups,
    Offset,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Partition,
    Pass,
    Restart,
    Schedule,
    SyncGroup,
    Tidy,
)
from tests.conformance.fuzz.servers import METADATA_MAX
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
"""What both servers offer; a test compares it with Muster's own list."""


def generate(seed: int, *, steps: int) -> Schedule:
    """The schedule of this seed."""
    rng = Random(seed)
    cast = tuple(_member(rng) for _ in EVERYBODY)
    taken: list[AnyStep] = []
    while len(taken) < steps:
        taken += pick(rng, SCENES)(rng)
    return Schedule(
        seed=seed,
        patient=rng.random() < 0.8,
        protocol_type=pick(rng, {"consumer": 6, "connect": 1}),
        cast=cast,
        steps=tuple(taken[:steps]),
    )


def pick(rng: Random, weights: Mapping[T, int]) -> T:
    """One of these, as often as they weigh."""
    return rng.choices(list(weights), list(weights.values()))[0]


def _member(rng: Random) -> Cast:
    static = rng.random() < 0.5
    return Cast(
        static=static,
        era=rng.choice(STATIC if static else ALL),
        topics=pick(rng, SUBSCRIPTIONS),
        offers=pick(rng, {1: 2, 2: 2, 3: 1}),
    )


# ---- scenes: a step, or some that make sense together --------------------------------------------------


def _behave(rng: Random) -> list[AnyStep]:
    return [Behave(who=_who(rng))]


def _gather(rng: Random) -> list[AnyStep]:
    tidy: list[AnyStep] = [Tidy()] if rng.random() < 0.6 else []
    return [*tidy, Gather(whos=_some(rng))]


def _expire(rng: Random) -> list[AnyStep]:
    """Somebody joins with a session that soon ends, and is not heard of again."""
    who = _who(rng)
    enters: AnyStep = Restart(who=who, era=rng.choice(STATIC), brief=True)
    if rng.random() < 0.6:
        enters = JoinGroup(who=who, brief=True, offers=rng.choice((None, 1, 2)))
    come = [Gather(whos=_some(rng))] if rng.random() < 0.8 else []
    seen = [Heartbeat(who=who)] if rng.random() < 0.4 else []
    return [enters, *come, *seen, Pass(), *_gather(rng)]


def _pass(_: Random) -> list[AnyStep]:
    return [Pass()]


def _restart(rng: Random) -> list[AnyStep]:
    who = _who(rng)
    era = rng.choice(STATIC if rng.random() < 0.8 else ALL)
    follow: list[AnyStep] = [Behave(who=who)] if rng.random() < 0.6 else []
    return [Restart(who=who, era=era), *follow]


def _join(rng: Random) -> list[AnyStep]:
    member_id, instance_id, pose = _identity(rng)
    return [
        JoinGroup(
            who=_who(rng),
            version=_version(rng, JoinGroup),
            member_id=member_id,
            instance_id=instance_id,
            pose=pose,
            topics=pick(rng, SUBSCRIPTIONS) if rng.random() < 0.3 else None,
            offers=pick(rng, {1: 2, 2: 2, 3: 1, 0: 1}) if rng.random() < 0.2 else None,
            protocol_type=rng.choice(("consumer", "connect", "")) if rng.random() < 0.08 else None,
            session_ms=rng.choice((50, 1_800_001)) if rng.random() < 0.05 else None,
            brief=rng.random() < 0.06,
            flip=rng.random() < 0.15,
            twice=rng.random() < 0.12,
        )
    ]


def _rejoin(rng: Random) -> list[AnyStep]:
    """A member asks for a rebalance, with another subscription or without; some come to it."""
    who = _who(rng)
    topics = pick(rng, SUBSCRIPTIONS) if rng.random() < 0.6 else None
    come: list[AnyStep] = [Behave(who=each) for each in _some(rng) if each != who]
    if rng.random() < 0.5:
        come = _gather(rng)
    return [JoinGroup(who=who, topics=topics, twice=rng.random() < 0.1), *come]


def _sync(rng: Random) -> list[AnyStep]:
    member_id, instance_id, pose = _identity(rng)
    return [
        SyncGroup(
            who=_who(rng),
            version=_version(rng, SyncGroup),
            member_id=member_id,
            instance_id=instance_id,
            pose=pose,
            generation=_generation(rng),
            assigns=pick(rng, {"all": 6, "none": 1, "some": 1, "strangers": 1}),
            protocol=pick(rng, {"own": 16, "wrong type": 1, "wrong name": 1, "null": 1}),
            twice=rng.random() < 0.1,
        )
    ]


def _heartbeat(rng: Random) -> list[AnyStep]:
    member_id, instance_id, pose = _identity(rng)
    return [
        Heartbeat(
            who=_who(rng),
            version=_version(rng, Heartbeat),
            member_id=member_id,
            instance_id=instance_id,
            pose=pose,
            generation=_generation(rng),
        )
    ]


def _leave(rng: Random) -> list[AnyStep]:
    leavers = []
    for _ in range(pick(rng, {0: 1, 1: 10, 2: 4, 3: 2})):
        member_id: Choice = pick(rng, {"own": 8, "none": 4, "old": 1, "nobody": 1})
        instance_id: Choice = pick(rng, {"own": 9, "none": 2, "nobody": 1})
        leavers.append(Leaver(who=_who(rng), member_id=member_id, instance_id=instance_id))
    return [LeaveGroup(who=_who(rng), version=_version(rng, LeaveGroup), leavers=tuple(leavers))]


def _commit(rng: Random) -> list[AnyStep]:
    partitions = dict.fromkeys(pick(rng, PARTITIONS) for _ in range(rng.choice((1, 1, 2, 3))))
    offsets = tuple(
        Offset(
            topic=topic,
            partition=partition,
            offset=rng.randrange(-2, 100),
            metadata=pick(rng, {0: 4, None: 1, 5: 2, METADATA_MAX: 1, METADATA_MAX + 1: 1}),
        )
        for topic, partition in partitions
    )
    version = _version(rng, OffsetCommit)
    retention_ms = rng.choice((-1, 3_600_000))
    if rng.random() < 0.25:  # as tools do, and consumers that assign partitions to themselves
        return [
            OffsetCommit(
                who=_who(rng),
                version=version,
                member_id=pick(rng, {"none": 5, "own": 1}),
                instance_id=pick(rng, {"none": 5, "own": 1}),
                generation="none",
                offsets=offsets,
                retention_ms=retention_ms,
            )
        ]
    member_id, instance_id, pose = _identity(rng)
    return [
        OffsetCommit(
            who=_who(rng),
            version=version,
            member_id=member_id,
            instance_id=instance_id,
            pose=pose,
            generation=_generation(rng),
            offsets=offsets,
            retention_ms=retention_ms,
        )
    ]


def _fetch(rng: Random) -> list[AnyStep]:
    return [
        OffsetFetch(
            version=rng.choice(VERSIONS[OffsetFetch]),
            partitions=_partitions(rng) if rng.random() < 0.6 else (),
            require_stable=rng.random() < 0.3,
            others=rng.random() < 0.2,
        )
    ]


def _delete_offsets(rng: Random) -> list[AnyStep]:
    return [OffsetDelete(partitions=_partitions(rng))]


def _describe(rng: Random) -> list[AnyStep]:
    version = rng.choice(VERSIONS[DescribeGroups])
    return [DescribeGroups(version=version, operations=rng.random() < 0.3, others=rng.random() < 0.2)]


def _list(rng: Random) -> list[AnyStep]:
    states = {(): 3, ("Stable",): 2, ("empty", "PREPARINGREBALANCE"): 2, (" CompletingRebalance ",): 1, ("Dead",): 1}
    types = {(): 4, ("classic",): 2, ("Classic", "share"): 1, ("consumer",): 1}
    return [ListGroups(version=rng.choice(VERSIONS[ListGroups]), states=pick(rng, states), types=pick(rng, types))]


def _delete(rng: Random) -> list[AnyStep]:
    everybody = tuple(Leaver(who=who) for who in EVERYBODY)
    delete = DeleteGroups(version=rng.choice(VERSIONS[DeleteGroups]), others=rng.random() < 0.2)
    return [LeaveGroup(version=5, leavers=everybody), delete] if rng.random() < 0.3 else [delete]


SCENES: Final[Mapping[Callable[[Random], list[AnyStep]], int]] = {
    _gather: 22,
    _behave: 16,
    _rejoin: 5,
    _expire: 4,
    _pass: 2,
    _restart: 8,
    _join: 11,
    _sync: 9,
    _heartbeat: 10,
    _leave: 6,
    _commit: 10,
    _fetch: 3,
    _delete_offsets: 3,
    _describe: 2,
    _list: 2,
    _delete: 2,
}


# ---- parts ---------------------------------------------------------------------------------------------


def _who(rng: Random) -> int:
    return rng.randrange(MEMBERS)


def _some(rng: Random) -> tuple[int, ...]:
    """In an order of their own: the first to come leads. Mostly all who fit into the group."""
    count = pick(rng, {1: 1, 2: 3, 3: 3, 4: 3, 5: 8})
    return tuple(rng.sample(EVERYBODY, count))


def _identity(rng: Random) -> tuple[Choice, Choice, int | None]:
    """Mostly with one thing wrong at most."""
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
        return "own", "own", _who(rng)
    if kind == "mixed":  # somebody else's instance id with no member id of theirs
        return wrong, "own", _who(rng)
    return wrong, instance, None


def _generation(rng: Random) -> Generation:
    return pick(rng, {"own": 14, "next": 1, "past": 2, "none": 1})


def _version(rng: Random, step: type) -> int | None:
    return rng.choice(VERSIONS[step]) if rng.random() < 0.2 else None


def _partitions(rng: Random) -> tuple[Partition, ...]:
    return tuple(dict.fromkeys(pick(rng, PARTITIONS) for _ in range(rng.choice((1, 2, 3)))))
