"""Scripts: static members (KIP-345)."""

from tests.conformance.eras import SOME_STATIC, STATIC
from tests.conformance.member import NOBODY, ORDERS, OTHER, RANGE, RANGE_FIRST, ROUNDROBIN_FIRST, SHORT_MS
from tests.conformance.script import script
from tests.conformance.stage import Stage


@script("ST1, J11, M1, DG2", eras=STATIC)
async def static_members_form_a_group(stage: Stage) -> None:
    members = await stage.stable("a", "b", "c", static=True)
    await stage.describe()
    for member in members:
        await member.heartbeat()
        await member.commit({(ORDERS, 0): 5})


@script("ST11, ST13, ST15, MX5", eras=STATIC)
async def a_follower_restarts(stage: Stage) -> None:
    a, _b = await stage.stable("a", "b", static=True)
    back = await stage.member("b again", "b")
    await back.join("")
    await back.sync()
    await back.heartbeat()
    await a.heartbeat()
    await stage.describe()


@script("ST11, ST14, ST15, CB8", eras=STATIC)
async def the_leader_restarts(stage: Stage) -> None:
    _a, b = await stage.stable("a", "b", static=True)
    back = await stage.member("a again", "a")
    await back.join("")
    await back.sync({})
    await back.heartbeat()
    await b.heartbeat()
    await stage.describe()
    join = back.join()
    await stage.until(state="PreparingRebalance")
    await stage.complete([back, b], [b.join(), join])


@script("ST29", eras=STATIC)
async def all_restart_one_after_another(stage: Stage) -> None:
    await stage.stable("a", "b", "c", static=True)
    for name in ("a", "b", "c"):
        back = await stage.member(f"{name} again", name)
        await back.join("")
        await back.sync({})
        await back.heartbeat()
    await stage.describe()


@script("ST25, M8, M4, ST3", eras=STATIC)
async def the_process_that_was_replaced_is_fenced(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True)
    back = await stage.member("b again", "b")
    await back.join("")
    await b.heartbeat()
    await b.sync()
    await b.commit()
    await b.join()
    await b.leave()
    await b.heartbeat(group_instance_id=None)
    await b.sync(group_instance_id=None)
    await b.commit(group_instance_id=None)
    await b.leave((b.member_id, None))
    await a.heartbeat()
    await back.heartbeat()


@script("ST26", eras=STATIC)
async def two_processes_with_one_instance_id(stage: Stage) -> None:
    await stage.stable("a", static=True)
    for number in range(2):
        for who in ("x", "y"):
            process = await stage.member(f"{who}{number}", "a")
            await process.join("")
            await process.heartbeat()
    await stage.describe()


@script("ST12, QK12", eras=STATIC)
async def a_restart_with_another_subscription(stage: Stage) -> None:
    a, _b = await stage.stable("a", "b", static=True)
    back = await stage.member("b again", "b", protocols=OTHER)
    await back.join("")
    await back.sync()
    await a.heartbeat()
    await stage.describe()


@script("QK12, J15", eras=STATIC)
async def a_restart_from_another_client(stage: Stage) -> None:
    (_a,) = await stage.stable("a", static=True)
    back = await stage.member("a again", "a", client_id="moved")
    await back.join("")
    (member,) = (await stage.until())["members"]
    stage.expect_difference(
        "QK12: Kafka shows the first process for ever", kafka="client", muster="moved", got=member["client_id"]
    )


@script("ST19", eras=STATIC)
async def a_restart_that_changes_the_protocol(stage: Stage) -> None:
    (a,) = await stage.stable("a", static=True, protocols=RANGE_FIRST)
    back = await stage.member("a again", "a", protocols=ROUNDROBIN_FIRST)
    await stage.complete([back], [back.join("")])
    await a.heartbeat()
    await stage.describe()


@script("ST11, ST19", eras=STATIC)
async def a_restart_with_more_protocols(stage: Stage) -> None:
    a, _b = await stage.stable("a", "b", static=True)
    back = await stage.member("b again", "b", protocols=RANGE_FIRST)
    await back.join("")
    await a.heartbeat()
    await stage.describe()


@script("ST21, ST7, JP7", eras=STATIC)
async def a_restart_in_the_join_phase(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True)
    parked = a.join()
    await stage.until(state="PreparingRebalance")
    back = await stage.member("a again", "a")
    join = back.join("")
    await parked
    await a.heartbeat()
    await stage.complete([back, b], [b.join(), join])
    await stage.describe()


@script("ST20, JC5, ST7", eras=STATIC)
async def a_restart_in_the_sync_phase(stage: Stage) -> None:
    a, b, c = await stage.stable("a", "b", "c", static=True)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), c.join(), join]:
        await each
    old, other = b.sync(), c.sync()
    await stage.heard()
    back = await stage.member("b again", "b")
    join = back.join("")
    await old
    await other
    await stage.complete([a, back, c], [a.join(), c.join(), join])


@script("ST20, RB13", eras=STATIC)
async def the_leader_restarts_in_the_sync_phase(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    back = await stage.member("a again", "a")
    join = back.join("")
    await stage.until(state="PreparingRebalance")
    await a.sync()
    await stage.complete([back, b], [b.join(), join])


@script("ST27, QK1", eras=SOME_STATIC)
async def a_follower_restarts_before_it_has_synced(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True, rebalance_ms=SHORT_MS)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    await a.sync()
    back = await stage.member("b again", "b", rebalance_ms=SHORT_MS)
    await back.join("")
    await back.sync()
    later = await stage.member("later", rebalance_ms=SHORT_MS)
    other = stage.group("other")
    await later.join("", group_id=other)
    await later.join(group_id=other)
    await stage.until(group_id=other, state="Empty")  # its sync phase ended after that of the group
    await stage.differs(
        "QK1: Kafka waits for the sync of the process that was replaced",
        a.heartbeat(),
        kafka={"error_code": 27},
        muster={"error_code": 0},
    )


@script("ST23, ST24", eras=STATIC)
async def static_members_rejoin_with_their_ids(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True)
    await b.join()
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await stage.complete([a, b], [b.join(), join])
    join = b.join(protocols=OTHER)
    await stage.until(state="PreparingRebalance")
    await stage.complete([a, b], [a.join(), join])


@script("ST2, ST3, M4, M5, M6", eras=STATIC)
async def instance_ids_that_do_not_fit(stage: Stage) -> None:
    a, _b = await stage.stable("a", "b", static=True)
    await a.join(instance="b")
    await a.join(instance="nobody")
    await a.heartbeat(group_instance_id="b")
    await a.heartbeat(group_instance_id="nobody")
    await a.heartbeat(group_instance_id=None)
    await a.sync(group_instance_id="b")
    await a.sync(group_instance_id=None)
    await a.commit(group_instance_id="nobody")
    await a.commit(group_instance_id="b")
    await a.commit(group_instance_id=None)
    await a.join(NOBODY, instance="a")
    await stage.describe()


@script("ST4, J1", eras=STATIC)
async def a_static_member_of_an_unknown_group(stage: Stage) -> None:
    a = await stage.member("a", "a")
    await a.join(NOBODY)
    await a.heartbeat(member_id=NOBODY, generation_id=1)
    await a.leave(("", "a"), (NOBODY, "a"))
    await stage.describe()


@script("P3", eras=STATIC)
async def an_id_that_was_handed_out_becomes_static(stage: Stage) -> None:
    a = await stage.member("a")
    await a.join("")
    await a.join(instance="a")
    await a.join(instance=None)


@script("K8", eras=STATIC)
async def an_empty_instance_id_is_one(stage: Stage) -> None:
    a = await stage.member("a", "")
    await stage.complete([a], [a.join("")])
    await stage.describe()
    await a.leave(("", ""))


@script("L3, L4, L6, L13, CH3", eras=STATIC)
async def an_administrator_removes_members(stage: Stage) -> None:
    a, b, c, d = await stage.stable("a", "b", "c", "d", static=True)
    await d.leave(("", "a"), ("", "nobody"), ("", "a"), (c.member_id, "b"), (NOBODY, None), (b.member_id, None))
    await a.heartbeat()
    await b.heartbeat()
    await d.heartbeat()
    await stage.describe()
    await d.leave(("", "c"), ("", "d"))
    await stage.describe()


@script("L8, L3", eras=STATIC)
async def an_administrator_removes_a_member_with_a_parked_join(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await b.leave(("", "a"))
    await join
    await stage.rejoin(b)


@script("SE10, ST29", eras=SOME_STATIC)
async def a_static_session_expires(stage: Stage) -> None:
    a, b = await stage.members("a", "b", static=True)
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    await stage.until(members=1, state="PreparingRebalance")
    await b.heartbeat()
    await b.join()
    await stage.rejoin(a)
    back = await stage.member("b again", "b")
    join = back.join("")
    await stage.until(members=2, state="PreparingRebalance")
    await stage.complete([a, back], [a.join(), join])
    await stage.describe()


@script("RB12, ST28, J16", eras=SOME_STATIC)
async def an_absent_static_member_is_assigned_to(stage: Stage) -> None:
    a, b, c = await stage.stable("a", "b", "c", static=True, rebalance_ms=SHORT_MS)
    await stage.complete([a], [a.join()])
    await stage.describe()
    await b.heartbeat()
    await b.heartbeat(generation_id=a.generation_id)
    await b.sync(generation_id=a.generation_id)
    await stage.until(members=2, state="PreparingRebalance")
    await c.heartbeat()
    await b.heartbeat()


@script("RB13, ST28", eras=SOME_STATIC)
async def an_absent_static_leader_loses_the_lead(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True, rebalance_ms=SHORT_MS)
    await stage.complete([b], [b.join(protocols=OTHER)])
    await stage.describe()
    await a.heartbeat()


@script("RB7, RB14", eras=SOME_STATIC)
async def a_join_phase_without_joins_continues(stage: Stage) -> None:
    a, b = await stage.members("a", "b", static=True)
    c = await stage.member("c", rebalance_ms=SHORT_MS)
    a.rebalance_ms = b.rebalance_ms = SHORT_MS
    await stage.form(a, b, c)
    await c.leave()
    await stage.until(members=2, state="PreparingRebalance")
    d = await stage.member("d", session_ms=SHORT_MS, rebalance_ms=SHORT_MS)
    await d.join("")
    await stage.until(state="PreparingRebalance", members=2)
    await a.heartbeat()
    await b.heartbeat()


@script("ST1, RB9", eras=STATIC)
async def static_and_dynamic_members_in_one_group(stage: Stage) -> None:
    a = await stage.member("a", "a")
    b = await stage.member("b")
    await stage.form(a, b)
    back = await stage.member("a again", "a")
    await back.join("")
    await back.sync({})
    await b.heartbeat()
    await b.leave()
    await back.heartbeat()
    await stage.complete([back], [back.join()])
    await stage.describe()


@script("S8, JE2", eras=STATIC)
async def a_static_member_comes_back_to_an_empty_group(stage: Stage) -> None:
    (a,) = await stage.stable("a", static=True)
    await a.leave(("", "a"))
    await stage.until(state="Empty")
    back = await stage.member("a again", "a", protocols=RANGE)
    await stage.form(back)
    await a.heartbeat()
