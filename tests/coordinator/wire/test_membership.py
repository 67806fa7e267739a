"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in all their versions: bytes to commands, outcomes to bytes."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Caller, Heartbeat, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from muster.coordinator.group.outcomes import (
    HeartbeatOutcome,
    JoinedMember,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    LeftMember,
    Outcome,
    SyncGroupOutcome,
)
from muster.coordinator.service import HeartbeatTicket
from muster.coordinator.wire.leave_group import MEMBERS_AT_ONCE
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.state import Protocol
from tests.coordinator.kio_client import KEYS, Exchange, versions
from tests.coordinator.scripted import NOW_MS, NOW_WALL_MS, UUID_TEXT, ScriptedGroups, new_service
from tests.waiting import until

JOIN: dict[str, Any] = {
    "group_id": "orders",
    "session_timeout": timedelta(milliseconds=45_001),
    "rebalance_timeout": timedelta(milliseconds=300_007),
    "member_id": "shop-1",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"\x00\x01"}, {"name": "sticky", "metadata": b""}],
}
JOINED = JoinGroupOutcome(
    member_id=MemberId("shop-1"),
    generation_id=4,
    protocol_type="consumer",
    protocol_name="range",
    leader_id=MemberId("shop-1"),
    skip_assignment=True,
    members=(
        JoinedMember(member_id=MemberId("shop-1"), group_instance_id=None, metadata=b"\x01"),
        JoinedMember(member_id=MemberId("a-2"), group_instance_id=GroupInstanceId("a"), metadata=b"\x02"),
    ),
)


def caller(exchange: Exchange) -> Caller:
    return Caller(
        request_id=1,
        client_id="shop",
        client_host="/10.0.0.7",
        principal="User:ANONYMOUS",
        api_key=KEYS[exchange.name],
        api_version=exchange.version,
        arrived_ms=NOW_MS,
        arrived_wall_ms=NOW_WALL_MS,
        request_bytes=len(exchange.frame),
    )


def answering(outcome: Outcome) -> ScriptedGroups:
    return ScriptedGroups(lambda _command: outcome)


@pytest.mark.parametrize("version", versions("JoinGroup"))
def test_join_group_becomes_a_command_that_knows_no_version(version: int) -> None:
    groups = answering(JOINED)
    exchange = Exchange(new_service(groups), "JoinGroup", version, **JOIN, reason="deployed")
    assert groups.commands == [
        JoinGroup(
            caller=caller(exchange),
            group_id=GroupId("orders"),
            member_id=MemberId("shop-1"),
            group_instance_id=None,
            proposed_member_id=MemberId(f"shop-{UUID_TEXT}"),
            protocol_type="consumer",
            protocols=(Protocol(name="range", metadata=b"\x00\x01"), Protocol(name="sticky", metadata=b"")),
            session_timeout_ms=45_001,
            rebalance_timeout_ms=45_001 if version == 0 else 300_007,
            reason="deployed" if version >= 8 else None,
            requires_known_member_id=version >= 4,
            supports_skip_assignment=version >= 9,
        )
    ]


@pytest.mark.parametrize("version", versions("JoinGroup", 5))
@pytest.mark.parametrize("instance_id", ["till-3", ""])
def test_join_group_of_a_static_member_never_requires_a_member_id(version: int, instance_id: str) -> None:
    """An empty instance id counts, too (K8)."""
    groups = answering(JOINED)
    Exchange(new_service(groups), "JoinGroup", version, **JOIN, group_instance_id=instance_id)
    (command,) = groups.commands
    assert isinstance(command, JoinGroup)
    assert command.group_instance_id == instance_id
    assert command.proposed_member_id == f"{instance_id}-{UUID_TEXT}"
    assert not command.requires_known_member_id


@pytest.mark.parametrize(("session_ms", "rebalance_ms"), [(2**31 - 1, -(2**31)), (0, -1), (1, 2**31 - 1)])
def test_join_group_keeps_timeouts_to_the_millisecond(session_ms: int, rebalance_ms: int) -> None:
    groups = answering(JOINED)
    timeouts: dict[str, Any] = {
        "session_timeout": timedelta(milliseconds=session_ms),
        "rebalance_timeout": timedelta(milliseconds=rebalance_ms),
    }
    Exchange(new_service(groups), "JoinGroup", 9, **(JOIN | timeouts))
    (command,) = groups.commands
    assert isinstance(command, JoinGroup)
    assert (command.session_timeout_ms, command.rebalance_timeout_ms) == (session_ms, rebalance_ms)


def test_a_client_without_an_id_proposes_a_bare_dash() -> None:
    """Kafka treats a null client id as an empty one (M1)."""
    groups = answering(JOINED)
    Exchange(new_service(groups), "JoinGroup", 3, **JOIN, client_id=None)
    (command,) = groups.commands
    assert isinstance(command, JoinGroup)
    assert (command.proposed_member_id, command.caller.client_id) == (f"-{UUID_TEXT}", "")


@pytest.mark.parametrize(("instance_id", "begins_with"), [(None, "c" * 255), ("ä" * 16_000, "ä" * 8_000)])
def test_a_member_id_begins_with_a_limited_prefix_of_a_long_name(instance_id: str | None, begins_with: str) -> None:
    """A pending id is kept for as long as a session, and its member has to be able to send it."""
    groups = answering(JOINED)
    Exchange(new_service(groups), "JoinGroup", 5, **JOIN, client_id="c" * 32_767, group_instance_id=instance_id)
    (command,) = groups.commands
    assert isinstance(command, JoinGroup)
    assert command.proposed_member_id == f"{begins_with}-{UUID_TEXT}"
    assert (command.caller.client_id, command.group_instance_id) == ("c" * 32_767, instance_id)
    assert len(command.proposed_member_id.encode()) <= 32_767


@pytest.mark.parametrize(("sent", "kept"), [("r" * 32_767, "r" * 255), ("", None), (None, None), ("scaled", "scaled")])
def test_reasons_are_cut_at_255_characters(sent: str | None, kept: str | None) -> None:
    """A reason that did not fit into an old-form string broke Kafka (R8)."""
    groups = answering(JOINED)
    Exchange(new_service(groups), "JoinGroup", 8, **JOIN, reason=sent)
    (command,) = groups.commands
    assert isinstance(command, JoinGroup)
    assert command.reason == kept


@pytest.mark.parametrize("version", versions("JoinGroup"))
def test_join_group_is_answered_with_what_the_version_has(version: int) -> None:
    response = Exchange(new_service(answering(JOINED)), "JoinGroup", version, **JOIN).response
    assert (response.error_code, response.generation_id, response.leader) == (ErrorCode.none, 4, "shop-1")
    assert (response.member_id, response.protocol_name) == ("shop-1", "range")
    assert [(member.member_id, member.metadata) for member in response.members] == [
        ("shop-1", b"\x01"),
        ("a-2", b"\x02"),
    ]
    assert hasattr(response, "throttle_time") is (version >= 2)
    if version >= 5:
        assert [member.group_instance_id for member in response.members] == [None, "a"]
    if version >= 7:
        assert response.protocol_type == "consumer"
    if version >= 9:
        assert response.skip_assignment is True


@pytest.mark.parametrize("version", versions("JoinGroup"))
@pytest.mark.parametrize("protocol_name", [None, ""])
def test_a_failed_join_has_no_protocol_in_the_versions_own_way(version: int, protocol_name: str | None) -> None:
    """ "" below v7 and null from there on, whichever of the two the rules return (W11)."""
    failed = JoinGroupOutcome(
        error=ErrorCode.member_id_required, member_id=MemberId("shop-9"), protocol_name=protocol_name
    )
    response = Exchange(new_service(answering(failed)), "JoinGroup", version, **JOIN).response
    assert (response.error_code, response.member_id) == (ErrorCode.member_id_required, "shop-9")
    assert (response.generation_id, response.leader, response.members) == (-1, "", ())
    assert response.protocol_name == ("" if version < 7 else None)


def test_a_parked_join_is_answered_when_the_group_replies() -> None:
    groups = ScriptedGroups(lambda _command: None)
    exchange = Exchange(new_service(groups), "JoinGroup", 9, **JOIN)
    assert exchange.answers == []
    groups.release(JOINED)
    assert exchange.response.generation_id == 4


SYNC: dict[str, Any] = {
    "group_id": "orders",
    "generation_id": 4,
    "member_id": "shop-1",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "assignments": [{"member_id": "shop-1", "assignment": b"\x01"}, {"member_id": "a-2", "assignment": b""}],
}


@pytest.mark.parametrize("version", versions("SyncGroup"))
def test_sync_group_becomes_a_command(version: int) -> None:
    groups = answering(SyncGroupOutcome())
    exchange = Exchange(new_service(groups), "SyncGroup", version, **SYNC, group_instance_id="a")
    assert groups.commands == [
        SyncGroup(
            caller=caller(exchange),
            group_id=GroupId("orders"),
            member_id=MemberId("shop-1"),
            group_instance_id=GroupInstanceId("a") if version >= 3 else None,
            generation_id=4,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=((MemberId("shop-1"), b"\x01"), (MemberId("a-2"), b"")),
        )
    ]


@pytest.mark.parametrize("version", versions("SyncGroup"))
def test_sync_group_is_answered_with_the_assignment(version: int) -> None:
    outcome = SyncGroupOutcome(protocol_type="consumer", protocol_name="range", assignment=b"\x00\x03")
    response = Exchange(new_service(answering(outcome)), "SyncGroup", version, **SYNC).response
    assert (response.error_code, response.assignment) == (ErrorCode.none, b"\x00\x03")
    if version >= 5:
        assert (response.protocol_type, response.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_group_v5_without_its_protocol_is_refused_without_the_group(missing: str) -> None:
    groups = answering(SyncGroupOutcome())
    response = Exchange(new_service(groups), "SyncGroup", 5, **(SYNC | {missing: None})).response
    assert response.error_code is ErrorCode.inconsistent_group_protocol
    assert (response.assignment, response.protocol_type, response.protocol_name) == (b"", None, None)
    assert groups.commands == []


@pytest.mark.parametrize("version", versions("Heartbeat"))
@pytest.mark.parametrize("error", [ErrorCode.none, ErrorCode.rebalance_in_progress])
def test_heartbeat_both_ways(version: int, error: ErrorCode) -> None:
    groups = answering(HeartbeatOutcome(error=error))
    exchange = Exchange(
        new_service(groups),
        "Heartbeat",
        version,
        group_id="orders",
        generation_id=4,
        member_id="a-2",
        group_instance_id="a",
    )
    assert groups.commands == [
        Heartbeat(
            caller=caller(exchange),
            group_id=GroupId("orders"),
            member_id=MemberId("a-2"),
            group_instance_id=GroupInstanceId("a") if version >= 3 else None,
            generation_id=4,
        )
    ]
    assert exchange.response.error_code is error


@pytest.mark.parametrize("error", [ErrorCode.none, ErrorCode.rebalance_in_progress])
def test_only_an_accepted_heartbeat_gets_a_ticket(error: ErrorCode) -> None:
    groups = answering(HeartbeatOutcome(error=error))
    groups.gives_tickets = True
    kept: list[tuple[GroupId, MemberId, HeartbeatTicket]] = []
    Exchange(
        new_service(groups),
        "Heartbeat",
        4,
        keep_ticket=lambda *ticket: kept.append(ticket),
        group_id="orders",
        generation_id=4,
        member_id="a-2",
    )
    assert kept == [("orders", "a-2", ticket) for ticket in groups.tickets]
    assert len(kept) == (1 if error is ErrorCode.none else 0)


@pytest.mark.parametrize("version", versions("LeaveGroup"))
def test_leave_group_becomes_a_list_of_members_in_every_version(version: int) -> None:
    groups = answering(LeaveGroupOutcome())
    members = [
        {"member_id": "", "group_instance_id": "a", "reason": "x" * 300},
        {"member_id": "shop-1", "group_instance_id": None, "reason": None},
    ]
    exchange = Exchange(
        new_service(groups), "LeaveGroup", version, group_id="orders", member_id="shop-1", members=members
    )
    single = (LeavingMember(member_id=MemberId("shop-1"), group_instance_id=None, reason=None),)
    many = (
        LeavingMember(
            member_id=MemberId(""),
            group_instance_id=GroupInstanceId("a"),
            reason="x" * 255 if version >= 5 else None,
        ),
        *single,
    )
    assert groups.commands == [
        LeaveGroup(
            caller=caller(exchange),
            group_id=GroupId("orders"),
            members=single if version < 3 else many,
        )
    ]


@pytest.mark.parametrize("version", versions("LeaveGroup"))
@pytest.mark.parametrize("top", [ErrorCode.none, ErrorCode.coordinator_not_available])
def test_leave_group_puts_the_error_where_the_version_wants_it(version: int, top: ErrorCode) -> None:
    """Up to v2 a single member's error is at the top, unless the request has one of its own (W16)."""
    left = LeftMember(member_id=MemberId("shop-1"), group_instance_id=None, error=ErrorCode.unknown_member_id)
    outcome = LeaveGroupOutcome(error=top, members=(left,) if top is ErrorCode.none else ())
    body: dict[str, Any] = {"group_id": "orders", "member_id": "shop-1", "members": [{"member_id": "shop-1"}]}
    response = Exchange(new_service(answering(outcome)), "LeaveGroup", version, **body).response
    if version < 3:
        assert response.error_code is (ErrorCode.unknown_member_id if top is ErrorCode.none else top)
    else:
        assert response.error_code is top
        assert [(each.member_id, each.error_code) for each in response.members] == [
            (each.member_id, each.error) for each in outcome.members
        ]


NAMES = [f"shop-{number}" for number in range(2 * MEMBERS_AT_ONCE + 1)]


def left(command: Any, error: ErrorCode = ErrorCode.none) -> LeaveGroupOutcome:
    members = tuple(
        LeftMember(member_id=each.member_id, group_instance_id=None, error=error) for each in command.members
    )
    return LeaveGroupOutcome(members=members)


async def leaving(groups: ScriptedGroups, *, parts: int, names: Sequence[str] = NAMES) -> Exchange:
    """One request in which all of them leave."""
    members = [{"member_id": each, "group_instance_id": None, "reason": None} for each in names]
    exchange = Exchange(new_service(groups), "LeaveGroup", 5, group_id="orders", members=members)
    await until(lambda: len(groups.commands) >= parts)
    return exchange


async def test_very_many_leave_by_several_commands_and_are_answered_in_their_order() -> None:
    """A command is decided in one step: one with 5,000 would block the loop for 40 ms."""
    groups = ScriptedGroups(lambda _: None)
    exchange = await leaving(groups, parts=3)
    assert [len(each.members) for each in groups.commands] == [MEMBERS_AT_ONCE, MEMBERS_AT_ONCE, 1]  # type: ignore[union-attr]
    assert [each.caller.request_id for each in groups.commands] == [1, 2, 3]
    for command, reply in reversed(groups.parked):
        assert exchange.answers == []
        reply(left(command))
    await until(lambda: bool(exchange.answers))
    assert exchange.response.error_code is ErrorCode.none
    assert [each.member_id for each in exchange.response.members] == NAMES


async def test_the_error_of_a_refused_leave_is_the_response() -> None:
    """The client retries; members that have left by then get UNKNOWN_MEMBER_ID."""
    groups = ScriptedGroups(lambda _: None)
    exchange = await leaving(groups, parts=3)
    (first, tell_first), (_, tell_second), (third, tell_third) = groups.parked
    tell_first(left(first))
    tell_second(LeaveGroupOutcome(error=ErrorCode.not_coordinator))
    tell_third(left(third))
    assert exchange.response.error_code is ErrorCode.not_coordinator
    assert exchange.response.members == ()


@pytest.mark.parametrize("number", [0, 1, MEMBERS_AT_ONCE])
async def test_leaves_of_one_command_are_limited(number: int) -> None:
    groups = ScriptedGroups(left)
    exchange = await leaving(groups, parts=1, names=NAMES[:number])
    await until(lambda: bool(exchange.answers))
    assert len(groups.commands) == 1
    assert [each.member_id for each in exchange.response.members] == NAMES[:number]
