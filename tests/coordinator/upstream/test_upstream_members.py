"""A group's members upstream, for its adoption; upstream is a script."""

import re
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.static.primitive import i32Timedelta

from muster.coordinator.upstream.upstream_members import NotAdoptable, remove_member, upstream_members
from muster.coordinator.wire.authorized_operations import DESCRIBE
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.kafka.errors import AnswerLost
from tests.coordinator.kio_client import filled
from tests.coordinator.upstream.test_group_probe import ANOTHER, IN_IT_THERE, OURS, described

GROUP = GroupId("orders")


class Scripted:
    """A link whose coordinator gives these responses in order; `error_of` is called like the link does."""

    asked_at = "broker:9092"

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []
        self.errors: list[ErrorCode] = []

    async def ask_coordinator(
        self, _group_id: str, request: Any, _response: Any, *, error_of: Any, lane: object
    ) -> Any:
        assert lane
        self.asked.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self.errors.append(error_of(answer))
        return answer


def describing(*groups: DescribedGroup) -> Any:
    """A link that describes the group like this, once each."""
    no_time = i32Timedelta.parse(timedelta(0))
    return Scripted(*(DescribeGroupsResponse(throttle_time=no_time, groups=(group,)) for group in groups))


async def test_members_are_listed_with_their_instances_and_hosts() -> None:
    there = described("consumer", "a", None)
    link = describing(there, there)
    members = await upstream_members(link, GROUP, OURS)
    assert [(each.member_id, each.group_instance_id, each.client_id, each.client_host) for each in members] == [
        ("m", "a", "app", "/10.0.0.7"),
        ("m", None, "app", "/10.0.0.7"),
    ]
    assert link.errors == [ErrorCode.none, ErrorCode.none]


async def test_a_group_of_our_own_shadow_or_without_members_has_none() -> None:
    for vacant in (described("consumer"), described("muster", OURS.group_instance_id)):
        assert await upstream_members(describing(vacant), GROUP, OURS) == ()


@pytest.mark.parametrize(
    "then",
    [
        described("muster", ANOTHER.group_instance_id),
        described("consumer"),
        described("consumer", "a", "b", authorized_operations=0),
        described("consumer", "a", "b", authorized_operations=DESCRIBE),
        described("consumer", "a", "b", error_code=ErrorCode.coordinator_not_available, members=()),
    ],
)
async def test_a_group_taken_by_another_owner_meanwhile_is_not_adopted(then: DescribedGroup) -> None:
    """Nor is a group that Muster may not read, or that is empty."""
    with pytest.raises(NotAdoptable, match=re.escape(IN_IT_THERE)):
        await upstream_members(describing(described("consumer", None), then), GROUP, OURS)


async def test_a_client_with_read_permission_sees_all() -> None:
    """If the broker does not send the rights, they are assumed."""
    untold = described("consumer", "a", "b", authorized_operations=-(2**31))
    assert len(await upstream_members(describing(untold, untold), GROUP, OURS)) == 2
    denied = described("consumer", "a", "b", authorized_operations=DESCRIBE)
    with pytest.raises(NotAdoptable, match="lacks the ACL Allow READ"):
        await upstream_members(describing(denied, denied), GROUP, OURS)


def left(error: ErrorCode = ErrorCode.none, *of_members: ErrorCode) -> LeaveGroupResponse:
    members = [{"member_id": "m", "group_instance_id": "a", "error_code": each} for each in of_members]
    answer: LeaveGroupResponse = filled(
        LeaveGroupResponse, {"throttle_time": timedelta(0), "error_code": error, "members": members}
    )
    return answer


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([left(ErrorCode.none, ErrorCode.none)], ErrorCode.none),
        ([left(ErrorCode.none, ErrorCode.unknown_member_id)], ErrorCode.unknown_member_id),
        ([left(ErrorCode.group_authorization_failed)], ErrorCode.group_authorization_failed),
        ([left()], ErrorCode.none),
        ([AnswerLost("lost"), left(ErrorCode.none, ErrorCode.unknown_member_id)], ErrorCode.unknown_member_id),
    ],
)
async def test_a_member_is_removed_once_and_the_result_reported(answers: list[Any], error: ErrorCode) -> None:
    """Once more if the response was lost: it does no harm."""
    link: Any = Scripted(*answers)
    assert await remove_member(link, GROUP, MemberId("m"), GroupInstanceId("a")) is error
    assert link.errors == [error]
    assert len(link.asked) == len(answers)
    for request in link.asked:
        (identity,) = request.members
        assert (identity.member_id, identity.group_instance_id) == ("m", "a")
        assert identity.reason == "the group is adopted by Muster"
