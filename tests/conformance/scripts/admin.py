"""Scripts: administrators' requests about groups."""

import pytest

from tests.conformance.eras import NEWEST, STATIC
from tests.conformance.member import ORDERS
from tests.conformance.script import script
from tests.conformance.stage import Stage


@script("DG1")
async def an_unknown_group_is_described(stage: Stage) -> None:
    await stage.describe()
    await stage.describe(stage.group("one"), stage.group("two"))
    await stage.describe("")


@script("DG2, DG4, DG8, G10", eras=range(4, 10))
async def groups_are_described_with_what_one_may_do(stage: Stage) -> None:
    await stage.stable("a")
    await stage.describe(stage.group_id, stage.group("unknown"), include_authorized_operations=True)


@script("DG3")
async def a_group_is_described_in_each_state(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    await stage.form(a)
    await stage.describe()
    join = await b.enter()
    await stage.until(members=2)
    await stage.describe()
    for each in [a.join(), join]:
        await each
    await stage.describe()
    for sync in [a.sync(), b.sync()]:
        await sync
    await stage.describe()
    await b.leave()
    await stage.describe()
    await a.leave()
    await stage.describe()


@script("LS1, LS2, LS3, LS4")
async def groups_are_listed(stage: Stage) -> None:
    await stage.list()
    (a,) = await stage.stable("a")
    simple = stage.group("simple")
    await a.commit_as_nobody(group_id=simple)
    await stage.list(stage.group_id, simple)


@script("LS3, LS4", eras=range(7, 10))
async def groups_are_listed_by_state_and_type(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    simple = stage.group("simple")
    await a.commit_as_nobody(group_id=simple)
    both = (stage.group_id, simple)
    for states in (("Stable",), ("stable", "EMPTY"), (" Stable ",), ("Nonsense",), ("Empty", "Nonsense"), ("",)):
        await stage.list(*both, states_filter=states)
    for types in (("classic",), ("CLASSIC",), ("consumer",), ("share",), ("nonsense",), ("classic", "consumer")):
        await stage.list(*both, types_filter=types)
    await stage.list(*both, states_filter=("Empty",), types_filter=("classic",))
    await stage.list(*both, states_filter=("Empty",), types_filter=("consumer",))


@script("DL1, DL3, DL4, G12, DL6")
async def groups_are_deleted(stage: Stage) -> None:
    unknown, simple = stage.group("unknown"), stage.group("simple")
    (a,) = await stage.stable("a")
    await a.commit({(ORDERS, 0): 1})
    await a.commit_as_nobody(group_id=simple)
    await stage.delete(stage.group_id, unknown, simple)
    await a.leave()
    await stage.until(state="Empty")
    await stage.delete(stage.group_id, stage.group_id)
    await stage.describe()
    await stage.list(stage.group_id, simple)
    await stage.fetch_offsets((ORDERS, 0))
    await stage.delete()
    b = await stage.member("b")
    await stage.form(b)


@script("DL3, J1, S3, OC2, OD1")
async def a_deleted_group_starts_over(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    await stage.rejoin_all(a, b)
    await a.commit({(ORDERS, 0): 1})
    await a.leave()
    await b.leave()
    await stage.until(state="Empty")
    await stage.delete()
    await a.join()
    await a.heartbeat()
    await a.sync()
    await a.commit()
    await a.leave()
    await stage.delete_offsets((ORDERS, 0))
    await stage.fetch_offsets((ORDERS, 0))
    await stage.describe()
    await a.commit_as_nobody({(ORDERS, 1): 2})
    await stage.delete()
    await stage.fetch_offsets((ORDERS, 1))
    c = await stage.member("c")
    await stage.form(c)
    await a.heartbeat()
    await stage.describe()


@script("DL1, J2")
async def a_group_with_only_a_refused_join_is_deleted(stage: Stage) -> None:
    # Not described before: the refused join wrote nothing, so Kafka's describe, which reads at the last committed
    # offset, shows the group only once another one of its partition writes.
    a = await stage.member("a")
    await a.join("", protocols=())
    await stage.delete()
    await stage.describe()
    await stage.list()


@script("DL3, ST3, ST5", eras=STATIC)
async def a_deleted_group_forgets_its_static_members(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True)
    await a.leave(("", "a"), ("", "b"))
    await stage.until(state="Empty")
    await stage.delete()
    await a.join()
    back = await stage.member("a again", "a")
    await stage.form(back)
    await a.heartbeat()
    await b.heartbeat()
    await a.commit()
    await stage.describe()


@script("DL6, P8", eras=range(4, 10))
async def a_group_of_ids_that_were_handed_out_is_deleted(stage: Stage) -> None:
    a = await stage.member("a")
    await a.join("")
    await stage.delete()
    await a.join()


@script("FC3, FC4")
async def the_coordinator_is_found(stage: Stage) -> None:
    await stage.find_coordinator()
    await stage.find_coordinator("")


@script("FC3, FC4", eras=range(2, 10))
async def a_coordinator_of_an_unknown_kind(stage: Stage) -> None:
    await stage.find_coordinator(key_type=9)


@script("FC3", eras=range(7, 10))
async def many_coordinators_are_found(stage: Stage) -> None:
    await stage.find_coordinator(stage.group("one"), stage.group("two"))
    await stage.find_coordinator(*(stage.group(f"{number}") for number in range(5)), "")


@script("DL1", eras=NEWEST)
async def a_group_is_deleted_while_a_member_is_expected(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await stage.delete()
    await a.heartbeat()


@script("G17, DG7, DL4", eras=NEWEST)
async def a_group_id_that_is_null(stage: Stage) -> None:
    """None may be null in these requests: the server disconnects."""
    for api, field in (("DescribeGroups", "groups"), ("DeleteGroups", "groups_names")):
        connection = (await stage.member(api)).connection
        frame = connection.frame(api, 0, **{field: ["x"]})
        with pytest.raises(ConnectionResetError):
            await connection.send_frame(api, 0, frame.replace(b"\x00\x01x", b"\xff\xff")).get()
    await stage.describe()
