"""Scripts: what a member has to do to remain one, and how long it may be silent."""

import asyncio
import time

from tests.conformance.eras import SOME, SOME_STATIC
from tests.conformance.member import ORDERS, OTHER, SHORT_MS
from tests.conformance.passing_time import answered_within, passed, repeat_until
from tests.conformance.script import script
from tests.conformance.stage import Stage

LONGER_MS = 2 * SHORT_MS
HALF_AN_HOUR_MS = 1_800_000
FIRST_JOIN_WITHIN_S = 5 * 60 + 60


@script("SE1, H6, OC12, CD7, TM1", eras=SOME)
async def a_member_with_requests_stays(stage: Stage) -> None:
    a, b, c = await stage.members("a", "b", "c")
    b.session_ms = c.session_ms = SHORT_MS
    await stage.form(a, b, c)
    await passed(stage, LONGER_MS, b.heartbeat, c.commit)
    await b.heartbeat()
    await c.heartbeat()
    await stage.describe()


@script("SE1, H4, OC11, OC12, CD2", eras=SOME)
async def a_member_with_requests_in_the_join_phase_stays(stage: Stage) -> None:
    a, b, c = await stage.members("a", "b", "c")
    b.session_ms = c.session_ms = SHORT_MS
    await stage.form(a, b, c)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await passed(stage, LONGER_MS, b.heartbeat, c.commit)
    await stage.complete([a, b, c], [b.join(), c.join(), join])


@script("SE1, H5, CB15", eras=SOME)
async def a_member_with_requests_in_the_sync_phase_stays(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    await passed(stage, LONGER_MS, b.heartbeat)
    for sync in [a.sync(), b.sync()]:
        await sync


@script("SE2, SG16, DV5", eras=SOME)
async def asking_for_the_assignment_again_is_no_sign_of_life(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    await repeat_until(stage.until(members=1, state="PreparingRebalance"), b.sync)
    await b.heartbeat()


@script("SE2, JS2", eras=SOME)
async def a_join_that_changes_nothing_is_no_sign_of_life(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    await repeat_until(stage.until(members=1, state="PreparingRebalance"), b.join)
    await b.heartbeat()


@script("SE2, OF2", eras=SOME)
async def what_is_refused_is_no_sign_of_life(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    await repeat_until(
        stage.until(members=1, state="PreparingRebalance"),
        lambda: b.heartbeat(generation_id=99),
        lambda: b.commit(generation_id_or_member_epoch=99),
        lambda: b.sync(generation_id=99),
    )
    await b.heartbeat()


@script("H7, RB12", eras=SOME_STATIC)
async def a_heartbeat_of_an_older_generation_is_no_sign_of_life(stage: Stage) -> None:
    """The session expires, long before the sync phase does."""
    a, b = await stage.members("a", "b", static=True, rebalance_ms=3 * SHORT_MS)
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    await repeat_until(asyncio.ensure_future(a.join().quietly()), b.heartbeat)
    start = time.monotonic()
    await a.sync()
    await b.heartbeat()
    await repeat_until(stage.until(members=1, state="PreparingRebalance"), b.heartbeat)
    stage.note_waited(start, unit_ms=LONGER_MS)
    await b.heartbeat()


@script("SE3, SG19, CD1, MX15, TM6", eras=SOME)
async def a_member_waiting_for_a_response_does_not_expire(stage: Stage) -> None:
    a, b, c = await stage.members("a", "b", "c")
    b.session_ms = SHORT_MS
    await stage.form(a, b, c)
    joins = [a.join()]
    await stage.until(state="PreparingRebalance")
    joins.append(b.join())
    await passed(stage, LONGER_MS)
    await stage.describe()
    for join in [c.join(), *joins]:
        await join
    sync = b.sync()
    await stage.heard()
    await passed(stage, LONGER_MS)
    await stage.describe()
    for each in [a.sync(), c.sync(), sync]:
        await each
    await b.heartbeat()


@script("SE9, ST25", eras=SOME_STATIC)
async def an_expired_and_replaced_member_is_fenced(stage: Stage) -> None:
    a, b = await stage.members("a", "b", static=True)
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    await stage.until(members=1, state="PreparingRebalance")
    back = await stage.member("b again", "b")
    join = back.join("")
    await stage.until(members=2, state="PreparingRebalance")
    await stage.complete([a, back], [a.join(), join])
    await b.heartbeat()
    await b.commit()
    await b.sync()
    await b.join()
    await b.leave()
    await stage.describe()


@script("SX6, SX1, TM3, TM5", eras=SOME)
async def a_synced_member_is_left_alone(stage: Stage) -> None:
    """The sync timers of this generation, and of an unfinished one, have no effect."""
    a, b = await stage.stable("a", "b", rebalance_ms=SHORT_MS)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    join = b.join(protocols=OTHER)
    await stage.until(state="PreparingRebalance")
    await stage.complete([a, b], [a.join(), join])
    await passed(stage, LONGER_MS)
    await a.heartbeat()
    await b.heartbeat()
    await stage.describe()


@script("SX7, SX5, SX2", eras=SOME)
async def heartbeats_and_joins_do_not_stand_for_a_sync(stage: Stage) -> None:
    a, b = await stage.members("a", "b", rebalance_ms=SHORT_MS)
    await stage.form(a)
    join = await b.enter()
    await stage.until(members=2)
    for each in [a.join(), join]:
        await each
    await a.sync()
    await repeat_until(stage.until(members=1, state="PreparingRebalance"), b.heartbeat, b.join)
    await b.heartbeat()
    await a.heartbeat()
    await stage.rejoin(a)


@script("SX2, ST28", eras=SOME_STATIC)
async def static_members_that_do_not_sync_are_removed(stage: Stage) -> None:
    a, b, c = await stage.stable("a", "b", "c", static=True, rebalance_ms=SHORT_MS)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), c.join(), join]:
        await each
    await a.sync()
    await stage.until(members=1, state="PreparingRebalance")
    await b.heartbeat()
    await c.heartbeat()
    await a.heartbeat()
    await stage.rejoin(a)
    await stage.describe()


@script("SE4, K3, TM1", eras=(3, 9), long=True)
async def a_first_join_ends_after_five_minutes(stage: Stage) -> None:
    (a,) = await stage.stable("a", session_ms=HALF_AN_HOUR_MS, rebalance_ms=HALF_AN_HOUR_MS)
    b = await stage.member("b", session_ms=HALF_AN_HOUR_MS, rebalance_ms=HALF_AN_HOUR_MS)
    start = time.monotonic()
    join = await b.enter()
    await stage.until(members=2, state="PreparingRebalance")
    await answered_within(join, FIRST_JOIN_WITHIN_S)
    await join
    stage.note_waited(start, unit_ms=60_000)
    await stage.describe()
    await a.commit({(ORDERS, 0): 1})
    await stage.rejoin(a)
