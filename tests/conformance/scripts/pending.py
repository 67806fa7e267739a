"""Scripts: member ids that were handed out and not used yet (KIP-394)."""

import time
from typing import Final

from tests.conformance.eras import SOME_TWO_STEPS, TWO_STEPS
from tests.conformance.member import ORDERS, SHORT_MS, Protocols, subscription
from tests.conformance.script import script
from tests.conformance.stage import Stage

STICKY: Final[Protocols] = (("sticky", subscription(ORDERS)),)


@script("JS5, JS6, JE1", eras=TWO_STEPS)
async def an_id_is_handed_out_by_a_stable_group(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    b = await stage.member("b")
    await b.join("")
    await stage.describe()
    await a.heartbeat()
    join = b.join()
    await stage.until(members=2, state="PreparingRebalance")
    await a.heartbeat()
    await stage.complete([a, b], [a.join(), join])


@script("P4, S9", eras=TWO_STEPS)
async def a_pending_member_does_not_vote_on_the_protocol(stage: Stage) -> None:
    a, b = await stage.member("a"), await stage.member("b", protocols=STICKY)
    await a.join("")
    await stage.form(b)
    await a.join()
    await stage.describe()
    join = a.join(protocols=STICKY)
    await stage.until(members=2, state="PreparingRebalance")
    await stage.complete([b, a], [b.join(), join])


@script("P2, P6, S15", eras=TWO_STEPS)
async def every_join_without_an_id_is_given_one(stage: Stage) -> None:
    """Each of them is awaited."""
    a, b = await stage.stable("a", "b")
    c, again = await stage.members("c", "c again")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await c.join("")
    await again.join("")
    other = b.join()
    await stage.heard()
    await again.leave()
    await stage.complete([a, b, c], [c.join(), join, other])


@script("P7, JS6", eras=SOME_TWO_STEPS)
async def the_join_timer_does_not_wait_for_an_id(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", rebalance_ms=SHORT_MS)
    c = await stage.member("c")
    start = time.monotonic()
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await c.join("")
    joins = [join, b.join()]
    for each in joins:
        await each
    stage.note_waited(start, unit_ms=SHORT_MS)
    await stage.complete([a, b], [])
    join = c.join()
    await stage.until(members=3, state="PreparingRebalance")
    await stage.complete([a, b, c], [a.join(), b.join(), join])


@script("RB5, S14", eras=TWO_STEPS)
async def the_last_member_leaves_an_id_behind(stage: Stage) -> None:
    """Without members the rebalance timeout is 0: the group is Empty at once, and the id is valid all the same."""
    (a,) = await stage.stable("a")
    b = await stage.member("b")
    await b.join("")
    await a.leave()
    await stage.until(state="Empty")
    await stage.describe()
    await stage.complete([b], [b.join()])
    await stage.describe()
