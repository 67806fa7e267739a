"""Scripts: how dynamic members join, and how a group of them rebalances."""

from tests.conformance.eras import ALL, NEWEST, ONE_STEP, TWO_STEPS
from tests.conformance.member import CLICKS, NOBODY, ORDERS, RANGE, subscription
from tests.conformance.script import script
from tests.conformance.stage import Stage


@script("JE1, JE2, P1, SG9, SG11")
async def one_member_joins_alone(stage: Stage) -> None:
    (a,) = await stage.stable("a")
    await stage.describe()
    await a.heartbeat()


@script("S12, J16, SG8, SG11, DG2")
async def three_members_form_a_group(stage: Stage) -> None:
    a, b, c = await stage.stable("a", "b", "c")
    await stage.describe()
    await stage.list()
    for member in (a, b, c):
        await member.heartbeat()
