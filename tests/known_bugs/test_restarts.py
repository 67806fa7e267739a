"""Restarts of static members and of their coordinator, in virtual time and over sockets. S3, S4, S5, S8, S15."""

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import HeartbeatOutcome, JoinGroupOutcome
from muster.events.ids import GroupInstanceId
from muster.events.log.memory import MemoryStorage
from tests.coordinator.serving import enter, join_body, serving, sync_body
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

ASK_AGAIN = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.rebalance_in_progress,
}
"""The errors after which every client retries; none makes it forget its member id."""


async def heartbeat(process: SimulatedProcess, joined: JoinGroupOutcome, instance: str) -> ErrorCode:
    """A heartbeat with the instance id."""
    command = msgspec.structs.replace(process.heartbeat_command(joined), group_instance_id=GroupInstanceId(instance))
    answer = await process.submit(command)
    assert isinstance(answer, HeartbeatOutcome)
    return answer.error


def test_s3_a_replacement_is_durable_before_it_is_answered() -> None:
    """Kafka answered first, so a failover brought the old member id back and fenced the live process: no response may
    be sent before the replacement is in the log, and the next owner must know the new id and fence the old one.
    """

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage).start()
        joined = await first.stable_group("a", "b")
        await asyncio.sleep(1)  # nothing is pending any more
        release = first.log.hold_acknowledgements()
        restarted = first.join("b")
        await asyncio.sleep(5)
        assert not restarted.done()
        release.set()
        new = await restarted
        second = await SimulatedProcess(storage).start()
        assert await heartbeat(second, new, "b") is ErrorCode.none
        assert await heartbeat(second, joined["b"], "b") is ErrorCode.fenced_instance_id
        assert (await second.sync(new)).assignment == joined["b"].member_id.encode()
        await second.runtime.stop()

    simulate(story())


async def send_each_request(process: SimulatedProcess, joined: JoinGroupOutcome) -> list[Any]:
    """The outcome of one request of each kind that a member sends."""
    return [
        await process.join("a", joined.member_id),
        await process.sync(joined),
        await process.heartbeat(joined),
        await process.commit(5, joined),
        await process.leave(joined.member_id),
    ]


def test_s4_a_moving_group_answers_no_member_with_unknown_member_id() -> None:
    """A group on its way to another owner answered UNKNOWN_MEMBER_ID, so its members forgot their ids, came back as new
    ones, and fenced newer processes: before, during and after its release, each request must get a retriable error.
    """

    async def story() -> None:
        storage = MemoryStorage()
        process = await SimulatedProcess(storage).start()
        joined = await process.stable_group("a")
        loading = SimulatedProcess(storage)
        for outcome in await send_each_request(loading, joined["a"]):
            fine = isinstance(outcome, HeartbeatOutcome) and outcome.error is ErrorCode.none
            assert fine or outcome.error in ASK_AGAIN, outcome
        parked = process.join("b")
        await asyncio.sleep(0.01)
        release = process.log.hold_acknowledgements()
        behind: list[asyncio.Future[Any]] = [process.join("c"), process.join("a", joined["a"].member_id)]
        behind.append(process.heartbeat(joined["a"]))
        await asyncio.sleep(0.01)
        stopping = asyncio.create_task(process.runtime.stop())
        for answer in (parked, *behind):
            assert (await answer).error in ASK_AGAIN
        release.set()
        await stopping
        for outcome in await send_each_request(process, joined["a"]):
            assert outcome.error in ASK_AGAIN, outcome

    simulate(story())


async def test_s5_member_ids_are_whole_right_after_a_load() -> None:
    """A coordinator that had just loaded handed out ids made of an unset variable: while it loads it must hand out no
    id, and afterwards unique ids made of the client's or the instance's name and a UUID.
    """
    async with serving(load=False) as muster:
        connection = await muster.connect("app")
        for instance in (None, "a"):
            response = await connection.ask("JoinGroup", 9, **join_body(instance=instance))
            assert (response["error_code"], response["member_id"]) == (ErrorCode.coordinator_load_in_progress.value, "")
        await muster.runtime.start()
        given = [await connection.ask("JoinGroup", 9, **join_body()) for _ in range(2)]
        given.append(await connection.ask("JoinGroup", 9, **join_body(instance="a")))
        assert [each["error_code"] for each in given] == [79, 79, 0]
        member_ids = [each["member_id"] for each in given]
        assert len(set(member_ids)) == 3
        for member_id, owner in zip(member_ids, ("app", "app", "a"), strict=True):
            assert member_id.startswith(f"{owner}-")
            assert UUID(member_id.removeprefix(f"{owner}-")).version == 4


@pytest.mark.parametrize("version", [0, 2, 4])
async def test_s8_a_leader_below_v5_leads_static_members(version: int) -> None:
    """The list of members with instance ids could not be encoded for an old leader, and its group was stuck with a
    member that never expired: each version must get the list without them.
    """
    async with serving() as muster:
        old, new = [await muster.connect(name) for name in ("old", "new")]
        leader = await enter(old, version)
        assert [member["member_id"] for member in leader["members"]] == [leader["member_id"]]
        joining = new.send("JoinGroup", 9, **join_body(instance="a"))
        leader = await old.ask("JoinGroup", version, **join_body(leader["member_id"]))
        static = await joining.get()
        assert {member["member_id"] for member in leader["members"]} == {leader["member_id"], static["member_id"]}
        waiting = new.send("SyncGroup", 5, **sync_body(static, instance="a"))
        await old.ask("SyncGroup", 0, **sync_body(leader))
        assert (await waiting.get())["assignment"] == static["member_id"].encode()


@pytest.mark.parametrize("lost", ["nothing stored", "the answer", "nothing"])
def test_s15_a_restart_of_the_coordinator_fences_no_only_process(lost: str) -> None:
    """A broker that was restarted while a static consumer joined fenced that consumer for good, although there was no
    second one: whatever the crash loses of its join, its retry must be served, with no rebalance.
    """

    async def story() -> None:
        storage = MemoryStorage()
        process = await SimulatedProcess(storage).start()
        outcomes = await process.stable_group("a", "b")
        if lost == "nothing stored":
            process.log.fail_next_append()
        elif lost == "the answer":
            process.log.lose_next_acknowledgement()
        joined = await process.join("b")
        if lost == "nothing":
            process = await SimulatedProcess(storage, offsets=process.offsets).start()
        else:
            assert joined.error is ErrorCode.not_coordinator
            assert joined.member_id == ""
            await until(lambda: process.runtime.ready, "the partition is served again")
            joined = await process.join("b")
        for _ in range(3):
            assert await heartbeat(process, joined, "b") is ErrorCode.none
            again = await process.join("b", joined.member_id)
            assert (again.error, again.member_id) == (ErrorCode.none, joined.member_id)
            await asyncio.sleep(1)
        assert (await process.sync(joined)).assignment == outcomes["b"].member_id.encode()
        assert await heartbeat(process, outcomes["a"], "a") is ErrorCode.none
        assert joined.generation_id == outcomes["a"].generation_id
        await process.runtime.stop()

    simulate(story())
