"""Scripts: how dynamic members leave, by themselves or by time-outs."""

from tests.conformance.eras import SOME, SOME_STATIC, SOME_TWO_STEPS, STATIC, TWO_STEPS
from tests.conformance.member import NOBODY, ORDERS, SHORT_MS
from tests.conformance.script import script
from tests.conformance.stage import Stage


@script("L9, L11, W16")
async def a_follower_leaves(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    await b.leave()
    await b.heartbeat()
    await a.heartbeat()
    await stage.rejoin(a)
    await stage.describe()
    await a.leave()
    await stage.describe()
    await stage.list()


@script("S12, RB13")
async def the_leader_leaves(stage: Stage) -> None:
    a, b, c = await stage.stable("a", "b", "c")
    await a.leave()
    await stage.until(members=2, state="PreparingRebalance")
    joins = [await join.quietly() for join in [b.join(), c.join()]]
    leader, follower = (b, c) if joins[0]["leader"] == b.member_id else (c, b)
    stage.rename(leader=leader, follower=follower)
    syncs = [leader.sync(), follower.sync()]
    for sync in syncs:
        await sync
    await stage.describe()


@script("L9, RB9")
async def leaving_ends_a_join_phase_that_waits_for_the_leaver(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await b.leave()
    await stage.complete([a], [join])


@script("L8")
async def a_leaver_with_a_parked_join(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await b.leave((a.member_id, None))
    await join
    await stage.describe()


@script("SG18, QK2")
async def a_leaver_with_a_parked_sync(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    sync = b.sync()
    await stage.heard()
    await a.leave((b.member_id, None))
    await stage.differs("QK2: Kafka never answers it", sync, kafka=None, muster={"error_code": 25})
    await stage.rejoin(a)


@script("G29, L12, W16")
async def an_unknown_member_leaves(stage: Stage) -> None:
    a = await stage.member("a")
    await a.leave((NOBODY, None))
    await stage.describe()
    await stage.form(a)
    await a.leave((NOBODY, None))
    await a.leave(("", None))
    await a.heartbeat()


@script("L2, L13, L14", eras=STATIC)
async def a_batch_of_leavers(stage: Stage) -> None:
    a, b, c, d = await stage.stable("a", "b", "c", "d")
    await a.leave_nobody()
    await a.leave(b.me, (NOBODY, None), c.me, b.me, ("", None))
    await a.heartbeat()
    await stage.rejoin_all(a, d)
    await stage.describe()


@script("P6, L5", eras=TWO_STEPS)
async def an_id_that_was_handed_out_leaves(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    b = await stage.member("b")
    await b.join("")
    await b.leave()
    await b.join()
    await a.heartbeat()


@script("P6, JP1", eras=TWO_STEPS)
async def an_id_that_was_handed_out_leaves_in_the_join_phase(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    c = await stage.member("c")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await c.join("")
    other = b.join()
    await stage.heard()
    await c.leave()
    await stage.complete([a, b], [join, other])


@script("P5", eras=SOME_TWO_STEPS)
async def an_id_that_was_handed_out_expires(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    c = await stage.member("c", session_ms=SHORT_MS)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await c.join("")
    await stage.complete([a, b], [b.join(), join])
    await c.join()


@script("SE6, SE9", eras=SOME)
async def a_session_expires(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    await stage.until(members=1, state="PreparingRebalance")
    await b.heartbeat()
    await b.commit()
    await b.sync()
    await a.heartbeat()
    await stage.rejoin(a)
    await stage.describe()


@script("SE7", eras=SOME)
async def the_last_session_expires(stage: Stage) -> None:
    (a,) = await stage.stable("a", session_ms=SHORT_MS)
    await stage.until(state="Empty")
    await a.heartbeat()
    await stage.describe()
    await stage.list()


@script("SE8", eras=SOME)
async def a_session_expires_in_the_join_phase(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    await stage.complete([a], [a.join()])
    await b.join()


@script("SE6, RB1", eras=SOME)
async def a_leaders_session_expires_in_the_sync_phase(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    a.session_ms = SHORT_MS
    await stage.form(a, b)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    await b.sync()
    await a.heartbeat()
    await stage.rejoin(b)


@script("RB6, RB4", eras=SOME)
async def a_dynamic_member_that_does_not_rejoin_is_dropped(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", rebalance_ms=SHORT_MS)
    join = b.join(protocols=(("range", b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"),))
    answer = await join
    assert answer["leader"] == b.member_id
    await a.heartbeat()
    await a.join()
    await b.sync()
    await stage.describe()


@script("SX3", eras=SOME)
async def nobody_syncs(stage: Stage) -> None:
    a = await stage.member("a", rebalance_ms=SHORT_MS)
    await (await a.enter())
    await stage.until(state="Empty")
    await a.sync()
    await a.heartbeat()
    await stage.describe()


@script("SX5", eras=SOME)
async def a_follower_does_not_sync(stage: Stage) -> None:
    a, b = await stage.members("a", "b", rebalance_ms=SHORT_MS)
    await stage.form(a)
    join = await b.enter()
    await stage.until(members=2)
    for each in [a.join(), join]:
        await each
    await a.sync()
    await stage.until(members=1, state="PreparingRebalance")
    await b.heartbeat()
    await a.heartbeat()
    await stage.rejoin(a)


@script("SX4", eras=SOME)
async def the_leader_does_not_sync(stage: Stage) -> None:
    a, b = await stage.members("a", "b", rebalance_ms=SHORT_MS)
    await stage.form(a)
    join = await b.enter()
    await stage.until(members=2)
    for each in [a.join(), join]:
        await each
    await b.sync()
    await a.heartbeat()
    await stage.rejoin(b)
    await stage.describe()


@script("SE1, OC12")
async def a_commit_in_the_join_phase_keeps_a_member(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    await b.commit({(ORDERS, 1): 11})
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await b.commit({(ORDERS, 1): 12})
    await stage.complete([a, b], [b.join(), join])
    await stage.fetch_offsets((ORDERS, 1))


@script("L5, L6, L15", eras=STATIC)
async def leavers_with_ids_that_do_not_fit(stage: Stage) -> None:
    """A pending member may give any instance id, and the reason is optional."""
    a, b = await stage.stable("a", "b", static=True)
    await a.leave((a.member_id, "nobody"))
    await a.leave((b.member_id, "a"))
    await a.heartbeat()
    c = await stage.member("c")
    await c.join("")
    await c.leave((c.member_id, "b"))
    await c.join()
    await b.heartbeat()
    without_reason = {"member_id": b.member_id, "group_instance_id": "b", "reason": None}
    await b.ask("LeaveGroup", {}, group_id=stage.group_id, members=[without_reason])
    await stage.describe()


@script("L16, H7", eras=SOME_STATIC)
async def a_member_of_an_older_generation_leaves(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True, rebalance_ms=SHORT_MS)
    await stage.complete([a], [a.join()])
    await b.heartbeat()
    await b.leave()
    await a.heartbeat()
    await stage.describe()


@script("CE4, L9")
async def a_leaver_comes_back_on_the_same_connection(stage: Stage) -> None:
    """Its new join directly follows its leave."""
    a, b = await stage.stable("a", "b")
    leave = b.leave()
    b.member_id = ""
    join = await b.enter()
    await leave
    await stage.until(members=2, state="PreparingRebalance")
    await stage.complete([a, b], [a.join(), join])
    await stage.describe()


@script("L2, L9, DV4", eras=STATIC)
async def a_batch_of_leavers_and_an_unknown_member(stage: Stage) -> None:
    """One rebalance for all of them; invalid ids do not prevent it."""
    a, b, c = await stage.stable("a", "b", "c")
    d = await stage.member("d")
    await d.join("")
    await a.leave((d.member_id, None), (NOBODY, None), (b.member_id, None))
    await stage.complete([a, c], [a.join(), c.join()])
    await a.heartbeat()
    await stage.describe()
