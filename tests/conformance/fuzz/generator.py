"""Generates a schedule from a seed.

It decides how often each step occurs; a schedule does not depend on servers and responses.

In most steps members behave, so that there are stable groups to disturb. Disturbances are mostly one oddity at a time:
a request with everything wrong only shows which check comes first.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from tests.conformance.eras import ALL, STATIC
from tests.conformance.fuzz.odds import (
    EVERYBODY,
    MEMBERS,
    PARTITIONS,
    SUBSCRIPTIONS,
    VERSIONS,
    anybody,
    generation,
    identity,
    maybe_version,
    partitions,
    pick,
    some,
)
from tests.conformance.fuzz.schedule import (
    AnyStep,
    Behave,
    Cast,
    Choice,
    DeleteGroups,
    DescribeGroups,
    Gather,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    ListGroups,
    Offset,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Pass,
    Restart,
    Schedule,
    SyncGroup,
    Tidy,
)
from tests.conformance.fuzz.servers import METADATA_MAX
from tests.conformance.member import ORDERS


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


def _member(rng: Random) -> Cast:
    static = rng.random() < 0.5
    return Cast(
        static=static,
        era=rng.choice(STATIC if static else ALL),
        topics=pick(rng, SUBSCRIPTIONS),
        offers=pick(rng, {1: 2, 2: 2, 3: 1}),
    )


# ---- scenes: steps that make sense together -----------------------------------------------------------


def _behave(rng: Random) -> list[AnyStep]:
    return [Behave(who=anybody(rng))]


def _gather(rng: Random) -> list[AnyStep]:
    tidy: list[AnyStep] = [Tidy()] if rng.random() < 0.6 else []
    return [*tidy, Gather(whos=some(rng))]


def _expire(rng: Random) -> list[AnyStep]:
    """A member joins with a session that soon expires, and falls silent."""
    who = anybody(rng)
    enters: AnyStep = Restart(who=who, era=rng.choice(STATIC), brief=True)
    if rng.random() < 0.6:
        enters = JoinGroup(who=who, brief=True, offers=rng.choice((None, 1, 2)))
    come = [Gather(whos=some(rng))] if rng.random() < 0.8 else []
    seen = [Heartbeat(who=who)] if rng.random() < 0.4 else []
    return [enters, *come, *seen, Pass(), *_gather(rng)]


def _pass(_: Random) -> list[AnyStep]:
    return [Pass()]


def _restart(rng: Random) -> list[AnyStep]:
    who = anybody(rng)
    era = rng.choice(STATIC if rng.random() < 0.8 else ALL)
    follow: list[AnyStep] = [Behave(who=who)] if rng.random() < 0.6 else []
    return [Restart(who=who, era=era), *follow]


def _fenced(rng: Random) -> list[AnyStep]:
    """A member restarts, and the previous process has not noticed."""
    who = anybody(rng)
    says: Mapping[Callable[[], AnyStep], int] = {
        lambda: Heartbeat(who=who, member_id="old"): 2,
        lambda: JoinGroup(who=who, member_id="old"): 3,
        lambda: SyncGroup(who=who, member_id="old"): 2,
        lambda: OffsetCommit(who=who, member_id="old", offsets=(Offset(topic=ORDERS, partition=0, offset=7),)): 2,
        lambda: LeaveGroup(who=who, leavers=(Leaver(who=who, member_id="old"),)): 1,
    }
    back = [Behave(who=who)] if rng.random() < 0.5 else []
    reported = [pick(rng, says)() for _ in range(rng.choice((1, 2, 3)))]
    return [Restart(who=who, era=rng.choice(STATIC)), *back, *reported]


def _join(rng: Random) -> list[AnyStep]:
    member_id, instance_id, pose = identity(rng)
    return [
        JoinGroup(
            who=anybody(rng),
            version=maybe_version(rng, JoinGroup),
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
    """A member asks for a rebalance, with or without a changed subscription; some members rejoin."""
    who = anybody(rng)
    topics = pick(rng, SUBSCRIPTIONS) if rng.random() < 0.6 else None
    come: list[AnyStep] = [Behave(who=each) for each in some(rng) if each != who]
    if rng.random() < 0.5:
        come = _gather(rng)
    return [JoinGroup(who=who, topics=topics, twice=rng.random() < 0.1), *come]


def _halfway(rng: Random) -> list[AnyStep]:
    """All have rejoined, and have not synced yet, when something else happens."""
    who = anybody(rng)
    others = [Behave(who=each) for each in rng.sample(EVERYBODY, MEMBERS) if each != who]
    done = [step for _ in range(rng.choice((1, 2, 3))) for step in pick(rng, BETWEEN)(rng)]
    return [
        Gather(whos=EVERYBODY),
        JoinGroup(who=who, topics=pick(rng, SUBSCRIPTIONS)),
        *others,
        *done,
        *_gather(rng),
    ]


def _sync(rng: Random) -> list[AnyStep]:
    member_id, instance_id, pose = identity(rng)
    return [
        SyncGroup(
            who=anybody(rng),
            version=maybe_version(rng, SyncGroup),
            member_id=member_id,
            instance_id=instance_id,
            pose=pose,
            generation=generation(rng),
            assigns=pick(rng, {"all": 6, "none": 1, "some": 1, "strangers": 1}),
            protocol=pick(rng, {"own": 16, "wrong type": 1, "wrong name": 1, "null": 1}),
            twice=rng.random() < 0.1,
        )
    ]


def _heartbeat(rng: Random) -> list[AnyStep]:
    member_id, instance_id, pose = identity(rng)
    return [
        Heartbeat(
            who=anybody(rng),
            version=maybe_version(rng, Heartbeat),
            member_id=member_id,
            instance_id=instance_id,
            pose=pose,
            generation=generation(rng),
        )
    ]


def _leave(rng: Random) -> list[AnyStep]:
    leavers = []
    for _ in range(pick(rng, {0: 1, 1: 10, 2: 4, 3: 2})):
        member_id: Choice = pick(rng, {"own": 8, "none": 4, "old": 1, "nobody": 1})
        instance_id: Choice = pick(rng, {"own": 9, "none": 2, "nobody": 1})
        leavers.append(Leaver(who=anybody(rng), member_id=member_id, instance_id=instance_id))
    return [LeaveGroup(who=anybody(rng), version=maybe_version(rng, LeaveGroup), leavers=tuple(leavers))]


def _commit(rng: Random) -> list[AnyStep]:
    chosen = dict.fromkeys(pick(rng, PARTITIONS) for _ in range(rng.choice((1, 1, 2, 3))))
    offsets = tuple(
        Offset(
            topic=topic,
            partition=partition,
            offset=rng.randrange(-2, 100),
            metadata=pick(rng, {0: 4, None: 1, 5: 2, METADATA_MAX: 1, METADATA_MAX + 1: 1}),
        )
        for topic, partition in chosen
    )
    version = maybe_version(rng, OffsetCommit)
    retention_ms = rng.choice((-1, 3_600_000))
    if rng.random() < 0.25:  # as tools do, and consumers that assign partitions to themselves
        return [
            OffsetCommit(
                who=anybody(rng),
                version=version,
                member_id=pick(rng, {"none": 5, "own": 1}),
                instance_id=pick(rng, {"none": 5, "own": 1}),
                generation="none",
                offsets=offsets,
                retention_ms=retention_ms,
            )
        ]
    member_id, instance_id, pose = identity(rng)
    return [
        OffsetCommit(
            who=anybody(rng),
            version=version,
            member_id=member_id,
            instance_id=instance_id,
            pose=pose,
            generation=generation(rng),
            offsets=offsets,
            retention_ms=retention_ms,
        )
    ]


def _fetch(rng: Random) -> list[AnyStep]:
    return [
        OffsetFetch(
            version=rng.choice(VERSIONS[OffsetFetch]),
            partitions=partitions(rng) if rng.random() < 0.6 else (),
            require_stable=rng.random() < 0.3,
            others=rng.random() < 0.2,
        )
    ]


def _delete_offsets(rng: Random) -> list[AnyStep]:
    return [OffsetDelete(partitions=partitions(rng))]


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
    if rng.random() < 0.5:
        return [delete]
    after = [OffsetDelete(partitions=partitions(rng))] if rng.random() < 0.5 else []
    return [LeaveGroup(version=5, leavers=everybody), *after, delete]


SCENES: Final[Mapping[Callable[[Random], list[AnyStep]], int]] = {
    _gather: 22,
    _behave: 16,
    _rejoin: 5,
    _halfway: 3,
    _expire: 4,
    _pass: 2,
    _restart: 6,
    _fenced: 4,
    _join: 10,
    _sync: 9,
    _heartbeat: 10,
    _leave: 6,
    _commit: 13,
    _fetch: 4,
    _delete_offsets: 3,
    _describe: 2,
    _list: 2,
    _delete: 2,
}

BETWEEN: Final[Mapping[Callable[[Random], list[AnyStep]], int]] = {
    _commit: 3,
    _sync: 3,
    _heartbeat: 2,
    _restart: 2,
    _join: 2,
    _leave: 1,
}
