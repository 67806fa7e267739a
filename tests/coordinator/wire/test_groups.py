"""DescribeGroups, ListGroups and DeleteGroups: requests about several groups."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest
from muster.coordinator.group.outcomes import DeleteGroupOutcome, DescribedMember, DescribeGroupOutcome, Outcome
from muster.coordinator.service import ListedGroup
from muster.coordinator.wire.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED, GROUP_OPERATIONS
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.kio_client import Exchange, versions
from tests.coordinator.scripted import ScriptedGroups, new_service

DESCRIBED = DescribeGroupOutcome(
    state=GroupState.STABLE,
    protocol_type="consumer",
    protocol_name="range",
    members=(
        DescribedMember(
            member_id=MemberId("a-2"),
            group_instance_id=GroupInstanceId("a"),
            client_id="shop",
            client_host="/10.0.0.7",
            metadata=b"\x01",
            assignment=b"\x02",
        ),
    ),
)
OUTCOMES: dict[str, Outcome] = {
    "orders": DESCRIBED,
    "nope": DescribeGroupOutcome(error=ErrorCode.group_id_not_found),
    "elsewhere": DescribeGroupOutcome(error=ErrorCode.not_coordinator),
}


def describe(version: int, *, operations: bool = False) -> dict[str, Any]:
    groups = ScriptedGroups(lambda command: OUTCOMES[command.group_id])
    response = Exchange(
        new_service(groups),
        "DescribeGroups",
        version,
        groups=list(OUTCOMES),
        include_authorized_operations=operations,
    ).response
    assert [command.group_id for command in groups.commands] == list(OUTCOMES)
    assert len({command.caller.request_id for command in groups.commands}) == len(OUTCOMES)
    return {group.group_id: group for group in response.groups}


@pytest.mark.parametrize("version", versions("DescribeGroups"))
def test_a_group_is_described_whole(version: int) -> None:
    group = describe(version)["orders"]
    assert (group.error_code, group.group_state) == (ErrorCode.none, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == ("a-2", "shop", "/10.0.0.7")
    assert (member.member_metadata, member.member_assignment) == (b"\x01", b"\x02")
    if version >= 4:
        assert member.group_instance_id == "a"


@pytest.mark.parametrize("version", versions("DescribeGroups"))
def test_an_unknown_group_is_dead_and_from_v6_on_an_error(version: int) -> None:
    group = describe(version)["nope"]
    assert (group.group_state, group.members) == ("Dead", ())
    assert group.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)
    if version >= 6:
        assert group.error_message == "Group nope not found."


@pytest.mark.parametrize("version", versions("DescribeGroups"))
def test_a_groups_error_harms_no_other(version: int) -> None:
    group = describe(version)["elsewhere"]
    assert (group.error_code, group.group_state, group.members) == (ErrorCode.not_coordinator, "", ())


@pytest.mark.parametrize("version", versions("DescribeGroups", 3))
def test_operations_are_returned_on_request_and_never_with_an_error(version: int) -> None:
    assert describe(version)["orders"].authorized_operations == AUTHORIZED_OPERATIONS_OMITTED
    reported = describe(version, operations=True)
    assert reported["orders"].authorized_operations == GROUP_OPERATIONS
    assert reported["elsewhere"].authorized_operations == AUTHORIZED_OPERATIONS_OMITTED


def test_groups_answered_out_of_order_are_returned_in_request_order() -> None:
    groups = ScriptedGroups(lambda _command: None)
    exchange = Exchange(
        new_service(groups), "DescribeGroups", 5, groups=["orders", "nope"], include_authorized_operations=False
    )
    groups.parked.reverse()
    groups.release(OUTCOMES["nope"])
    assert exchange.answers == []
    groups.release(OUTCOMES["orders"])
    assert [group.group_id for group in exchange.response.groups] == ["orders", "nope"]


def test_no_groups_are_described_at_once() -> None:
    groups = ScriptedGroups(lambda _command: None)
    exchange = Exchange(new_service(groups), "DescribeGroups", 5, groups=[], include_authorized_operations=False)
    assert exchange.response.groups == ()


LISTED = [
    ListedGroup(group_id=GroupId("orders"), protocol_type="consumer", state=GroupState.STABLE),
    ListedGroup(group_id=GroupId("simple"), protocol_type="", state=GroupState.EMPTY),
    ListedGroup(group_id=GroupId("busy"), protocol_type="connect", state=GroupState.PREPARING_REBALANCE),
]


def listed(version: int, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
    groups = ScriptedGroups(lambda _command: None)
    groups.listed = LISTED
    response = Exchange(new_service(groups), "ListGroups", version, states_filter=states, types_filter=types).response
    assert response.error_code is ErrorCode.none
    known = {group.group_id: group for group in LISTED}
    for group in response.groups:
        assert group.protocol_type == known[group.group_id].protocol_type
        if version >= 4:
            assert group.group_state == known[group.group_id].state.value
        if version >= 5:
            assert group.group_type == "classic"
    return [group.group_id for group in response.groups]


@pytest.mark.parametrize("version", versions("ListGroups"))
def test_all_groups_are_listed(version: int) -> None:
    assert listed(version) == ["orders", "simple", "busy"]


@pytest.mark.parametrize("version", versions("ListGroups", 4))
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("Stable",), ["orders"]),
        ((" sTABLE ", "preparingrebalance"), ["orders", "busy"]),
        (("Empty", "NoSuchState"), ["simple"]),
        (("NoSuchState",), []),
    ],
)
def test_groups_are_filtered_by_state(version: int, states: tuple[str, ...], expected: list[str]) -> None:
    assert listed(version, states=states) == expected


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("Classic",), ["orders", "simple", "busy"]),
        (("consumer", "CLASSIC"), ["orders", "simple", "busy"]),
        (("share",), []),
    ],
)
def test_groups_are_filtered_by_type(types: tuple[str, ...], expected: list[str]) -> None:
    assert listed(5, types=types) == expected


def test_both_filters_must_match() -> None:
    assert listed(5, states=("Stable",), types=("consumer",)) == []
    assert listed(5, states=("Stable",), types=("classic",)) == ["orders"]


@pytest.mark.parametrize("version", versions("ListGroups"))
def test_a_node_that_is_loading_lists_nothing(version: int) -> None:
    groups = ScriptedGroups(lambda _command: None)
    groups.listed = ErrorCode.coordinator_load_in_progress
    response = Exchange(new_service(groups), "ListGroups", version).response
    assert (response.error_code, response.groups) == (ErrorCode.coordinator_load_in_progress, ())


@pytest.mark.parametrize("version", versions("DeleteGroups"))
def test_groups_are_deleted_one_by_one_and_each_once(version: int) -> None:
    def outcome(command: AnyRequest) -> Outcome:
        return DeleteGroupOutcome(error=ErrorCode.non_empty_group if command.group_id == "orders" else ErrorCode.none)

    groups = ScriptedGroups(outcome)
    names = ["orders", "simple", "orders", ""]
    response = Exchange(new_service(groups), "DeleteGroups", version, groups_names=names).response
    assert [(each.group_id, each.error_code) for each in response.results] == [
        ("orders", ErrorCode.non_empty_group),
        ("simple", ErrorCode.none),
        ("", ErrorCode.none),
    ]
    assert [command.group_id for command in groups.commands] == ["orders", "simple", ""]
