"""Scripts: how dynamic members join, and how a group of them rebalances."""

from tests.conformance.eras import NEWEST, ONE_STEP, TWO_STEPS
from tests.conformance.member import CLICKS, NOBODY, ORDERS, RANGE, subscription
from tests.conformance.script import script
from tests.conformance.stage import Stage

OTHER = (("range", subscription(CLICKS)),)
RANGE_FIRST = (("range", subscription(ORDERS)), ("roundrobin", subscription(ORDERS)))
ROUNDROBIN_FIRST = tuple(reversed(RANGE_FIRST))
GARBAGE = bytes(range(0x80, 0xBC))


@script("JE1, JE2, P1, SG9, SG11, I3")
async def one_member_joins_alone(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await stage.describe()
    await a.heartbeat()


@script("S12, J16, SG8, SG11, DG2, RB3")
async def three_members_form_a_group(stage: Stage) -> None:
    members = await stage.stable("a", "b", "c")
    await stage.describe()
    await stage.list()
    for member in members:
        await member.heartbeat()


@script("P1, P2, M7, DG6", eras=TWO_STEPS)
async def an_id_that_was_handed_out_is_no_member_yet(stage: Stage) -> None:
    a, again = await stage.members("a", "again")
    await a.join("")
    await again.join("")
    await stage.describe()
    await a.heartbeat()
    await a.sync()
    await a.commit(generation_id_or_member_epoch=0)
    join = again.join()
    await stage.until(members=1)
    await stage.complete([again], [join])


@script("J10", eras=ONE_STEP)
async def old_clients_learn_their_id_from_the_one_answer(stage: Stage) -> None:
    a = await stage.member("a")
    await stage.complete([a], [a.join("")])
    b = await stage.member("b")
    join = b.join("")
    await stage.until(members=2, state="PreparingRebalance")
    await stage.complete([a, b], [a.join(), join])


@script("J1, M7")
async def an_unknown_id_in_an_unknown_group(stage: Stage) -> None:
    a = await stage.member("a")
    await a.join(NOBODY)
    await stage.describe()
    await a.heartbeat(member_id=NOBODY, generation_id=1)
    await a.sync(member_id=NOBODY, generation_id=1)
    await a.leave((NOBODY, None))
    await stage.describe()


@script("JS7, M4, SG4, H2, L6, OC7")
async def an_unknown_id_in_a_stable_group(stage: Stage) -> None:
    await stage.stable("a")
    b = await stage.member("b")
    await b.join(NOBODY)
    await b.heartbeat(member_id=NOBODY, generation_id=1)
    await b.sync(member_id=NOBODY, generation_id=1)
    await b.commit(member_id=NOBODY, generation_id_or_member_epoch=1)
    await b.leave((NOBODY, None))
    await stage.describe()


@script("JE3, MX3, MX6, MX7, MX8")
async def an_empty_group_has_no_members(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await a.leave()
    await stage.until(state="Empty")
    await a.join()
    await a.heartbeat()
    await a.sync()
    await a.leave()
    await stage.describe()


@script("G17")
async def an_empty_group_id(stage: Stage) -> None:
    a = await stage.member("a")
    await a.join("", group_id="")
    await a.join(NOBODY, group_id="")
    await a.heartbeat(group_id="", generation_id=1)
    await a.sync(group_id="")
    await a.leave(group_id="")
    await stage.delete_offsets((ORDERS, 0), group_id="")


@script("K1")
async def a_session_timeout_out_of_range(stage: Stage) -> None:
    a = await stage.member("a")
    for session_ms in (-1, 0, 99, 1_800_001):
        await a.join("", session_ms=session_ms)
    await a.join(NOBODY, session_ms=99)
    await stage.describe()


@script("J7, J8, J2")
async def nothing_to_agree_on(stage: Stage) -> None:
    a = await stage.member("a")
    await a.join("", protocol_type="", protocols=RANGE)
    await a.join("", protocol_type="consumer", protocols=())
    await stage.describe()
    await a.join(NOBODY)


@script("J7, S9, P4")
async def no_protocol_in_common(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    b = await stage.member("b")
    await b.join("", protocols=(("sticky", b""),))
    await b.join("", protocols=RANGE, protocol_type="connect")
    await a.join(protocols=RANGE, protocol_type="connect")
    await a.heartbeat()
    await stage.describe()


@script("JP5")
async def no_protocol_in_common_in_the_join_phase(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", protocols=RANGE_FIRST)
    join = a.join()
    await stage.until(state="PreparingRebalance")
    await b.join(protocols=(("sticky", b""),))
    await stage.complete([a, b], [b.join(protocols=RANGE_FIRST), join])
    await stage.describe()


@script("S10")
async def most_votes_choose_the_protocol(stage: Stage) -> None:
    a = await stage.member("a", protocols=RANGE_FIRST)
    b, c = await stage.members("b", "c", protocols=ROUNDROBIN_FIRST)
    await stage.form(a, b, c)
    await stage.describe()


@script("S9, S10")
async def a_protocol_that_one_lacks_is_not_chosen(stage: Stage) -> None:
    a, b = await stage.members("a", "b", protocols=ROUNDROBIN_FIRST)
    c = await stage.member("c")
    await stage.form(a, b, c)
    await stage.describe()


@script("S8, S6, DG4")
async def an_empty_group_comes_back_as_another_type(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await a.leave()
    await stage.until(state="Empty")
    await stage.describe()
    b = await stage.member("b", protocol_type="connect", protocols=(("compatible", b"\x01\x02"),))
    await stage.form(b)
    await stage.describe()
    await stage.list()


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
async def what_may_be_asked_in_the_join_phase(stage: Stage) -> None:
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
async def what_may_be_asked_in_the_sync_phase(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
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
async def who_is_forgotten_by_the_leader_gets_zero_bytes(stage: Stage) -> None:
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


@script("S17", eras=NEWEST)
async def metadata_that_cannot_be_read(stage: Stage) -> None:
    a = await stage.member("a", protocols=(("range", GARBAGE),), protocol_type="other")
    await stage.form(a)
    await stage.describe()
