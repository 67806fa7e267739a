"""Scripts: expiry, on servers that sweep all the time.

Whether something expires or stays shows only after a sweep. So a script waits for another group, of the same partition
on both servers, that only has an offset that expires soon: when it is gone a second time, a whole sweep of that
partition has run in between. Members are static where possible: on Kafka a sweep may run between the two steps of a
dynamic member's first join, and delete the group (QK6).
"""

import itertools
import time
from typing import Final

from muster.events.log.memory import MemoryStorage
from muster.events.partitioner import partition_for
from tests.brokers.broker import TEST_SETTINGS
from tests.conformance.eras import NEWEST, SOME, SOME_TWO_STEPS
from tests.conformance.member import CLICKS, ORDERS, Member
from tests.conformance.script import script
from tests.conformance.stage import Stage
from tests.conformance.wire import ms

SOON: Final = ms(100)
LATE: Final = ms(3_600_000)
WITH_RETENTION: Final = 2
"""A version of OffsetCommit with a retention time."""

PARTITIONS: Final = int(TEST_SETTINGS["offsets.topic.num.partitions"]) * len(MemoryStorage().records)
"""Groups that share one of this many partitions do so on both servers."""

MIXED: Final = (1, 5, 9)
"""The newest era of dynamic members that join in one step, and two of static ones."""


async def gone(stage: Stage, group_id: str | None = None, *, within: int = 1) -> None:
    """Wait for the sweep that deletes a group, for this multiple of the usual time."""
    for left in reversed(range(within)):
        try:
            await stage.until(state="Dead", group_id=group_id)
        except TimeoutError:
            if left == 0:
                raise
        else:
            return


async def swept(stage: Stage, who: Member) -> None:
    """Wait until everything in the group's partition that has expired by now is gone."""
    beside = (f"{stage.group_id}-{number}" for number in itertools.count())
    number = partition_for(stage.group_id, PARTITIONS)
    marker = next(group_id for group_id in beside if partition_for(group_id, PARTITIONS) == number)
    for _ in range(2):
        await who.commit_as_nobody(group_id=marker, version=WITH_RETENTION, retention_time=SOON).quietly()
        await gone(stage, marker)


async def past(stage: Stage, who: Member, seconds: int) -> None:
    """Wait until an offset with this retention has expired."""
    marker = f"{stage.group_id}-past"
    await who.commit_as_nobody(group_id=marker, version=WITH_RETENTION, retention_time=ms(seconds * 1_000)).quietly()
    await gone(stage, marker, within=4)


async def alone(stage: Stage, **settings: object) -> Member:
    """The only member of a stable group."""
    (a,) = await stage.stable("a", static=stage.era >= 5, **settings)
    return a


# ---- groups ----------------------------------------------------------------------------------------


@script("EX1, EX8", eras=MIXED, setup="expiring")
async def an_empty_group_without_offsets_goes_at_once(stage: Stage) -> None:
    a = await alone(stage)
    await swept(stage, a)
    await a.heartbeat()
    await a.leave()
    await gone(stage)
    await stage.describe()
    await stage.list()
    await a.join()
    await stage.form(a)
    await stage.describe()


@script("EX8, OD3", eras=SOME, setup="expiring")
async def a_group_goes_without_the_offsets_that_were_deleted(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 1, (CLICKS, 0): 2})
    await stage.delete_offsets((ORDERS, 0))
    await swept(stage, a)
    await stage.describe()
    await stage.delete_offsets((CLICKS, 0))
    await gone(stage)
    await stage.delete()


@script("EX4, EX8, OC18, DL2, DL3", eras=SOME, setup="expiring")
async def a_group_goes_with_its_last_offset(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 1, (CLICKS, 0): 2}, version=WITH_RETENTION, retention_time=SOON)
    await gone(stage)
    await stage.describe()
    await stage.list()
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))
    await a.commit_as_nobody({(ORDERS, 1): 3})
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1))


@script("P8, QK6", eras=SOME_TWO_STEPS, setup="expiring")
async def a_sweep_between_the_two_steps_of_a_first_join(stage: Stage) -> None:
    a = await stage.member("a")
    await a.join("")
    await swept(stage, a)
    await stage.differs(
        "QK6: Kafka forgets the group, and with it the id that it has just handed out",
        a.join(),
        kafka={"error_code": 25},
        muster={"error_code": 0},
    )


# ---- offsets ---------------------------------------------------------------------------------------


@script("EX6, OC18", eras=range(3), setup="expiring")
async def each_commit_goes_by_its_own_retention(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 1, (CLICKS, 0): 2}, retention_time=SOON)
    await a.commit_as_nobody({(ORDERS, 1): 3}, retention_time=LATE)
    await a.commit_as_nobody({(ORDERS, 2): 4})
    await a.commit_as_nobody({(CLICKS, 0): 5}, retention_time=LATE)
    await swept(stage, a)
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1), (ORDERS, 2), (CLICKS, 0))
    await stage.describe()


@script("EX6, OC18", eras=range(3), setup="expiring")
async def retentions_that_are_over_at_once(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 1}, retention_time=ms(0))
    await a.commit_as_nobody({(ORDERS, 1): 2}, retention_time=ms(-2))
    await a.commit_as_nobody({(ORDERS, 2): 3}, retention_time=ms(-1))
    await swept(stage, a)
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1), (ORDERS, 2))


@script("EX3, EX6", eras=MIXED, setup="expiring")
async def offsets_of_unsubscribed_topics(stage: Stage) -> None:
    a = await alone(stage)
    offsets = {(ORDERS, 0): 1, (CLICKS, 0): 2}
    await a.commit(offsets, version=WITH_RETENTION, retention_time=SOON)
    await swept(stage, a)
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))
    await a.heartbeat()
    await stage.describe()
    await a.leave()
    await gone(stage)
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))


@script("EX5", eras=MIXED, setup="expiring")
async def nothing_expires_while_a_group_rebalances(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=stage.era >= 5)
    joins = [a.join()]
    await stage.until(state="PreparingRebalance")
    await b.commit({(ORDERS, 0): 1, (CLICKS, 0): 2}, version=WITH_RETENTION, retention_time=SOON)
    await swept(stage, b)
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))
    joins.append(b.join())
    for join in joins:
        await join
    await swept(stage, b)
    await stage.describe()
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))
    for sync in [a.sync(), b.sync()]:
        await sync
    await swept(stage, b)
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))


@script("EX5, EX2", eras=MIXED, setup="expiring")
async def offsets_of_a_group_of_another_type(stage: Stage) -> None:
    a = await alone(stage, protocol_type="connect", protocols=(("compatible", b""),))
    await a.commit({(ORDERS, 0): 1}, version=WITH_RETENTION, retention_time=SOON)
    await swept(stage, a)
    await stage.fetch_offsets((ORDERS, 0))
    await a.leave()
    await gone(stage)
    await stage.fetch_offsets((ORDERS, 0))


@script("EX5", eras=MIXED, setup="expiring")
async def offsets_of_a_group_with_unreadable_subscriptions(stage: Stage) -> None:
    a = await alone(stage, protocols=(("range", b"\x00"),))
    await a.commit({(ORDERS, 0): 1}, version=WITH_RETENTION, retention_time=SOON)
    await swept(stage, a)
    await stage.fetch_offsets((ORDERS, 0))


# ---- by age, which takes at least a minute, the unit of offsets.retention.minutes --------------------


@script("EX2", eras=NEWEST, setup="expiring", long=True)
async def offsets_of_an_empty_group_age_from_the_moment_it_became_empty(stage: Stage) -> None:
    """An offset committed a quarter of a minute later expires at the same time."""
    a = await alone(stage)
    await a.commit({(ORDERS, 0): 1})
    await a.leave()
    since_s = time.monotonic()
    await past(stage, a, 15)
    await a.commit_as_nobody({(ORDERS, 1): 2})
    await gone(stage, within=5)
    stage.note_waited(since_s, unit_ms=10_000)
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1))


@script("EX4", eras=NEWEST, setup="expiring", long=True)
async def offsets_of_a_simple_consumer_age_from_their_commit(stage: Stage) -> None:
    """An offset committed a quarter of a minute later expires that much later."""
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 1})
    since_s = time.monotonic()
    await past(stage, a, 15)
    await a.commit_as_nobody({(ORDERS, 1): 2})
    await past(stage, a, 50)
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1))
    await gone(stage, within=5)
    stage.note_waited(since_s, unit_ms=10_000)


@script("EX3", eras=NEWEST, setup="expiring", long=True)
async def offsets_of_unsubscribed_topics_age_from_their_commit(stage: Stage) -> None:
    a = await alone(stage, session_ms=300_000)
    await a.commit({(ORDERS, 0): 1, (CLICKS, 0): 2})
    await past(stage, a, 50)
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))
    await past(stage, a, 15)
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))
    await a.heartbeat()
