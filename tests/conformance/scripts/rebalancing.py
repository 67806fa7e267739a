"""Scripts: rebalances of dynamic members: the join phase, the sync phase, and requests during them."""

from tests.conformance.eras import NEWEST, TWO_STEPS
from tests.conformance.member import NOBODY, ORDERS, OTHER, RANGE_FIRST, ROUNDROBIN_FIRST
from tests.conformance.script import script
from tests.conformance.stage import Stage


@script("JS2, J14")
async def a_follower_rejoins_unchanged(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    await b.join(session_ms=20_000)
    await b.heartbeat()
    await a.heartbeat()
    await stage.describe()


@script("JS3, S11")
async def a_follower_rejoins_with_another_subscription(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = b.join(protocols=OTHER)
    await stage.until(state="PreparingRebalance")
    await a.heartbeat()
    await stage.complete([a, b], [a.join(), join])
    await stage.describe()


@script("JS3, S11")
async def a_follower_rejoins_with_its_protocols_in_another_order(stage: Stage) -> None:
    a, b, c = await stage.stable("a", "b", "c", protocols=RANGE_FIRST)
    join = c.join(protocols=ROUNDROBIN_FIRST)
    await stage.until(state="PreparingRebalance")
    await stage.complete([a, b, c], [a.join(), b.join(), join])


@script("JS1, CG3")
async def the_leader_rejoins_unchanged(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await b.heartbeat()
    await stage.complete([a, b], [join, b.join()])


@script("RB3")
async def a_leader_alone_rejoins(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await stage.rejoin(a)
    await stage.rejoin(a)
    await stage.describe()


@script("H4, SG7, OC11, OF2, DG3, H8")
async def requests_allowed_in_the_join_phase(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await b.heartbeat()
    await b.heartbeat(generation_id=b.generation_id + 1)
    await b.sync()
    await b.sync(generation_id=b.generation_id + 1)
    await b.commit()
    await b.commit(generation_id_or_member_epoch=b.generation_id + 1)
    await b.heartbeat(member_id=a.member_id)
    await stage.fetch_offsets((ORDERS, 0))
    await stage.describe()
    await stage.list()
    await stage.delete()
    await stage.complete([a, b], [b.join(), join])


@script("H5, OC10, CB15, DG3")
async def requests_allowed_in_the_sync_phase(stage: Stage) -> None:
    a, _b = await stage.members("a", "b")
    await (await a.enter())
    await a.heartbeat()
    await a.heartbeat(generation_id=0)
    await a.commit()
    await a.commit(generation_id_or_member_epoch=0)
    await a.commit(member_id=NOBODY)
    await a.commit_as_nobody()
    await stage.fetch_offsets((ORDERS, 0))
    await stage.describe()
    await stage.list()
    await stage.delete()
    await a.sync(generation_id=0)
    await a.sync()
    await a.commit()


@script("SG8, SG15")
async def followers_ask_before_and_after_the_leader(stage: Stage) -> None:
    a, b, c = await stage.members("a", "b", "c")
    await stage.form(a)
    joins = []
    for member in (b, c):
        joins.append(await member.enter())
        await stage.until(members=1 + len(joins), state="PreparingRebalance")
    for join in [a.join(), *joins]:
        await join
    early = b.sync()
    await a.sync({a.member_id: b"to a", b.member_id: b"to b", c.member_id: b"to c"})
    await early
    await c.sync()
    await c.sync()
    await a.sync({a.member_id: b"ignored", b.member_id: b"ignored"})
    await b.sync({b.member_id: b"ignored"})
    await stage.describe()


@script("SG9, SG14")
async def a_member_the_leader_left_out_gets_zero_bytes(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    sync = b.sync()
    await a.sync({a.member_id: b"to a", NOBODY: b"to nobody"})
    await sync
    await stage.describe()


@script("SG4, G2, SG5, W14", eras=range(7, 10))
async def a_sync_with_another_protocol(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await a.sync(protocol_type="connect")
    await a.sync(protocol_name="sticky")
    await a.sync(protocol_type=None)
    await a.sync(protocol_name=None)
    await a.sync(protocol_name="sticky", generation_id=9)
    await a.sync(protocol_name="sticky", member_id=NOBODY)
    await a.sync()


@script("H2, SG4, OC7")
async def another_generation(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    for generation_id in (-1, 0, 2):
        await a.heartbeat(generation_id=generation_id)
        await a.sync(generation_id=generation_id)
        await a.commit(generation_id_or_member_epoch=generation_id)


@script("JC1")
async def a_lost_join_answer_is_given_again(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    await b.join()
    await a.join()
    for sync in [a.sync(), b.sync()]:
        await sync


@script("JC2, RB1, SG17")
async def a_changed_rejoin_in_the_sync_phase_sends_all_back(stage: Stage) -> None:
    a, b, c = await stage.stable("a", "b", "c")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), c.join(), join]:
        await each
    sync = b.sync()
    await stage.heard()
    join = c.join(protocols=OTHER)
    await sync
    await stage.describe()
    await stage.complete([a, b, c], [a.join(), b.join(), join])


@script("JC3, JC4")
async def a_new_member_in_the_sync_phase_sends_all_back(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    sync = b.sync()
    await stage.heard()
    c = await stage.member("c")
    join = await c.enter()
    await sync
    await stage.complete([a, b, c], [a.join(), b.join(), join])


@script("JP1, P7, S15", eras=TWO_STEPS)
async def an_id_that_was_handed_out_holds_the_join_phase_up(stage: Stage) -> None:
    a, b, c = await stage.members("a", "b", "c")
    await stage.form(a, b)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await c.join("")
    other = b.join()
    await stage.describe()
    await stage.complete([a, b, c], [c.join(), join, other])


@script("J13, QK3")
async def a_join_sent_again_takes_the_place_of_the_first(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    first = a.join()
    await stage.until(state="PreparingRebalance")
    again = await stage.same(a, "a again")
    second = again.join()
    await stage.heard()
    other = b.join()
    stage.never_answered(first)
    await stage.complete([again, b], [second, other])


@script("SG17, QK3")
async def a_sync_sent_again_takes_the_place_of_the_first(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    first = b.sync()
    await stage.heard()
    again = await stage.same(b, "b again")
    second = again.sync()
    await stage.heard()
    await a.sync()
    await second
    stage.never_answered(first)


@script("CC6")
async def a_connection_that_is_closed_takes_no_member_along(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    b.hang_up()
    back = await stage.same(b, "b again")
    await back.heartbeat()
    await a.heartbeat()
    await stage.describe()


@script("CC5, H2")
async def requests_behind_a_parked_join_wait_for_it(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    behind = [a.heartbeat(), a.commit(), a.sync()]
    await stage.until(state="PreparingRebalance")
    await stage.heard()
    assert not any(reply.is_answered for reply in behind)
    await stage.complete([a, b], [b.join(), join, *behind])


@script("J15", eras=NEWEST)
async def a_rejoin_from_another_client(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    moved = await stage.same(a, "a moved", client_id="moved")
    await stage.rejoin(moved)
    (member,) = (await stage.until())["members"]
    stage.expect_difference(
        "J15: Kafka shows the client that joined first for ever",
        kafka="client",
        muster="moved",
        got=member["client_id"],
    )


@script("SG10")
async def a_follower_assigns_nothing(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    early = b.sync({a.member_id: b"of b", b.member_id: b"of b"})
    await stage.heard()
    await stage.describe()
    await a.sync({a.member_id: b"of a", b.member_id: b"of a"})
    await early
    await stage.describe()


@script("RE13, SG13", eras=NEWEST)
async def an_assignment_of_two_megabytes(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    early = b.sync()
    await stage.heard()
    late = a.sync({a.member_id: bytes(2 << 20), b.member_id: b"to b"})
    for who in (late, early):
        await stage.differs("RE13: 1 MiB in Kafka, 64 here", who, kafka={"error_code": -1}, muster={"error_code": 0})
    await stage.differs("SG13", b.heartbeat(), kafka={"error_code": 27}, muster={"error_code": 0})


@script("SG5, SG7, DV5", eras=range(8, 10), setup="narrow")
async def a_protocol_is_named_before_there_is_one(stage: Stage) -> None:
    """There is nothing yet that it could differ from."""
    a = await stage.member("a")
    join = await a.enter()
    await stage.until(members=1, state="PreparingRebalance")
    beside = await stage.same(a, "a beside")
    await beside.sync(generation_id=0, protocol_name="sticky")
    await beside.heartbeat(generation_id=0)
    await stage.complete([a], [join])
