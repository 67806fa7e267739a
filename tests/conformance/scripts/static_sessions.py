"""Scripts: the session of a static member that restarts (KIP-345)."""

import time

from tests.conformance.eras import SOME_STATIC
from tests.conformance.member import SHORT_MS
from tests.conformance.passing_time import passed
from tests.conformance.script import script
from tests.conformance.stage import Stage


@script("ST8", eras=SOME_STATIC)
async def a_new_process_first_has_the_session_of_the_old_one(stage: Stage) -> None:
    """It requested a longer one, and stays silent: the shorter one expires."""
    a, b = await stage.members("a", "b", static=True)
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    back = await stage.member("b again", "b")
    await back.join("")
    await stage.until(members=1, state="PreparingRebalance")
    await back.heartbeat()
    await a.heartbeat()
    await stage.rejoin(a)


@script("ST8, ST9", eras=SOME_STATIC)
async def a_new_process_then_has_a_session_of_its_own(stage: Stage) -> None:
    """After a request the longer one counts, and the old one's expiry has no effect."""
    a, b = await stage.members("a", "b", static=True)
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    back = await stage.member("b again", "b")
    await back.join("")
    await back.heartbeat()
    await passed(stage, 2 * SHORT_MS)
    await back.heartbeat()
    await a.heartbeat()
    await stage.describe()


@script("ST8, SE10", eras=SOME_STATIC)
async def a_shorter_session_counts_from_the_first_heartbeat_on(stage: Stage) -> None:
    a, _b = await stage.stable("a", "b", static=True)
    back = await stage.member("b again", "b", session_ms=SHORT_MS)
    await back.join("")
    await passed(stage, 2 * SHORT_MS)
    await stage.describe()
    start = time.monotonic()
    await back.heartbeat()
    await stage.until(members=1, state="PreparingRebalance")
    stage.note_waited(start, unit_ms=4 * SHORT_MS)
    await stage.rejoin(a)


@script("ST10, ST21, RB10", eras=SOME_STATIC)
async def a_restart_that_waits_for_longer_than_its_session(stage: Stage) -> None:
    a, b, c = await stage.members("a", "b", "c", static=True)
    b.session_ms = SHORT_MS
    await stage.form(a, b, c)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    old = b.join()
    await stage.heard()
    back = await stage.member("b again", "b", session_ms=SHORT_MS)
    new = back.join("")
    await old
    await passed(stage, 2 * SHORT_MS, c.heartbeat)
    await stage.complete([a, back, c], [c.join(), join, new])
    await back.heartbeat()
