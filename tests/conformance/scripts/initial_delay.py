"""Scripts: the initial rebalance delay (KIP-134): the first generation's members, and how long it took."""

import time

from tests.conformance.eras import NEWEST, SOME, SOME_STATIC, SOME_TWO_STEPS
from tests.conformance.script import script
from tests.conformance.servers import INITIAL_DELAY_MS
from tests.conformance.stage import Stage

SHORT_MS = INITIAL_DELAY_MS // 5


@script("I1, I3, I4", eras=SOME, setup="narrow")
async def one_member_waits_for_one_delay(stage: Stage) -> None:
    a = await stage.member("a")
    start = time.monotonic()
    join = await a.enter()
    await stage.until(members=1, state="PreparingRebalance")
    await stage.describe()
    await stage.list()
    await join
    stage.note_waited(start, unit_ms=INITIAL_DELAY_MS)
    await a.sync()


@script("I2, I7, JP2, JP3", eras=SOME, setup="narrow")
async def a_join_within_the_delay_extends_it(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    start = time.monotonic()
    joins = [await a.enter()]
    await stage.until(members=1)
    joins.append(await b.enter())
    await stage.until(members=2)
    await stage.describe()
    await stage.complete([a, b], joins)
    stage.note_waited(start, unit_ms=INITIAL_DELAY_MS)
    await stage.describe()


@script("I1, I3, W2", eras=(0, *SOME), setup="narrow")
async def the_delay_is_not_extended_over_the_rebalance_timeout(stage: Stage) -> None:
    """In v0 the session timeout is the rebalance timeout as well (known bug R3)."""
    a, b = await stage.members("a", "b", session_ms=INITIAL_DELAY_MS, rebalance_ms=INITIAL_DELAY_MS)
    start = time.monotonic()
    joins = [await a.enter()]
    await stage.until(members=1)
    joins.append(await b.enter())
    await stage.until(members=2)
    for join in joins:
        await join
    stage.note_waited(start, unit_ms=INITIAL_DELAY_MS)


@script("I5", eras=SOME, setup="narrow")
async def a_group_that_was_empty_waits_again(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await a.leave()
    await stage.until(state="Empty")
    b, c = await stage.members("b", "c")
    start = time.monotonic()
    joins = [await b.enter()]
    await stage.until(members=1)
    joins.append(await c.enter())
    await stage.until(members=2)
    await stage.complete([b, c], joins)
    stage.note_waited(start, unit_ms=INITIAL_DELAY_MS)


@script("I6, QK5", eras=NEWEST, setup="narrow")
async def a_join_too_late_to_extend_the_delay(stage: Stage) -> None:
    a, b = await stage.members("a", "b", rebalance_ms=INITIAL_DELAY_MS)
    joins = [await a.enter()]
    await stage.until(members=1)
    joins.append(await b.enter())
    await stage.until(members=2)
    await stage.complete([a, b], joins)
    await a.leave()
    await b.leave()
    await stage.until(state="Empty")
    c = await stage.member("c")
    start = time.monotonic()
    await stage.complete([c], [await c.enter()])
    stage.expect_difference(
        "QK5: in Kafka the flag of a newcomer outlives its rebalance, and extends the next initial one",
        kafka=2,
        muster=1,
        got=stage.waited(start, unit_ms=INITIAL_DELAY_MS),
    )


@script("I9, P7", eras=SOME_TWO_STEPS, setup="narrow")
async def an_id_that_was_handed_out_does_not_extend_the_delay(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    start = time.monotonic()
    join = await a.enter()
    await stage.until(members=1)
    await b.join("")
    await join
    stage.note_waited(start, unit_ms=INITIAL_DELAY_MS)
    await a.sync()
    join = b.join()
    await stage.until(members=2, state="PreparingRebalance")
    await stage.complete([a, b], [a.join(), join])


@script("P5, I8", eras=SOME_TWO_STEPS, setup="narrow")
async def an_id_that_expires_ends_the_delay(stage: Stage) -> None:
    a = await stage.member("a")
    b = await stage.member("b", session_ms=SHORT_MS)
    start = time.monotonic()
    join = await a.enter()
    await stage.until(members=1)
    await b.join("")
    await join
    stage.note_waited(start, unit_ms=INITIAL_DELAY_MS)
    await b.join()


@script("I8, L8", eras=SOME_TWO_STEPS, setup="narrow")
async def leaving_does_not_end_the_delay(stage: Stage) -> None:
    a, b, other = await stage.members("a", "b", "other")
    start = time.monotonic()
    joins = [await a.enter()]
    await stage.until(members=1)
    joins.append(await b.enter())
    await stage.until(members=2)
    await other.leave((b.member_id, None))
    for join in joins:
        await join
    stage.note_waited(start, unit_ms=INITIAL_DELAY_MS)
    await stage.describe()


@script("I8, RB8, L11", eras=SOME_TWO_STEPS, setup="narrow")
async def all_leave_within_the_delay(stage: Stage) -> None:
    a, other = await stage.members("a", "other")
    start = time.monotonic()
    join = await a.enter()
    await stage.until(members=1)
    await other.leave((a.member_id, None))
    await join
    await stage.describe()
    await stage.until(state="Empty")
    stage.note_waited(start, unit_ms=INITIAL_DELAY_MS)
    await stage.describe()
    await stage.form(other)


@script("ST21, ST7, I4", eras=SOME_STATIC, setup="narrow")
async def a_restart_within_the_delay(stage: Stage) -> None:
    a = await stage.member("a", "a")
    start = time.monotonic()
    parked = a.join("")
    await stage.until(members=1)
    back = await stage.member("a again", "a")
    join = back.join("")
    await parked
    await stage.describe()
    await stage.complete([back], [join])
    stage.note_waited(start, unit_ms=INITIAL_DELAY_MS)
    await stage.describe()
