"""Scripts: identity: ids of every kind, what is checked before the group is looked up, and the supported versions."""

from typing import Final

from tests.conformance.eras import NEWEST, SOME, STATIC
from tests.conformance.member import NOBODY, ORDERS, Protocols, subscription
from tests.conformance.script import script
from tests.conformance.stage import Stage
from tests.conformance.wire import API_KEYS

STICKY: Final[Protocols] = (("sticky", subscription(ORDERS)),)
ODD: Final = "ä b/c\\d:*?" * 300
"""Characters that no library uses in an id; nearly as long as a record of the old form can hold."""

OURS: Final = frozenset(
    {
        "DeleteGroups",
        "DescribeConfigs",
        "DescribeGroups",
        "FindCoordinator",
        "Heartbeat",
        "IncrementalAlterConfigs",
        "JoinGroup",
        "LeaveGroup",
        "ListGroups",
        "OffsetCommit",
        "OffsetDelete",
        "OffsetFetch",
        "SyncGroup",
    }
)
"""APIs of a coordinator, not of a producer or a broker."""


@script("W2, W3, W4, W5, W6, W7, W8, W9, W10", eras=NEWEST)
async def the_versions_that_are_offered(stage: Stage) -> None:
    a = await stage.member("a")
    reply = a.ask("ApiVersions", {}, version=3, client_software_name="conformance", client_software_version="1")
    answer = await reply.quietly()
    names = {API_KEYS[name]: name for name in OURS}
    offered = {
        names[each["api_key"]]: (each["min_version"], each["max_version"])
        for each in answer["api_keys"]
        if each["api_key"] in names
    }
    reply.note({name: offered[name] for name in sorted(offered)})


@script("G15, J6, J7")
async def errors_of_a_join_are_checked_in_order(stage: Stage) -> None:
    a, b = await stage.members("a", "b")
    await a.join(NOBODY, group_id="", session_ms=99)
    await a.join(NOBODY, session_ms=99, protocols=())
    await stage.describe()
    await stage.form(b)
    await a.join(NOBODY, session_ms=99, protocols=STICKY)
    await a.join(NOBODY, session_ms=30_000, protocols=STICKY)
    await a.join("", protocol_type="connect", protocols=STICKY)
    await a.join(NOBODY, protocol_type="consumer", protocols=b.protocols)
    await b.heartbeat()


@script("K1")
async def a_session_timeout_on_its_bounds(stage: Stage) -> None:
    a = await stage.member("a")
    await a.join("", session_ms=100, group_id=stage.group("shortest"))
    await a.join("", session_ms=1_800_000, group_id=stage.group("longest"))


@script("K2", eras=SOME)
async def rebalance_timeouts_are_taken_as_they_come(stage: Stage) -> None:
    """The time in which all have to sync is over as soon as it begins."""
    for rebalance_ms in (0, -1):
        a = await stage.member(f"a of {rebalance_ms}", rebalance_ms=rebalance_ms)
        await (await a.enter())
        await stage.until(state="Empty")
        await a.heartbeat()
        await stage.describe()


@script("K7, M1, M3")
async def ids_of_any_length_and_of_any_characters(stage: Stage) -> None:
    stage.group_id = stage.group(ODD)
    a, b = await stage.members("a", "b")
    if stage.era in STATIC:
        a.instance = ODD
    await stage.form(a, b)
    await stage.describe()
    await stage.list()
    await a.commit()
    await b.heartbeat(member_id=ODD)
    await b.join(ODD)
    await b.leave((ODD, None))
    await b.leave()
    await a.heartbeat()


@script("M1, M3")
async def a_client_without_a_name(stage: Stage) -> None:
    a = await stage.member("a", client_id="")
    await stage.form(a)
    await stage.describe()


@script("M5, ST23", eras=STATIC)
async def a_static_member_that_does_not_say_so(stage: Stage) -> None:
    a, b = await stage.stable("a", "b", static=True)
    await b.join(instance=None)
    await b.heartbeat()
    await b.sync()
    await b.commit()
    join = a.join(instance=None)
    await stage.until(state="PreparingRebalance")
    await stage.complete([a, b], [b.join(), join])
    await stage.describe()
    await b.leave()
    await stage.rejoin(a)


@script("M4, M6", eras=STATIC)
async def a_dynamic_member_with_the_instance_id_of_another(stage: Stage) -> None:
    a = await stage.member("a", "a")
    b = await stage.member("b")
    await stage.form(a, b)
    for instance in ("a", "nobody"):
        await b.heartbeat(group_instance_id=instance)
        await b.sync(group_instance_id=instance)
        await b.commit(group_instance_id=instance)
        await b.leave((b.member_id, instance))
        await b.join(instance=instance)
    await b.join(instance=None)
    await a.heartbeat()
    await stage.describe()


@script("W7", eras=range(8, 10))
async def a_fetch_of_offsets_that_names_a_member(stage: Stage) -> None:
    """Only members of the newer protocol are checked; in a classic group the member fields are ignored."""
    (a,) = await stage.stable("a")
    await a.commit({(ORDERS, 0): 5})
    await stage.fetch_offsets((ORDERS, 0), member=(NOBODY, 7))
    await stage.fetch_offsets((ORDERS, 0), member=(a.member_id, -1))
