"""Scripts: what a join phase takes over from rejoining members, and how long it waits for the others."""

import time

from tests.conformance.eras import SOME, SOME_STATIC
from tests.conformance.member import OTHER, RANGE, RANGE_FIRST, SHORT_MS
from tests.conformance.passing_time import passed
from tests.conformance.script import script
from tests.conformance.stage import Stage

LONGER_MS = 3 * SHORT_MS


@script("JS3, S11")
async def a_follower_rejoins_with_fewer_protocols(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", protocols=RANGE_FIRST)
    join = b.join(protocols=RANGE)
    await stage.until(state="PreparingRebalance")
    await stage.complete([a, b], [a.join(), join])
    join = b.join(protocols=RANGE_FIRST)
    await stage.until(state="PreparingRebalance")
    await stage.complete([a, b], [a.join(), join])


@script("JP4, J14")
async def a_rejoin_in_the_join_phase_brings_what_is_new(stage: Stage) -> None:
    """The leader sees it, and it counts from then on."""
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await stage.complete([a, b], [b.join(protocols=OTHER), join])
    await stage.describe()
    await b.join()


@script("J14, JS2", eras=SOME)
async def what_an_unchanged_rejoin_brings_is_forgotten(stage: Stage) -> None:
    """Here a session timeout, which counts if it comes with a rebalance."""
    a, b = await stage.stable("a", "b")
    await b.join(session_ms=SHORT_MS)
    await b.heartbeat()
    await passed(stage, 2 * SHORT_MS)
    await b.heartbeat()
    await stage.rejoin_all(a, b)
    start = time.monotonic()
    await stage.until(members=1, state="PreparingRebalance")
    stage.note_waited(start, unit_ms=4 * SHORT_MS)
    await b.heartbeat()
    await stage.rejoin(a)


@script("J12, SE3", eras=SOME)
async def a_first_join_outlives_its_session(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    b = await stage.member("b", session_ms=SHORT_MS)
    join = await b.enter()
    await stage.until(members=2, state="PreparingRebalance")
    await passed(stage, 2 * SHORT_MS, a.heartbeat)
    await stage.complete([a, b], [a.join(), join])
    await stage.describe()


@script("S14, RB4, RB6", eras=SOME)
async def the_longest_rebalance_timeout_is_the_groups(stage: Stage) -> None:
    a = await stage.member("a", rebalance_ms=SHORT_MS)
    b = await stage.member("b", rebalance_ms=3 * SHORT_MS)
    await stage.form(a, b)
    start = time.monotonic()
    await a.join()
    stage.note_waited(start, unit_ms=SHORT_MS)
    await a.sync()
    await b.heartbeat()


@script("JP6, RB4", eras=SOME)
async def a_longer_rebalance_timeout_comes_too_late(stage: Stage) -> None:
    a, b, c = await stage.stable("a", "b", "c", rebalance_ms=SHORT_MS)
    start = time.monotonic()
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(rebalance_ms=10 * SHORT_MS), join]:
        await each
    stage.note_waited(start, unit_ms=SHORT_MS)
    await stage.complete([a, b], [])
    await c.heartbeat()


@script("RB14, RB7", eras=SOME_STATIC)
async def the_leader_comes_back_to_a_join_phase_that_goes_on(stage: Stage) -> None:
    # The join phase restarts again and again, unseen: the two joins come when its second time has just begun.
    a, b = await stage.members("a", "b", static=True, rebalance_ms=LONGER_MS)
    c = await stage.member("c", rebalance_ms=LONGER_MS)
    await stage.form(a, b, c)
    await c.leave()
    await passed(stage, LONGER_MS + SHORT_MS, a.heartbeat, b.heartbeat)
    await stage.describe()
    await stage.complete([a, b], [b.join(), a.join()])
    await stage.describe()
