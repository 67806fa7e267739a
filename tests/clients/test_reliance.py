"""The behaviour that consumers rely on in failures: each library recovers by itself, as it would with Kafka."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from tests.clients.conftest import TOPIC
from tests.clients.consumers import Confluent, RunningConsumer
from tests.clients.crew import Crew, crew
from tests.clients.probe import described, remove_static_members
from tests.conformance.member import subscription
from tests.conformance.wire import Connection, ms
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

SECONDS_6_MS = 6_000
HOUR_MS = 3_600_000


class Impatient(Confluent):
    """A consumer that leaves its group when it is not polled for six seconds."""

    OTHER_CONFIG: ClassVar[Mapping[str, Any]] = {
        "session.timeout.ms": SECONDS_6_MS,
        "max.poll.interval.ms": SECONDS_6_MS,
    }


def member_ids(group: Crew) -> set[str]:
    return {member["member_id"] for member in described(group.bootstrap, group.group_id)["members"]}


def test_a_removed_member_rejoins_as_a_new_one(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """25 resets its id and generation, and it rejoins (CB11, CD3)."""
    with crew(muster, library) as group:
        for _ in range(2):
            group.add()
        group.until_shared()
        before = member_ids(group)
        removed = min(before)
        assert asyncio.run(leave(muster, group.group_id, removed)) == 0
        until_so(lambda: len(member_ids(group)) == 2 and removed not in member_ids(group), lambda: member_ids(group))
        group.until_shared()
        assert len(member_ids(group) & before) == 1


def test_joins_that_wait_outlive_a_restart_of_the_coordinator(
    muster: MusterProcess, library: type[RunningConsumer]
) -> None:
    """They get error 16, find the coordinator again, and retry with their ids (CA2, CA3, CB12)."""
    with crew(muster, library) as group:
        group.add()
        group.until_shared()
        ghost = asyncio.run(enter_and_never_speak_again(muster, group))
        assert ghost["error_code"] == 0, ghost
        group.add()
        until_so(lambda: len(member_ids(group)) == 3, lambda: member_ids(group))
        assert described(muster.bootstrap, group.group_id)["group_state"] == "PreparingRebalance"
        muster.restart()
        assert remove_static_members(muster.bootstrap, group.group_id, "ghost") == [0]
        group.until_shared()
        assert [consumer.error for consumer in group.consumers] == [None, None]


def test_a_consumer_that_does_not_poll_leaves_and_rejoins(muster: MusterProcess) -> None:
    """Its heartbeats continue, so its session never ends; it leaves by itself (CD6)."""
    with crew(muster, Impatient) as group:
        consumer = group.add()
        group.until_shared()
        before = member_ids(group)
        go_on = threading.Event()
        busy = threading.Thread(target=lambda: consumer.do(lambda: go_on.wait(60)))
        busy.start()
        group.until_empty()
        go_on.set()
        busy.join()
        group.until_shared()
        assert not member_ids(group) & before


async def leave(muster: MusterProcess, group_id: str, member_id: str) -> int:
    """LeaveGroup for another member's id; its error code."""
    connection = await Connection.open(muster.bootstrap)
    try:
        answer = await connection.ask("LeaveGroup", 2, group_id=group_id, member_id=member_id)
    finally:
        connection.close()
    code: int = answer["error_code"]
    return code


async def enter_and_never_speak_again(muster: MusterProcess, group: Crew) -> dict[str, Any]:
    """Join as a static member that others wait for, for an hour; return the sync response."""
    connection = await Connection.open(muster.bootstrap)
    try:
        joined = await connection.ask(
            "JoinGroup",
            5,
            group_id=group.group_id,
            session_timeout=ms(1_800_000),
            rebalance_timeout=ms(HOUR_MS),
            member_id="",
            group_instance_id="ghost",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": subscription(TOPIC)}],
        )
        return await connection.ask(
            "SyncGroup",
            3,
            group_id=group.group_id,
            generation_id=joined["generation_id"],
            member_id=joined["member_id"],
            group_instance_id="ghost",
            assignments=[],
        )
    finally:
        connection.close()
