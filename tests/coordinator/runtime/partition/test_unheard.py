"""Deadlines of groups whose members could not reach Muster, through no fault of their own; in virtual time."""

import asyncio
from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.extensions import Unheard
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryStorage
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

SESSION_S = 10.0


class FakeReachability:
    """Answers whether members were reachable, as the test decides."""

    def __init__(self) -> None:
        self.asked: list[tuple[GroupId, Callable[[Unheard | None], None]]] = []

    def ask_about_silence(self, group_id: GroupId, tell: Callable[[Unheard | None], None]) -> None:
        self.asked.append((group_id, tell))


async def stable_group(requested: FakeReachability) -> tuple[SimulatedProcess, dict[str, JoinGroupOutcome]]:
    process = await SimulatedProcess(MemoryStorage(), ask_about_silence=requested.ask_about_silence).start()
    return process, await process.stable_group("a", "b")


def test_no_member_is_expired_before_its_reachability_is_known() -> None:
    """However long that takes; then each has its full time again."""

    async def story() -> None:
        reachability = FakeReachability()
        process, joined = await stable_group(reachability)
        await asyncio.sleep(7 * SESSION_S)
        ((group_id, tell),) = reachability.asked
        assert group_id == GROUP
        tell(Unheard(0, process.clock.monotonic_ms()))
        await asyncio.sleep(SESSION_S - 1)
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
        assert (await process.heartbeat(joined["b"])).error is ErrorCode.none
        await process.runtime.stop()

    simulate(story())


def test_a_reachable_and_silent_member_is_expired() -> None:
    async def story() -> None:
        reachability = FakeReachability()
        process, joined = await stable_group(reachability)
        await until(lambda: reachability.asked)
        reachability.asked[0][1](None)
        await asyncio.sleep(1)
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.unknown_member_id
        await process.runtime.stop()

    simulate(story())


def test_a_member_unreachable_for_a_while_has_the_full_timeout_from_then_on() -> None:
    """The broker in between was unreachable and is back: a new Kafka coordinator gives full sessions too."""

    async def story() -> None:
        reachability = FakeReachability()
        process, joined = await stable_group(reachability)
        await asyncio.sleep(SESSION_S - 1)
        back_ms = process.clock.monotonic_ms()
        await until(lambda: reachability.asked)
        reachability.asked[0][1](Unheard(0, back_ms))
        await asyncio.sleep(SESSION_S - 3)
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
        await until(lambda: len(reachability.asked) == 2)
        reachability.asked[1][1](Unheard(0, back_ms))  # before this session
        await asyncio.sleep(1)
        assert (await process.heartbeat(joined["b"])).error is ErrorCode.unknown_member_id
        await process.runtime.stop()

    simulate(story())


def test_a_dead_member_expires_despite_repeated_broker_outages() -> None:
    """Once the full time; then the length of each outage, while live members get the full time each time."""

    async def story() -> None:
        reachability = FakeReachability()
        process, joined = await stable_group(reachability)
        dead_since_s, away_s, error = asyncio.get_running_loop().time(), 0.0, ErrorCode.none
        while error is ErrorCode.none:
            heard_ms, questions = process.clock.monotonic_ms(), len(reachability.asked)
            await asyncio.sleep(0.5)
            if len(reachability.asked) > 3:
                reachability.asked[-1][1](None)
                await asyncio.sleep(0.1)
            elif len(reachability.asked) > questions:
                await asyncio.sleep(3)
                away_s += 3.5
                reachability.asked[-1][1](Unheard(heard_ms, process.clock.monotonic_ms()))
                await asyncio.sleep(0.1)
            error = (await process.heartbeat(joined["a"])).error
            assert asyncio.get_running_loop().time() < dead_since_s + 2 * SESSION_S + away_s + 1
        assert error is ErrorCode.rebalance_in_progress
        assert away_s == 3 * 3.5
        await process.runtime.stop()

    simulate(story())


def test_a_session_that_ends_during_a_query_gets_a_query_of_its_own() -> None:
    """The first answer describes the situation at the time of its question."""

    async def story() -> None:
        reachability = FakeReachability()
        process, joined = await stable_group(reachability)
        await asyncio.sleep(1)
        assert (await process.heartbeat(joined["b"])).error is ErrorCode.none
        await until(lambda: reachability.asked)
        await asyncio.sleep(2)  # b's session has ended as well
        reachability.asked[0][1](None)
        assert (await process.heartbeat(joined["b"])).error is not ErrorCode.unknown_member_id
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.unknown_member_id
        await process.runtime.stop()

    simulate(story())


def test_no_query_is_sent_while_members_heartbeat() -> None:
    """A heartbeat moves the deadline silently: that the old one fires is no reason to ask."""

    async def story() -> None:
        reachability = FakeReachability()
        process, joined = await stable_group(reachability)
        for _ in range(20):
            await asyncio.sleep(SESSION_S / 3)
            for each in joined.values():
                assert (await process.heartbeat(each)).error is ErrorCode.none
        assert reachability.asked == []
        await process.runtime.stop()

    simulate(story())


@pytest.mark.parametrize("away", [None, (0, 10**9)])
def test_results_for_a_group_that_is_no_longer_served_change_nothing(away: Unheard | None) -> None:
    async def story() -> None:
        reachability = FakeReachability()
        process, _ = await stable_group(reachability)
        await until(lambda: reachability.asked)
        await process.runtime.stop()
        reachability.asked[0][1](away)
        assert process.lost == []

    simulate(story())
