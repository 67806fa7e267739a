"""Scripts: committed offsets: permission to commit, fetch and delete them."""

from tests.conformance.eras import NEWEST, STATIC
from tests.conformance.member import CLICKS, NO_SUCH_TOPIC, NOBODY, ORDERS, subscription
from tests.conformance.script import script
from tests.conformance.stage import Stage
from tests.conformance.wire import ms

LONG = "m" * 4_096
TOO_LONG = "m" * 4_097


@script("OC1, OC5, OC21, LS1")
async def a_simple_consumer_makes_a_group(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 10, (ORDERS, 2): (11, "noted"), (CLICKS, 0): 12})
    await stage.describe()
    await stage.list()
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1), (ORDERS, 2), (CLICKS, 0))
    await a.commit_as_nobody({(ORDERS, 0): 3})
    await a.commit_as_nobody({(ORDERS, 0): 4}, member_id=NOBODY)
    await stage.fetch_offsets((ORDERS, 0))


@script("OC1", eras=STATIC)
async def a_simple_consumer_may_call_itself_what_it_likes(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody(member_id=NOBODY, group_instance_id="nobody")
    await a.commit_as_nobody(member_id=NOBODY, group_instance_id="nobody")
    await stage.describe()


@script("OC2, OC13")
async def a_generation_of_an_unknown_group(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit({(ORDERS, 0): 1, (ORDERS, 1): 2}, generation_id_or_member_epoch=0)
    await a.commit(member_id=NOBODY, generation_id_or_member_epoch=5)
    await stage.describe()
    await stage.fetch_offsets((ORDERS, 0))


@script("OC7, OC8, OC9")
async def commits_to_a_stable_group(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await a.commit({(ORDERS, 0): 21})
    await a.commit_as_nobody({(ORDERS, 0): 22})
    await a.commit({(ORDERS, 0): 23}, generation_id_or_member_epoch=-1)
    await a.commit({(ORDERS, 0): 24}, generation_id_or_member_epoch=-1, member_id=NOBODY)
    await a.commit({(ORDERS, 0): 25}, member_id="")
    await a.commit({(ORDERS, 0): 26}, generation_id_or_member_epoch=2)
    await stage.fetch_offsets((ORDERS, 0))


@script("OC5, OC6")
async def commits_to_an_empty_group(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await a.commit({(ORDERS, 0): 31})
    await a.leave()
    await stage.until(state="Empty")
    await a.commit({(ORDERS, 0): 32})
    await a.commit({(ORDERS, 0): 33}, generation_id_or_member_epoch=2)
    await a.commit_as_nobody({(ORDERS, 0): 34})
    await stage.fetch_offsets((ORDERS, 0))
    await stage.describe()


@script("OC14, OC15, K4")
async def metadata_that_is_too_long(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await a.commit({(ORDERS, 0): (1, LONG), (ORDERS, 1): (2, TOO_LONG), (ORDERS, 2): (3, None)})
    await a.commit({(ORDERS, 0): (4, TOO_LONG)})
    await a.commit({(ORDERS, 1): (5, "ä" * 4_096)})
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1), (ORDERS, 2))


@script("G4, G5")
async def topics_that_do_not_exist(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await a.commit({(NO_SUCH_TOPIC, 0): 1, (ORDERS, 0): 2, (ORDERS, 3): 3, (ORDERS, -1): 4, (CLICKS, 1): 5})
    await a.commit({(NO_SUCH_TOPIC, 0): 1}, generation_id_or_member_epoch=9)
    await a.commit({(NO_SUCH_TOPIC, 0): 1, (ORDERS, 0): 2}, generation_id_or_member_epoch=9)
    await a.commit({}, generation_id_or_member_epoch=9)
    await stage.fetch_offsets((NO_SUCH_TOPIC, 0), (ORDERS, 0), (ORDERS, 3))


@script("G5")
async def a_commit_of_nothing_makes_no_group(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody({(NO_SUCH_TOPIC, 0): 1})
    await a.commit_as_nobody({})
    await stage.describe()


@script("OC16")
async def offsets_of_any_size(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 2**62, (ORDERS, 1): -5, (ORDERS, 2): 0})
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1), (ORDERS, 2))


@script("OC18", eras=range(3))
async def a_retention_of_ones_own(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 9}, retention_time=ms(3_600_000))
    await stage.fetch_offsets((ORDERS, 0))


@script("OF1, OF3")
async def offsets_of_an_unknown_group(stage: Stage) -> None:
    await stage.fetch_offsets((ORDERS, 0), (NO_SUCH_TOPIC, 4))
    await stage.fetch_offsets()


@script("OF8, W7", eras=range(1, 10))
async def all_offsets_of_a_group(stage: Stage) -> None:
    await stage.fetch_offsets(every=True)
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 1, (CLICKS, 0): 2})
    await stage.fetch_offsets(every=True)
    await stage.fetch_offsets(every=True, require_stable=True)


@script("OF7, W18", eras=range(7, 10))
async def offsets_of_many_groups(stage: Stage) -> None:
    a = await stage.member("a")
    other = stage.group("other")
    await a.commit_as_nobody({(ORDERS, 0): 1})
    await a.commit_as_nobody({(ORDERS, 0): 2, (CLICKS, 0): 3}, group_id=other)
    groups = (stage.group_id, other, stage.group("unknown"))
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0), group_ids=groups)
    await stage.fetch_offsets(every=True, group_ids=groups)


@script("G17, OF7", eras=NEWEST)
async def the_group_without_a_name_keeps_offsets(stage: Stage) -> None:
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 1}, group_id="")
    await stage.fetch_offsets((ORDERS, 0), group_ids=("",))
    await stage.describe("")
    await stage.delete("")
    await stage.fetch_offsets((ORDERS, 0), group_ids=("",))


@script("OD1, OD3, OD7, G8")
async def offsets_are_deleted(stage: Stage) -> None:
    a = await stage.member("a")
    await stage.delete_offsets((ORDERS, 0))
    await a.commit_as_nobody({(ORDERS, 0): 1, (ORDERS, 1): 2, (CLICKS, 0): 3})
    await stage.delete_offsets((ORDERS, 0), (ORDERS, 2), (CLICKS, 0), (NO_SUCH_TOPIC, 0), (ORDERS, 3))
    await stage.delete_offsets((NO_SUCH_TOPIC, 0))
    await stage.delete_offsets()
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1), (CLICKS, 0))
    await stage.describe()


@script("OD4, OD6")
async def offsets_of_subscribed_topics_stay(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    await a.commit({(ORDERS, 0): 1, (CLICKS, 0): 2})
    await stage.delete_offsets((ORDERS, 0), (CLICKS, 0))
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))
    join = b.join(protocols=(("range", subscription(CLICKS)),))
    await stage.until(state="PreparingRebalance")
    await stage.delete_offsets((ORDERS, 0), (CLICKS, 0))
    await stage.complete([a, b], [a.join(), join])
    await stage.delete_offsets((ORDERS, 0), (CLICKS, 0))
    await a.leave()
    await b.leave()
    await stage.until(state="Empty")
    await stage.delete_offsets((ORDERS, 0), (CLICKS, 0))
    await stage.fetch_offsets((ORDERS, 0))


@script("OD2, OD3")
async def offsets_of_other_protocol_types(stage: Stage) -> None:
    (a,) = await stage.stable("a", protocol_type="connect", protocols=(("compatible", b""),))
    await a.commit({(ORDERS, 0): 1})
    await stage.delete_offsets((ORDERS, 0))
    await stage.delete_offsets((NO_SUCH_TOPIC, 0))
    await a.leave()
    await stage.until(state="Empty")
    await stage.delete_offsets((ORDERS, 0))


@script("CF5, DL3")
async def commits_outlive_rebalances(stage: Stage) -> None:
    a, b = await stage.stable("a", "b")
    await a.commit({(ORDERS, 0): 41})
    await b.commit({(ORDERS, 1): 42})
    await stage.rejoin_all(a, b)
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1))


@script("OD5, S17")
async def a_subscription_that_is_none_keeps_every_topic(stage: Stage) -> None:
    """One byte does not even have a version; Kafka continues, unlike with other invalid bytes (R16)."""
    (a,) = await stage.stable("a", protocols=(("range", b"\x00"),))
    await a.commit({(ORDERS, 0): 1, (CLICKS, 0): 2})
    await stage.delete_offsets((ORDERS, 0), (CLICKS, 0))
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))


@script("OC21, OC7", eras=NEWEST)
async def a_commit_changes_nothing_of_the_group(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await stage.describe()
    await a.commit()
    await stage.describe()
    await a.heartbeat()
    await a.sync()
