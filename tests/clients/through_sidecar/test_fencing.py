"""The shadow's generation as a fence, and the cost of its joins: on a separate broker behind a proxy.

The broker advertises the proxy's address, so all of the sidecar's requests go through the proxy.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from uuid import uuid4

import msgspec
import pytest

from tests.brokers.broker import HOST, lasting_ports
from tests.brokers.choice import running_broker
from tests.clients.probe import coordinator_of
from tests.clients.through_sidecar.holding_proxy import HoldingProxy
from tests.clients.through_sidecar.member import Member, commit_error, settle
from tests.clients.through_sidecar.sidecar import assert_is_owned, new_topic, offsets_at, running_sidecar
from tests.conformance.wire import Connection
from tests.muster_process import TEST_CONFIG

pytestmark = pytest.mark.broker

INITIAL_DELAY_S: Final = 1.5
SETTINGS: Final = {"group.initial.rebalance.delay.ms": f"{INITIAL_DELAY_S * 1000:.0f}"}
ROUNDS: Final = 3
TRY_AGAIN: Final = 14
FENCED: Final = 82
OFFSET_COMMIT: Final = 8


class Front(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the broker, the proxy and the sidecar; both coordinators have an initial delay."""

    direct: str
    proxy: HoldingProxy
    through: str
    topic: str


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    """A sidecar that reaches its broker through the proxy."""
    (port,) = lasting_ports(1)
    elsewhere = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}
    with running_broker(how="process", settings=elsewhere) as broker:
        proxy = HoldingProxy(port, broker.bootstrap)
        with proxy.serving():
            topic = new_topic(broker.bootstrap)
            options = ["--log-replication", "1"]
            with running_sidecar(
                broker.bootstrap, nodes=[1], config={**TEST_CONFIG, **SETTINGS}, options=options
            ) as muster:
                # The broker creates its coordinators' topics on the first lookup.
                coordinator_of(muster.bootstrap, "any")
                yield Front(direct=broker.bootstrap, proxy=proxy, through=muster.bootstrap, topic=topic)


@asynccontextmanager
async def connections(bootstrap: str, count: int) -> AsyncIterator[list[Connection]]:
    """This many, while the block lasts."""
    async with AsyncExitStack() as stack:
        opened = [await Connection.open(bootstrap) for _ in range(count)]
        for connection in opened:
            stack.callback(connection.close)
        yield opened


async def test_a_commit_that_is_held_up_never_lands_on_a_newer_one(front: Front) -> None:
    """It was valid when it left the sidecar; when it reaches the broker, its generation is over there too."""
    group_id = uuid4().hex
    async with connections(front.through, 3) as (hangs, works, new):
        slow, other = Member(hangs, group_id, front.topic), Member(new, group_id, front.topic)
        await settle(slow)
        assert await slow.commit(0, 5) == 0
        front.proxy.hold_next(OFFSET_COMMIT)
        held = slow.send_commit(0, 7)
        await asyncio.to_thread(front.proxy.wait_until_held)

        slow.connection = works
        await settle(slow, other)
        assert await other.commit(0, 9) == 0
        assert not held.is_answered
        front.proxy.let_go()
        assert await commit_error(held) == TRY_AGAIN
        assert await slow.commit(1, 8) == 0
    assert await asyncio.to_thread(offsets_at, front.direct, group_id, front.topic) == {0: 9, 1: 8}


async def test_a_commit_of_a_process_that_was_replaced_never_lands_on_its_successors(front: Front) -> None:
    """A static member's restart makes no new generation here, but one upstream."""
    group_id = uuid4().hex
    async with connections(front.through, 2) as (hangs, new):
        before, after = (Member(each, group_id, front.topic, instance="a") for each in (hangs, new))
        await settle(before)
        assert await before.commit(0, 5) == 0
        front.proxy.hold_next(OFFSET_COMMIT)
        held = before.send_commit(0, 7)
        await asyncio.to_thread(front.proxy.wait_until_held)

        await settle(after)
        assert after.generation_id == before.generation_id
        assert await after.commit(0, 9) == 0
        assert not held.is_answered
        front.proxy.let_go()
        assert await commit_error(held) == TRY_AGAIN
        assert await before.commit(0, 7) == FENCED
    assert await asyncio.to_thread(offsets_at, front.direct, group_id, front.topic) == {0: 9}


async def time_to_form(bootstrap: str, group_id: str, topic: str) -> float:
    """Seconds until a new group of two has its assignments."""
    async with connections(bootstrap, 2) as opened:
        began = time.monotonic()
        await settle(*(Member(each, group_id, topic) for each in opened))
        return time.monotonic() - began


async def test_initial_delays_run_in_parallel(front: Front) -> None:
    """Ours and upstream's run at the same time, so a group waits no longer than for one of them."""
    later = []
    for _ in range(ROUNDS):
        owned = uuid4().hex
        direct, through = await asyncio.gather(
            time_to_form(front.direct, uuid4().hex, front.topic), time_to_form(front.through, owned, front.topic)
        )
        assert min(direct, through) >= INITIAL_DELAY_S
        await asyncio.to_thread(assert_is_owned, front.direct, owned)
        later.append(through - direct)
        if later[-1] < INITIAL_DELAY_S / 2:
            return
    pytest.fail(f"in each round it took so many seconds more: {later}")
