"""Many members leave by one request, which is processed in parts and causes only one rebalance."""

import asyncio
from typing import Any

import pytest

from muster.coordinator.wire import leave_group
from muster.events.avro.codec import decode
from muster.events.events import MemberRemoved, RebalanceStarted
from muster.events.log.memory import MemoryStorage
from tests.conformance.wire import Connection
from tests.coordinator.formed import form_group
from tests.coordinator.serving import GROUP_ID, serving

INSTANCES = [f"i{number}" for number in range(6)]


@pytest.mark.parametrize(("leavers", "state"), [(5, "PreparingRebalance"), (6, "Empty")])
async def test_members_that_leave_together_make_one_rebalance(
    leavers: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leave_group, "MEMBERS_AT_ONCE", 2)
    storage = MemoryStorage(partitions=1)
    async with serving(storage=storage) as muster:
        await asyncio.to_thread(form_group, muster.bootstrap, GROUP_ID, *INSTANCES)
        before = len(storage.records[0])
        members = [{"member_id": "", "group_instance_id": each} for each in INSTANCES[:leavers]]
        connection = await muster.connect("admin")
        left = await connection.ask("LeaveGroup", 4, group_id=GROUP_ID, members=members)
        assert (left["error_code"], [each["error_code"] for each in left["members"]]) == (0, [0] * leavers)
        assert await state_of(connection) == state
        connection.close()
    events = [type(decode(record.value)) for record in storage.records[0][before:] if record.value]
    assert (events.count(MemberRemoved), events.count(RebalanceStarted)) == (leavers, 1)


async def state_of(connection: Connection) -> Any:
    described = await connection.ask("DescribeGroups", 5, groups=[GROUP_ID], include_authorized_operations=False)
    return described["groups"][0]["group_state"]
