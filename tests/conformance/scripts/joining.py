"""Scripts: how dynamic members join a group, and refusals."""

from tests.conformance.eras import NEWEST, ONE_STEP, TWO_STEPS
from tests.conformance.member import NOBODY, ORDERS, RANGE, RANGE_FIRST, ROUNDROBIN_FIRST
from tests.conformance.script import script
from tests.conformance.stage import Stage

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


@script("S17", eras=NEWEST)
async def metadata_that_cannot_be_read(stage: Stage) -> None:
    a = await stage.member("a", protocols=(("range", GARBAGE),), protocol_type="other")
    await stage.form(a)
    await stage.describe()


@script("R16, S17, OD5", eras=NEWEST)
async def a_subscription_that_cannot_be_read(stage: Stage) -> None:
    a = await stage.member("a", protocols=(("range", b"x" * 60),))
    join = await a.enter()
    await stage.until(members=1)
    later = await stage.member("later")
    other = stage.group("other")
    await later.join("", group_id=other)
    await later.join(group_id=other)  # its join phase began later, and has ended
    await stage.differs("R16: Kafka never ends the join phase", join, kafka=None, muster={"error_code": 0})
