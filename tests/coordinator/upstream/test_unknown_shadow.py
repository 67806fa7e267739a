"""A shadow that a broker does not know, or that finds another member; upstream is a script."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.sync_group.v5.response import SyncGroupResponse

from muster.coordinator.upstream.shadows import CommitIdentity, Shadows
from muster.coordinator.wire.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from muster.events.ids import GroupId
from muster.events.kafka.connections import ignore
from tests.coordinator.kio_client import filled
from tests.coordinator.upstream.stage import NAME, unexpected
from tests.waiting import until

GROUP = GroupId("orders")


class Upstream:
    """Responds like a coordinator of one group: to heartbeats with `error`, to the next joins with `join_errors`.

    The member that blocked such a join has left when upstream is asked about it.
    """

    asked_at = "127.0.0.1:9092"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.generation_id = 0
        self.error = ErrorCode.none
        self.join_errors: list[ErrorCode] = []

    async def ask_coordinator(
        self,
        _group_id: GroupId,
        request: Any,
        _response: Any,
        *,
        sent: Callable[[], None] = ignore,
        **_limits: Any,
    ) -> Any:
        """The response to a step."""
        await asyncio.sleep(0)
        sent()
        self.asked.append(type(request).__name__.removesuffix("Request"))
        match self.asked[-1]:
            case "JoinGroup" if self.join_errors:
                nobody = {"generation_id": -1, "member_id": "", "leader": "", "protocol_name": None}
                return _answer(JoinGroupResponse, error_code=self.join_errors.pop(), **nobody)
            case "DescribeGroups":
                group = dict.fromkeys(("group_id", "protocol_type", "protocol_data"), "") | {"group_state": "Empty"}
                empty = {
                    "error_code": ErrorCode.none,
                    "members": (),
                    "authorized_operations": AUTHORIZED_OPERATIONS_OMITTED,
                }
                return _answer(DescribeGroupsResponse, groups=[group | empty])
            case "JoinGroup":
                self.generation_id += 1
                member_id = f"muster-{self.generation_id}"
                identity = {"generation_id": self.generation_id, "member_id": member_id, "leader": member_id}
                return _answer(JoinGroupResponse, **identity, protocol_name="shadow")
            case "SyncGroup":
                return _answer(SyncGroupResponse)
            case "LeaveGroup":
                return _answer(LeaveGroupResponse)
            case "Heartbeat":
                return _answer(HeartbeatResponse, error_code=self.error)
            case name:
                raise NotImplementedError(name)


def _answer(kind: type[Any], **fields: Any) -> Any:
    blank = {"throttle_time": timedelta(0), "error_code": ErrorCode.none, "assignment": b"", "members": ()}
    return filled(kind, {**blank, **fields})


async def _bumped(shadows: Shadows) -> CommitIdentity | None:
    shadows.update_generation(GROUP, generation_id=1, is_wanted=True)
    await shadows.wait_bumped(GROUP, 1)
    return shadows.commit_identity(GROUP, 1)


async def test_a_shadow_in_doubt_is_checked_at_once() -> None:
    """If it is gone, it rejoins: commits need not wait for its next heartbeat, minutes later."""
    upstream: Any = Upstream()
    shadows = Shadows(upstream, NAME, lost=lambda *_: None, give_up=unexpected)
    first = await _bumped(shadows)
    assert upstream.asked == ["JoinGroup", "SyncGroup"]
    shadows.heartbeat_soon(GROUP)
    await until(lambda: upstream.asked[2:] == ["Heartbeat"])
    assert shadows.commit_identity(GROUP, 1) == first
    upstream.error = ErrorCode.unknown_member_id
    shadows.heartbeat_soon(GROUP)
    await until(lambda: upstream.asked[3:] == ["Heartbeat", "JoinGroup", "SyncGroup"])
    await shadows.wait_bumped(GROUP, 1)
    assert shadows.commit_identity(GROUP, 1) not in {None, first}
    await shadows.close()


async def test_an_absent_shadow_is_not_checked() -> None:
    upstream: Any = Upstream()
    shadows = Shadows(upstream, NAME, lost=lambda *_: None, give_up=unexpected)
    shadows.heartbeat_soon(GROUP)
    await _bumped(shadows)
    async with shadows.withdrawn(GROUP):
        shadows.heartbeat_soon(GROUP)
        assert upstream.asked[2:] == ["LeaveGroup"]
    await shadows.wait_bumped(GROUP, 1)
    assert "Heartbeat" not in upstream.asked
    await shadows.close()


async def test_a_join_is_retried_when_the_blocking_member_has_left() -> None:
    """Upstream is asked about that member; the group is not lost for it."""
    upstream: Any = Upstream()
    upstream.join_errors = [ErrorCode.inconsistent_group_protocol]
    lost: list[object] = []
    shadows = Shadows(upstream, NAME, lost=lambda *reported: lost.append(reported), give_up=unexpected)
    assert await _bumped(shadows) is not None
    assert upstream.asked == ["JoinGroup", "DescribeGroups", "JoinGroup", "SyncGroup"]
    assert lost == []
    await shadows.close()
