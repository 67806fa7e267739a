"""Scripts: full groups (KIP-389); this pair of servers allows two members."""

from tests.conformance.eras import SOME, SOME_STATIC, SOME_TWO_STEPS
from tests.conformance.member import NOBODY, OTHER, SHORT_MS
from tests.conformance.script import script
from tests.conformance.stage import Stage


@script("X1, X4, J6", eras=SOME, setup="narrow")
async def a_full_group_refuses_new_members(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    c = await stage.member("c")
    await c.join("")
    await c.join(NOBODY)
    await c.join("", protocols=(("sticky", b""),))
    await a.heartbeat()
    await b.heartbeat()
    await stage.describe()


@script("X2, X4", eras=SOME, setup="narrow")
async def a_place_that_is_free_again_is_taken(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    c = await stage.member("c")
    await c.join("")
    await a.leave()
    await stage.until(members=1, state="PreparingRebalance")
    c.protocols = b.protocols
    join = await c.enter()
    await stage.until(members=2, state="PreparingRebalance")
    await stage.complete([b, c], [b.join(), join])
    await stage.describe()


@script("X3, X4", eras=SOME, setup="narrow")
async def members_of_a_full_group_come_back(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    await b.join()
    await stage.rejoin_all(a, b)
    join = b.join(protocols=OTHER)
    await stage.until(state="PreparingRebalance")
    again = await stage.same(b, "b again")
    second = again.join()
    await stage.heard()
    stage.never_answered(join)
    await stage.complete([a, again], [a.join(), second])
    await stage.describe()


@script("X1, X5", eras=SOME_TWO_STEPS, setup="narrow")
async def more_ids_than_places_are_handed_out(stage: Stage) -> None:
    a, b, c = await stage.members("a", "b", "c")
    for member in (a, b, c):
        await member.join("")
    joins = [a.join()]
    await stage.until(members=1)
    joins.append(b.join())
    await stage.until(members=2)
    await c.join()
    await stage.complete([a, b], joins)
    await c.join()
    await a.leave()
    await stage.until(members=1, state="PreparingRebalance")
    await c.join()
    await stage.describe()


@script("X1, X3, X7, SE9", eras=SOME, setup="narrow")
async def the_last_to_rejoin_a_full_group_is_refused(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", rebalance_ms=SHORT_MS)
    c = await stage.member("c")
    joins = [a.join()]
    await stage.until(state="PreparingRebalance")
    joins.append(await c.enter())
    await stage.until(members=3)
    await b.join()
    await b.heartbeat()
    await stage.complete([a, c], joins)
    await stage.describe()


@script("X4, J11", eras=SOME_STATIC, setup="narrow")
async def a_full_group_of_static_members(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True)
    c = await stage.member("c", "c")
    await c.join("")
    await b.join()
    await stage.rejoin_all(a, b)
    await a.leave(("", "b"))
    await stage.until(members=1, state="PreparingRebalance")
    join = c.join("")
    await stage.until(members=2)
    await stage.complete([a, c], [a.join(), join])
    back = await stage.member("b again", "b")
    await back.join("")
    await stage.describe()


@script("X3, ST21", eras=SOME_STATIC, setup="narrow")
async def a_restart_in_the_join_phase_of_a_full_group(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    back = await stage.member("b again", "b")
    await stage.complete([a, back], [join, back.join("")])
    await b.heartbeat()
    await stage.describe()


@script("X6, QK4", eras=SOME_STATIC, setup="narrow")
async def a_restart_in_a_full_group(stage: Stage) -> None:
    a, _b = await stage.stable("a", "b", static=True)
    back = await stage.member("b again", "b")
    await stage.differs(
        "QK4: Kafka refuses a member its own place, which kills the client",
        back.join(""),
        kafka={"error_code": 81, "member_id": ""},
        muster={"error_code": 0},
    )
    await a.heartbeat()
