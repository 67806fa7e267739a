"""Both servers are killed and restarted from what they stored: the group after that, and its members' responses.

Each scenario runs up to `reload()`, where all wait for each other; then its server is restarted, once for all of them.
The transcripts are compared like those of scripts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.brokers.restartable import RestartableBroker
from tests.conformance.eras import NEWEST
from tests.conformance.member import CLICKS, ORDERS, SHORT_MS, TOPICS
from tests.conformance.passing_time import passed
from tests.conformance.servers import Server, server_at
from tests.conformance.stage import Stage
from tests.conformance.transcript import difference
from tests.muster_process import TEST_CONFIG, running_muster, sqlite_log

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

(ERA,) = NEWEST
SESSION_MS = 10_000

Reload = Callable[[], Awaitable[None]]
Scenario = Callable[[Stage, Reload], Awaitable[None]]


# ---- scenarios -----------------------------------------------------------------------------------


async def a_stable_group_goes_on(stage: Stage, reload: Reload) -> None:
    """LD1, LD5, LD6: generation, assignments, members and offsets are unchanged."""
    a, b = await stage.member("a", "a"), await stage.member("b")
    await stage.form(a, b)
    await b.commit({(ORDERS, 0): 7})
    await stage.describe()
    await reload()
    await stage.reconnect(a, b)
    await stage.describe()
    for member in (a, b):
        await member.heartbeat()
        await member.sync()
        await member.commit({(ORDERS, 1): 8})
    await stage.fetch_offsets((ORDERS, 0), (ORDERS, 1))
    await stage.rejoin_all(a, b)


async def members_that_are_gone_expire(stage: Stage, reload: Reload) -> None:
    """LD5: each member has a new session, and no more than that."""
    (a,) = await stage.stable("a", session_ms=SESSION_MS)
    await reload()
    await stage.reconnect(a)
    await a.heartbeat()
    await stage.until(state="Empty")
    await a.heartbeat()
    await stage.describe()


async def a_process_that_was_replaced_stays_fenced(stage: Stage, reload: Reload) -> None:
    """LD9, ST11: the replacement was stored before the response."""
    a, b = await stage.stable("a", "b", static=True)
    back = await stage.member("b again", "b")
    await back.join("")
    await reload()
    await stage.reconnect(a, b, back)
    await b.heartbeat()
    await back.heartbeat()
    await back.sync()
    await stage.describe()


async def an_id_that_was_handed_out_is_forgotten(stage: Stage, reload: Reload) -> None:
    """LD5."""
    (a,) = await stage.stable("a")
    b = await stage.member("b")
    await b.join("")
    await reload()
    await stage.reconnect(a, b)
    await b.join()
    await a.heartbeat()


async def an_unsynced_member_is_left_to_its_session(stage: Stage, reload: Reload) -> None:
    """SX8: there is no sync timer any more."""
    a, b = await stage.members("a", "b", rebalance_ms=2 * SHORT_MS)
    await stage.form(a)
    join = await b.enter()
    await stage.until(members=2)
    for each in [a.join(), join]:
        await each
    await a.sync()
    await reload()
    await stage.reconnect(a, b)
    await passed(stage, 3 * SHORT_MS, a.heartbeat)
    await b.heartbeat()
    await b.sync()


async def an_empty_group_keeps_its_generation(stage: Stage, reload: Reload) -> None:
    """LD1: with its protocol type."""
    (a,) = await stage.stable("a")
    await a.leave()
    await stage.until(state="Empty")
    await reload()
    await stage.reconnect(a)
    await stage.describe()
    await stage.list()
    b = await stage.member("b")
    await stage.form(b)


async def offsets_make_a_group(stage: Stage, reload: Reload) -> None:
    """LD3: a simple consumer has stored nothing else."""
    a = await stage.member("a")
    await a.commit_as_nobody({(ORDERS, 0): 7, (CLICKS, 0): 8})
    await reload()
    await stage.reconnect(a)
    await stage.describe()
    await stage.list()
    await stage.fetch_offsets((ORDERS, 0), (CLICKS, 0))


async def a_deleted_group_stays_deleted(stage: Stage, reload: Reload) -> None:
    """LD1, DL2: with its offsets."""
    (a,) = await stage.stable("a")
    await a.commit({(ORDERS, 0): 7})
    await a.leave()
    await stage.until(state="Empty")
    await stage.delete()
    await reload()
    await stage.reconnect(a)
    await stage.describe()
    await stage.list()
    await stage.fetch_offsets((ORDERS, 0))
    await a.heartbeat()


async def a_group_that_was_only_described(stage: Stage, reload: Reload) -> None:
    """DV2: the join that only yielded an id stored it; a group in generation 0 can be deleted."""
    a = await stage.member("a")
    await a.join("")
    deleted = stage.group("deleted")
    await a.join("", group_id=deleted)
    await stage.delete(deleted)
    await reload()
    await stage.reconnect(a)
    await stage.describe(stage.group_id, deleted)
    await stage.list(stage.group_id, deleted)


async def a_join_phase_in_flight(stage: Stage, reload: Reload) -> None:
    """LD7, LD8, RE7, RE8: Kafka has forgotten it and its new members; here it continues."""
    a, b = await stage.stable("a", "b")
    c = await stage.member("c")
    a.join()
    await stage.until(state="PreparingRebalance")
    await c.enter()
    await stage.until(members=3)
    await reload()
    await stage.reconnect(a, b, c)
    group = await stage.until()
    stage.expect_difference(
        "LD7: Kafka stores no join",
        kafka=("Stable", 2),
        muster=("PreparingRebalance", 3),
        got=(group["group_state"], len(group["members"])),
    )
    await stage.differs("LD7", b.heartbeat(), kafka={"error_code": 0}, muster={"error_code": 27})
    await stage.differs("LD8", c.join(), kafka={"error_code": 25}, muster=None)


async def a_sync_phase_in_flight(stage: Stage, reload: Reload) -> None:
    """LD7, RE8: Kafka is back at the previous generation; here the new one continues."""
    a, b = await stage.stable("a", "b")
    join = a.join()
    await stage.until(state="PreparingRebalance")
    for each in [b.join(), join]:
        await each
    await reload()
    await stage.reconnect(a, b)
    await stage.differs("LD7", b.heartbeat(), kafka={"error_code": 22}, muster={"error_code": 0})
    await stage.differs("LD7", a.sync(), kafka={"error_code": 22}, muster={"error_code": 0})


async def a_follower_with_several_protocols_joins_again(stage: Stage, reload: Reload) -> None:
    """JS4, QK7, RE3: Kafka has stored only one of its protocols, so it seems changed."""
    protocols = (("range", b"\x00\x00"), ("roundrobin", b"\x00\x01"))
    a, b = await stage.stable("a", "b", protocol_type="other", protocols=protocols)
    await reload()
    await stage.reconnect(a, b)
    await stage.differs("QK7", b.join(), kafka=None, muster={"error_code": 0, "generation_id": b.generation_id})


SCENARIOS: Sequence[Scenario] = (
    a_stable_group_goes_on,
    members_that_are_gone_expire,
    a_process_that_was_replaced_stays_fenced,
    an_id_that_was_handed_out_is_forgotten,
    an_unsynced_member_is_left_to_its_session,
    an_empty_group_keeps_its_generation,
    offsets_make_a_group,
    a_deleted_group_stays_deleted,
    a_group_that_was_only_described,
    a_join_phase_in_flight,
    a_sync_phase_in_flight,
    a_follower_with_several_protocols_joins_again,
)


# ---- playing them --------------------------------------------------------------------------------


class Restart:
    """One restart of a server, when all scenarios have reached it, or have ended before."""

    def __init__(self, parties: int, restart: Callable[[], None]) -> None:
        self._missing = parties
        self._restart = restart
        self._done = asyncio.Event()

    async def reload(self) -> None:
        """Wait for it."""
        await self.come()
        await self._done.wait()

    async def come(self) -> None:
        """Stop being awaited."""
        self._missing -= 1
        if not self._missing:
            await asyncio.to_thread(self._restart)
            self._done.set()


async def play(server: Server, restart: Callable[[], None]) -> dict[str, Stage]:
    """All scenarios on one server; each one's stage, with its transcript. Raises the first failure."""
    stages: dict[str, Stage] = {}
    once = Restart(len(SCENARIOS), restart)

    async def on_stage(scenario: Scenario) -> None:
        stage = stages[scenario.__name__] = Stage(server, ERA)
        try:
            await stage.ready()
            await scenario(stage, once.reload)
            stage.end()
        finally:
            stage.hang_up()

    async with asyncio.TaskGroup() as tasks:
        for scenario in SCENARIOS:
            tasks.create_task(on_stage(scenario), name=scenario.__name__)
    return stages


@pytest.fixture(scope="module")
def played(
    restartable_kafka: RestartableBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, tuple[Stage, Stage]]]:
    """The stages on Kafka, then on Muster, by the scenario's name."""
    directory: Path = tmp_path_factory.mktemp("restarts")
    topics = [f"{topic}:{partitions}" for topic, partitions in TOPICS.items()]
    with ExitStack() as stack:
        muster = stack.enter_context(running_muster(log=sqlite_log(directory), topics=topics, config=TEST_CONFIG))

        def restart_muster() -> None:
            muster.kill()
            muster.start()

        async def both() -> Mapping[str, tuple[Stage, Stage]]:
            kafka = await server_at(restartable_kafka.bootstrap, is_kafka=True)
            ours = await server_at(muster.bootstrap, is_kafka=False)
            on_kafka, on_muster = await asyncio.gather(
                play(kafka, restartable_kafka.restart), play(ours, restart_muster)
            )
            return {name: (stage, on_muster[name]) for name, stage in on_kafka.items()}

        yield asyncio.run(both())


@pytest.mark.parametrize("name", [scenario.__name__ for scenario in SCENARIOS])
def test_both_servers_are_what_they_were(name: str, played: Mapping[str, tuple[Stage, Stage]]) -> None:
    """Or they differ as declared by the scenario."""
    kafka, muster = played[name]
    text = difference(kafka.transcript, muster.transcript)
    if text:
        pytest.fail(text, pytrace=False)
