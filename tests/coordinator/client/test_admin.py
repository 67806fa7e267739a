"""The administrator's functions against a server on a socket: their requests, and how they interpret the responses."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.client.coordinator_link import InvalidArgument, OutcomeUnknown, Refused
from muster.coordinator.client.group_admin import GroupAdmin, MemberResult
from muster.coordinator.group.commands import (
    AlterGroupConfig,
    AnyRequest,
    ConfigChange,
    ConfigOperation,
    DescribeGroup,
    DescribeGroupConfig,
    LeaveGroup,
)
from muster.coordinator.group.configs import GROUP_CONFIGS
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    DescribedMember,
    DescribeGroupConfigOutcome,
    DescribeGroupOutcome,
    LeaveGroupOutcome,
    LeftMember,
    ListedMember,
    Outcome,
    Standing,
)
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.running_server import Running, running

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
DONE = AlterGroupConfigOutcome(error=ErrorCode.none)
TWICE = AlterGroupConfigOutcome(error=ErrorCode.duplicate_resource, message="members.registered: 'b' is there already")
UNKNOWN_GROUP = DescribeGroupOutcome(error=ErrorCode.group_id_not_found, state=GroupState.DEAD)
EMPTY_GROUP = DescribeGroupOutcome(state=GroupState.EMPTY)

Outcomes = Callable[[AnyRequest], Outcome | None]


@asynccontextmanager
async def administered(outcome: Outcomes) -> AsyncIterator[tuple[GroupAdmin, Running]]:
    """An administrator connected to a server that returns these outcomes."""
    async with running() as server:
        server.groups.outcome = outcome
        async with GroupAdmin(f"127.0.0.1:{server.server.port}", limit_ms=5_000) as admin:
            yield admin, server


def change(name: str, operation: ConfigOperation, value: str | None) -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value)


def altered(server: Running) -> list[tuple[tuple[ConfigChange, ...], bool]]:
    """The requested changes, each with its `validate_only`."""
    commands = [command for command in server.groups.commands if isinstance(command, AlterGroupConfig)]
    assert {command.group_id for command in commands} <= {"orders"}
    return [(command.changes, command.validate_only) for command in commands]


def done(*members: str) -> tuple[MemberResult, ...]:
    return tuple(MemberResult(member=each, done=True, error=ErrorCode.none, message=None) for each in members)


def altering(reported: AlterGroupConfigOutcome) -> Outcomes:
    """Return this outcome for each change, in a group that does not exist."""

    def outcome(command: AnyRequest) -> Outcome:
        if isinstance(command, DescribeGroupConfig):
            return DescribeGroupConfigOutcome(values={})
        return UNKNOWN_GROUP if isinstance(command, DescribeGroup) else reported

    return outcome


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (
            lambda admin: admin.add_members_to_group("orders", ["a", "b"]),
            [change("members.registered", APPEND, "a,b")],
        ),
        (
            lambda admin: admin.add_members_to_group("orders", ["a", "b"], timeout_ms=60_000),
            [change("members.registered", APPEND, "a,b"), change("members.registration.timeout.ms", SET, "60000")],
        ),
        (
            lambda admin: admin.withdraw_registrations("orders", ["a", "b"]),
            [change("members.registered", SUBTRACT, "a,b")],
        ),
        (lambda admin: admin.retire_members("orders", ["a", "b"]), [change("members.retired", APPEND, "a,b")]),
        (
            lambda admin: admin.retire_members("orders", ["a", "b"], timeout_ms=1),
            [change("members.retired", APPEND, "a,b"), change("members.retirement.timeout.ms", SET, "1")],
        ),
        (lambda admin: admin.keep_members("orders", ["a", "b"]), [change("members.retired", SUBTRACT, "a,b")]),
        (lambda admin: admin.promote_learners("orders", ["a", "b"]), [change("members.learners", SUBTRACT, "a,b")]),
    ],
)
async def test_members_are_one_batch(
    call: Callable[[GroupAdmin], Awaitable[tuple[MemberResult, ...]]], changes: list[ConfigChange]
) -> None:
    """One request; each member gets a result."""
    async with administered(lambda _command: DONE) as (admin, server):
        assert await call(admin) == done("a", "b")
        assert altered(server) == [(tuple(changes), False)]


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (lambda admin: admin.promote_all_learners("orders"), [change("members.learners", DELETE, None)]),
        (lambda admin: admin.rebalance_group("orders"), [change("members.rebalance", SET, "static")]),
        (lambda admin: admin.rebalance_group("orders", force=True), [change("members.rebalance", SET, "force")]),
        (lambda admin: admin.set_target_group_size("orders", 6), [change("target.group.size", SET, "6")]),
        (lambda admin: admin.set_target_group_size("orders", None), [change("target.group.size", DELETE, None)]),
        (lambda admin: admin.set_expansion_delay("orders", 5), [change("members.expansion.delay.ms", SET, "5")]),
        (
            lambda admin: admin.set_unassigned_rebalance_delay("orders", 5),
            [change("members.unassigned.rebalance.delay.ms", SET, "5")],
        ),
        (lambda admin: admin.set_learner_timeout("orders", 7), [change("members.learner.timeout.ms", SET, "7")]),
        (
            lambda admin: admin.alter_group_config("orders", {"target.group.size": "2", "members.learners": None}),
            [change("target.group.size", SET, "2"), change("members.learners", DELETE, None)],
        ),
    ],
)
async def test_settings_are_one_batch(
    call: Callable[[GroupAdmin], Awaitable[None]], changes: list[ConfigChange]
) -> None:
    """A refused batch raises an error with Kafka's code and the coordinator's message."""
    refused = AlterGroupConfigOutcome(error=ErrorCode.invalid_config, message="target.group.size=0: too small")
    async with administered(altering(DONE)) as (admin, server):
        await call(admin)
        assert altered(server) == [(tuple(changes), False)]
        server.groups.outcome = altering(refused)
        with pytest.raises(Refused, match=r"group orders: INVALID_CONFIG: target\.group\.size=0: too small") as raised:
            await call(admin)
    assert raised.value.error is ErrorCode.invalid_config


def refuses(*culprits: str) -> Outcomes:
    """Refuse every batch that contains one of these."""

    def outcome(command: AnyRequest) -> Outcome:
        assert isinstance(command, AlterGroupConfig)
        named = str(command.changes[0].value).split(",")
        return TWICE if set(named) & set(culprits) else DONE

    return outcome


async def test_a_refused_batch_is_retried_member_by_member() -> None:
    """Each member is validated with everything requested for it and gets its own result; nothing is changed for any."""
    async with administered(refuses("b")) as (admin, server):
        first, second, third = await admin.add_members_to_group("orders", ["a", "b", "c"], timeout_ms=9)
        timeout = change("members.registration.timeout.ms", SET, "9")
        assert altered(server) == [
            ((change("members.registered", APPEND, "a,b,c"), timeout), False),
            *(((change("members.registered", APPEND, name), timeout), True) for name in ("a", "b", "c")),
        ]
    assert second == MemberResult(member="b", done=False, error=ErrorCode.duplicate_resource, message=TWICE.message)
    assert second.reason == "DUPLICATE_RESOURCE: members.registered: 'b' is there already"
    for each in (first, third):
        assert (each.done, each.error, each.message) == (False, ErrorCode.none, None)
        assert each.reason == "not done because others of the batch were refused; it could be done alone"


async def test_a_batch_that_is_too_much_as_a_whole_is_refused_for_each() -> None:
    """Even if each of them would be accepted alone."""
    crowded = AlterGroupConfigOutcome(error=ErrorCode.group_max_size_reached, message="group.max.size=3")
    async with administered(
        lambda command: DONE if isinstance(command, AlterGroupConfig) and command.validate_only else crowded
    ) as (admin, _):
        results = await admin.add_members_to_group("orders", ["a", "b"])
    assert {(each.done, each.error, each.message) for each in results} == {(False, crowded.error, crowded.message)}


async def test_a_single_member_is_requested_once() -> None:
    async with administered(refuses("b")) as (admin, server):
        (result,) = await admin.retire_members("orders", ["b"])
        assert len(altered(server)) == 1
    assert (result.done, result.error) == (False, ErrorCode.duplicate_resource)


async def test_an_unknown_group_is_not_a_member_error() -> None:
    unknown = AlterGroupConfigOutcome(error=ErrorCode.group_id_not_found, message="there is no group 'orders'")
    async with administered(altering(unknown)) as (admin, server):
        with pytest.raises(Refused, match="group orders: GROUP_ID_NOT_FOUND: there is no group 'orders'"):
            await admin.add_members_to_group("orders", ["a", "b"])
        assert len(altered(server)) == 1


# ---- removals, and descriptions of a group ------------------------------------------------------


def left(gone: Iterable[tuple[str, str | None]], *, group: Outcome = EMPTY_GROUP, **errors: ErrorCode) -> Outcomes:
    """Removes the named members (member id, instance id); `errors` by instance id; all others are unknown."""
    there = set(gone)

    def error(member_id: str, instance_id: str | None) -> ErrorCode:
        if (member_id, instance_id) in there:
            return ErrorCode.none
        return errors.get(instance_id or "", ErrorCode.unknown_member_id)

    def outcome(command: AnyRequest) -> Outcome:
        if isinstance(command, DescribeGroup):
            return group
        if isinstance(command, DescribeGroupConfig):
            return DescribeGroupConfigOutcome()
        assert isinstance(command, LeaveGroup)
        return LeaveGroupOutcome(
            members=tuple(
                LeftMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error=error(each.member_id, each.group_instance_id),
                )
                for each in command.members
            )
        )

    return outcome


async def test_members_are_removed_by_instance_id_or_member_id() -> None:
    """In one request with a result for each: some can be removed while others are unknown."""
    outcome = left([("", "static"), ("dynamic-1", None)], fenced=ErrorCode.fenced_instance_id)
    async with administered(outcome) as (admin, server):
        results = await admin.remove_members_from_group(
            "orders", ["static", "dynamic-1", "nobody", "fenced"], reason="disk full"
        )
        command, *_ = server.groups.commands
    assert isinstance(command, LeaveGroup)
    assert {each.reason for each in command.members} == {"disk full"}
    assert results[:2] == done("static", "dynamic-1")
    assert [(each.member, each.done, each.reason) for each in results[2:]] == [
        ("nobody", False, "UNKNOWN_MEMBER_ID: the group has no such member"),
        ("fenced", False, "FENCED_INSTANCE_ID"),
    ]


@pytest.mark.parametrize("exists", [True, False])
async def test_an_unknown_group_is_possible_if_no_member_is_known(exists: bool) -> None:
    """LeaveGroup does not distinguish the two cases."""
    async with administered(left([], group=EMPTY_GROUP if exists else UNKNOWN_GROUP)) as (admin, _):
        if exists:
            (result,) = await admin.remove_members_from_group("orders", ["nobody"])
            assert result.error is ErrorCode.unknown_member_id
        else:
            with pytest.raises(Refused, match="GROUP_ID_NOT_FOUND"):
                await admin.remove_members_from_group("orders", ["nobody"])


async def test_an_answer_about_other_members_is_ignored() -> None:
    def outcome(_: AnyRequest) -> Outcome:
        other = LeftMember(member_id=MemberId("b"), group_instance_id=None, error=ErrorCode.none)
        return LeaveGroupOutcome(members=(other,))

    async with administered(outcome) as (admin, _):
        with pytest.raises(OutcomeUnknown, match="about other members"):
            await admin.remove_members_from_group("orders", ["a"])


LISTED = ListedMember(
    group_instance_id=GroupInstanceId("a"),
    member_id=MemberId("a-1"),
    client_id="shop",
    client_host="/10.0.0.7",
    standing=Standing.STANDBY,
    retiring=True,
    is_leader=False,
    session_left_ms=9_000,
    since_ms=1_700_000_000_000,
)


async def test_members_are_listed_as_the_rules_return_them() -> None:
    async with administered(lambda _command: DescribeGroupConfigOutcome(members=(LISTED, LISTED))) as (admin, server):
        assert await admin.list_members("orders") == (LISTED, LISTED)
        (command,) = server.groups.commands
        assert isinstance(command, DescribeGroupConfig)


@pytest.mark.parametrize("exists", [True, False])
async def test_a_group_without_members_may_not_exist(exists: bool) -> None:
    def outcome(command: AnyRequest) -> Outcome:
        if isinstance(command, DescribeGroupConfig):
            return DescribeGroupConfigOutcome()
        return EMPTY_GROUP if exists else UNKNOWN_GROUP

    async with administered(outcome) as (admin, _):
        if exists:
            assert await admin.list_members("orders") == ()
        else:
            with pytest.raises(Refused, match="group orders: GROUP_ID_NOT_FOUND"):
                await admin.list_members("orders")


@pytest.mark.parametrize(
    ("protocol_type", "told"),
    [
        ("consumer", r"it has members upstream \(type consumer\); ask the brokers, or .* muster adopt orders"),
        ("muster", "is coordinated by another Muster: ask that one"),
    ],
)
async def test_a_group_with_members_upstream_is_not_reported_as_empty(protocol_type: str, told: str) -> None:
    member = DescribedMember(
        member_id=MemberId("m"),
        group_instance_id=None,
        client_id="app",
        client_host="/10.0.0.7",
        metadata=b"",
        assignment=b"",
    )
    described = msgspec.structs.replace(EMPTY_GROUP, protocol_type=protocol_type, members=(member,))

    def outcome(command: AnyRequest) -> Outcome:
        return DescribeGroupConfigOutcome() if isinstance(command, DescribeGroupConfig) else described

    async with administered(outcome) as (admin, _):
        with pytest.raises(Refused, match=f"^group orders .*{told}"):
            await admin.list_members("orders")


async def test_a_change_of_a_group_with_members_upstream_says_where_they_are() -> None:
    """Muster has no such group then; "does not exist" would mislead."""
    unknown = AlterGroupConfigOutcome(error=ErrorCode.group_id_not_found)
    member = DescribedMember(
        member_id=MemberId("m"), group_instance_id=None, client_id="", client_host="", metadata=b"", assignment=b""
    )
    described = msgspec.structs.replace(EMPTY_GROUP, protocol_type="consumer", members=(member,))

    def outcome(command: AnyRequest) -> Outcome:
        if isinstance(command, AlterGroupConfig):
            return unknown
        return DescribeGroupConfigOutcome() if isinstance(command, DescribeGroupConfig) else described

    async with administered(outcome) as (admin, _):
        with pytest.raises(Refused, match=r"^group orders .*it has members upstream"):
            await admin.set_target_group_size("orders", 3)


async def test_every_setting_is_shown_with_its_source() -> None:
    values = {"target.group.size": "3", "members.registered": "b,c"}
    async with administered(lambda _command: DescribeGroupConfigOutcome(values=values)) as (admin, _):
        settings = {each.name: each for each in await admin.describe_group_config("orders")}
    assert list(settings) == list(GROUP_CONFIGS)
    assert {name: each.value for name, each in settings.items() if each.is_set} == values
    assert settings["members.expansion.delay.ms"].value == "0"
    assert settings["members.learner.timeout.ms"].value is None
    assert all(each.documentation == GROUP_CONFIGS[name].documentation for name, each in settings.items())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no member is named"),
        (["a", ""], "empty name"),
        (["a", "b", "a"], "'a' is named twice"),
        (["a", "b", "b"], "'b' is named twice"),
        (["a", "b,c"], "'b,c' cannot be named in a list"),
    ],
)
async def test_names_that_make_no_sense_are_not_sent(names: list[str], message: str) -> None:
    async with administered(lambda _command: DONE) as (admin, server):
        calls: list[Callable[[str, list[str]], Awaitable[Any]]] = [admin.add_members_to_group, admin.keep_members]
        for call in calls:
            with pytest.raises(InvalidArgument, match=message):
                await call("orders", names)
        with pytest.raises(InvalidArgument, match="no config is named"):
            await admin.alter_group_config("orders", {})
        assert server.groups.commands == []
