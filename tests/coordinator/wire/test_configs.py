"""IncrementalAlterConfigs and DescribeConfigs: the configs of groups, and of other resources in the same request."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    AnyRequest,
    ConfigChange,
    ConfigOperation,
    DescribeGroupConfig,
)
from muster.coordinator.group.configs import (
    EXPANSION_DELAY,
    GROUP_CONFIGS,
    LEARNERS,
    MEMBERS,
    MOVE,
    REGISTERED,
    REPAIR,
    TARGET_GROUP_SIZE,
    ConfigType,
)
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    DescribeGroupConfigOutcome,
    GroupDamage,
    GroupMove,
    ListedMember,
    MoveState,
    Outcome,
    Standing,
)
from muster.coordinator.wire.incremental_alter_configs import refusal
from muster.events.ids import GroupInstanceId, MemberId
from tests.coordinator.kio_client import Exchange, versions
from tests.coordinator.scripted import ScriptedGroups, new_service

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, NOBODYS = 2, 4, 8, 16, 32, 99
DEFAULT, DYNAMIC = 5, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
REFUSED = AlterGroupConfigOutcome(error=ErrorCode.invalid_config, message="target.group.size=0: too small")
MEMBER = ListedMember(
    group_instance_id=GroupInstanceId("a"),
    member_id=MemberId("a-1"),
    client_id="shop",
    client_host="/10.0.0.7",
    standing=Standing.ACTIVE,
    retiring=False,
    is_leader=True,
    session_left_ms=9_000,
    since_ms=1_700_000_000_000,
)
DESCRIBED = DescribeGroupConfigOutcome(
    values={TARGET_GROUP_SIZE: "3", EXPANSION_DELAY: "30000", REGISTERED: "b,c"}, members=(MEMBER,)
)

ALTER = pytest.mark.parametrize("version", versions("IncrementalAlterConfigs"))
DESCRIBE = pytest.mark.parametrize("version", versions("DescribeConfigs", 1))


def change(name: str, value: str | None, operation: int = SET) -> dict[str, Any]:
    return {"name": name, "config_operation": operation, "value": value}


def resource(name: str, *configs: dict[str, Any], kind: int = GROUP) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def altering(outcome: Callable[[AnyRequest], Outcome | None] | None = None) -> ScriptedGroups:
    return ScriptedGroups(outcome or (lambda _command: AlterGroupConfigOutcome(error=ErrorCode.none)))


def alter(
    groups: ScriptedGroups, version: int, *resources: dict[str, Any], validate_only: bool = False
) -> list[tuple[ErrorCode, str | None]]:
    """The error and message of each resource, in the order of the request."""
    exchange = Exchange(
        new_service(groups), "IncrementalAlterConfigs", version, resources=resources, validate_only=validate_only
    )
    answered = exchange.response.responses
    assert [(each.resource_type, each.resource_name) for each in answered] == [
        (each["resource_type"], each["resource_name"]) for each in resources
    ]
    return [(each.error_code, each.error_message) for each in answered]


# ---- IncrementalAlterConfigs --------------------------------------------------------------------


def test_a_resource_has_a_thousand_changes_at_most() -> None:
    changes = [SimpleNamespace(**change(f"c{number}", "1")) for number in range(1_001)]
    requested: Any = SimpleNamespace(resource_type=GROUP, resource_name="orders", configs=changes)
    assert refusal(requested) == "1001 changes of one resource; the limit is 1000."
    requested.configs = changes[1:]
    assert refusal(requested) is None


@ALTER
@pytest.mark.parametrize("validate_only", [False, True])
def test_the_changes_of_a_group_are_one_command(version: int, validate_only: bool) -> None:
    """In order; the value sent with a deletion is ignored."""
    groups = altering()
    changes = (
        change(TARGET_GROUP_SIZE, "3"),
        change(EXPANSION_DELAY, "", DELETE),
        change(REGISTERED, "a,b", APPEND),
        change(LEARNERS, "c", SUBTRACT),
        change("no.such.setting", "1"),
        change(TARGET_GROUP_SIZE, "4"),
    )
    assert alter(groups, version, resource("orders", *changes), validate_only=validate_only) == [(ErrorCode.none, None)]
    (command,) = groups.commands
    assert isinstance(command, AlterGroupConfig)
    assert (command.group_id, command.validate_only) == ("orders", validate_only)
    assert (command.caller.api_key, command.caller.api_version, command.caller.client_id) == (44, version, "shop")
    assert command.changes == (
        ConfigChange(name=TARGET_GROUP_SIZE, operation=ConfigOperation.SET, value="3"),
        ConfigChange(name=EXPANSION_DELAY, operation=ConfigOperation.DELETE, value=None),
        ConfigChange(name=REGISTERED, operation=ConfigOperation.APPEND, value="a,b"),
        ConfigChange(name=LEARNERS, operation=ConfigOperation.SUBTRACT, value="c"),
        ConfigChange(name="no.such.setting", operation=ConfigOperation.SET, value="1"),
        ConfigChange(name=TARGET_GROUP_SIZE, operation=ConfigOperation.SET, value="4"),
    )


@ALTER
def test_each_group_has_its_own_answer(version: int) -> None:
    groups = altering(
        lambda command: REFUSED if command.group_id == "b" else AlterGroupConfigOutcome(error=ErrorCode.none)
    )
    answers = alter(groups, version, *(resource(name, change(TARGET_GROUP_SIZE, "0")) for name in ("a", "b", "c")))
    assert answers == [(ErrorCode.none, None), (REFUSED.error, REFUSED.message), (ErrorCode.none, None)]
    assert len({command.caller.request_id for command in groups.commands}) == 3


def test_the_answer_waits_for_the_last_group() -> None:
    """Results are in the order of the request."""
    groups = altering(lambda _command: None)
    resources = [resource("a", change(TARGET_GROUP_SIZE, "1")), resource("b", change(TARGET_GROUP_SIZE, "1"))]
    exchange = Exchange(new_service(groups), "IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
    groups.parked.reverse()
    groups.release(REFUSED)
    assert exchange.answers == []
    groups.release(AlterGroupConfigOutcome(error=ErrorCode.none))
    assert [each.error_code for each in exchange.response.responses] == [ErrorCode.none, ErrorCode.invalid_config]


@ALTER
def test_a_resource_that_is_named_twice_is_refused(version: int) -> None:
    """Both times, and its group is not asked; a topic of the same name is another resource."""
    groups = altering()
    twice = resource("a", change(TARGET_GROUP_SIZE, "1"))
    answers = alter(groups, version, twice, resource("b"), twice, resource("a", kind=TOPIC))
    refused = (ErrorCode.invalid_request, "Each resource must appear at most once.")
    assert answers[:3] == [refused, (ErrorCode.none, None), refused]
    assert [command.group_id for command in groups.commands] == ["b"]
    assert "topic 'a'" in str(answers[3][1])


@ALTER
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            resource("orders", kind=TOPIC),
            "The configs of topic 'orders' cannot be altered here, only those of groups.",
        ),
        (resource("1", kind=BROKER), "The configs of broker '1' cannot be altered here, only those of groups."),
        (resource("", kind=BROKER), "The configs of broker '' cannot be altered here, only those of groups."),
        (
            resource("all", kind=CLIENT_METRICS),
            "The configs of client metrics 'all' cannot be altered here, only those of groups.",
        ),
        (
            resource("x", kind=NOBODYS),
            "The configs of resource type 99 'x' cannot be altered here, only those of groups.",
        ),
        (resource("", change(TARGET_GROUP_SIZE, "1")), "Default group resources are not allowed."),
        (
            resource("g", change(TARGET_GROUP_SIZE, None), change(LEARNERS, None, APPEND), change(REGISTERED, "a")),
            "Null value not supported for : target.group.size, members.learners",
        ),
        (resource("g", change(TARGET_GROUP_SIZE, "1", 4)), "Unknown operations type 4"),
        (resource("g", change(TARGET_GROUP_SIZE, "1", -1)), "Unknown operations type -1"),
    ],
)
def test_a_request_about_no_group_is_an_invalid_request(version: int, asked: dict[str, Any], message: str) -> None:
    groups = altering()
    assert alter(groups, version, asked) == [(ErrorCode.invalid_request, message)]
    assert groups.commands == []


@ALTER
def test_a_deletion_needs_no_value(version: int) -> None:
    groups = altering()
    assert alter(groups, version, resource("g", change(LEARNERS, None, DELETE))) == [(ErrorCode.none, None)]


# ---- DescribeConfigs ----------------------------------------------------------------------------


def describing(outcome: DescribeGroupConfigOutcome = DESCRIBED) -> ScriptedGroups:
    return ScriptedGroups(lambda _command: outcome)


def describe(
    version: int,
    name: str = "orders",
    keys: tuple[str, ...] | None = None,
    *,
    kind: int = GROUP,
    groups: ScriptedGroups | None = None,
    **wishes: bool,
) -> Any:
    """The result for one resource."""
    request = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    wished: dict[str, Any] = {"include_synonyms": False, "include_documentation": False, **wishes}
    exchange = Exchange(new_service(groups or describing()), "DescribeConfigs", version, resources=[request], **wished)
    (result,) = exchange.response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


DAMAGE = GroupDamage(partition=3, unreadable=(), generation_id=None, members=2, registered=("c",), configs={})


def test_the_losses_of_a_repair_are_returned_to_its_requester() -> None:
    """The configs of a quarantined group cannot be described: a request for them gets the error."""
    quarantined = DescribeGroupConfigOutcome(error=ErrorCode.coordinator_not_available, damage=DAMAGE)
    result = describe(4, keys=(REPAIR,), groups=describing(quarantined))
    assert result.error_code is ErrorCode.none
    (entry,) = result.configs
    assert (entry.name, msgspec.json.decode(entry.value, type=GroupDamage)) == (REPAIR, DAMAGE)
    for keys in (None, (), (TARGET_GROUP_SIZE,)):
        result = describe(4, keys=keys, groups=describing(quarantined))
        assert (result.error_code, result.configs) == (ErrorCode.coordinator_not_available, ())


MOVED = GroupMove(to="upstream", state=MoveState.DONE, members=3, told=3, back=3, took_ms=40)


def test_the_progress_of_a_move_is_returned_on_request() -> None:
    """And if there is a move."""
    moving = describing(msgspec.structs.replace(DESCRIBED, move=MOVED))
    (entry,) = describe(4, keys=(MOVE,), groups=moving).configs
    assert (entry.name, msgspec.json.decode(entry.value, type=GroupMove)) == (MOVE, MOVED)
    assert describe(4, keys=(MOVE,)).configs == ()
    assert MOVE not in {each.name for each in describe(4, groups=moving).configs}


def test_an_old_version_returns_what_fits_into_its_strings() -> None:
    """32,767 bytes, and not one more."""
    for size, error in ((32_767, ErrorCode.none), (32_768, ErrorCode.invalid_request)):
        outcome = msgspec.structs.replace(DESCRIBED, values={REGISTERED: "b" * size})
        assert describe(3, keys=(REGISTERED,), groups=describing(outcome)).error_code is error
        assert describe(4, keys=(REGISTERED,), groups=describing(outcome)).error_code is ErrorCode.none


@DESCRIBE
def test_every_setting_of_a_group_is_returned(version: int) -> None:
    """In the order of the table: value, source and type; never `members`, and nothing that was not requested."""
    groups = describing()
    result = describe(version, groups=groups)
    assert (result.error_code, result.error_message) == (ErrorCode.none, None)
    reported = {each.name: (each.value, each.config_source) for each in result.configs}
    assert list(reported) == list(GROUP_CONFIGS)
    assert reported[TARGET_GROUP_SIZE] == ("3", DYNAMIC)
    assert reported[EXPANSION_DELAY] == ("30000", DYNAMIC)
    assert reported[REGISTERED] == ("b,c", DYNAMIC)
    assert reported["members.registration.timeout.ms"] == ("300000", DEFAULT)
    assert reported["members.learner.timeout.ms"] == (None, DEFAULT), "a number that is off has no value"
    assert reported[LEARNERS] == reported["members.rebalance"] == ("", DEFAULT)
    for each in result.configs:
        assert (each.read_only, each.is_sensitive, each.synonyms) == (False, False, ())
        if version >= 3:
            assert each.config_type == GROUP_CONFIGS[each.name].type
            assert each.documentation is None
    (command,) = groups.commands
    assert isinstance(command, DescribeGroupConfig)
    assert (command.group_id, command.caller.api_key) == ("orders", 32)


@DESCRIBE
def test_synonyms_list_the_overridden_values(version: int) -> None:
    configs = {each.name: each for each in describe(version, include_synonyms=True).configs}
    reported = {
        name: [(synonym.name, synonym.value, synonym.source) for synonym in configs[name].synonyms]
        for name in (TARGET_GROUP_SIZE, EXPANSION_DELAY, LEARNERS)
    }
    assert reported == {
        TARGET_GROUP_SIZE: [(TARGET_GROUP_SIZE, "3", DYNAMIC)],
        EXPANSION_DELAY: [(EXPANSION_DELAY, "30000", DYNAMIC), (EXPANSION_DELAY, "0", DEFAULT)],
        LEARNERS: [(LEARNERS, "", DEFAULT)],
    }


@pytest.mark.parametrize("version", versions("DescribeConfigs", 3))
def test_documentation_is_returned_on_request(version: int) -> None:
    reported = describe(version, keys=(TARGET_GROUP_SIZE, MEMBERS), include_documentation=True).configs
    assert [each.documentation for each in reported] == [
        GROUP_CONFIGS[TARGET_GROUP_SIZE].documentation,
        "The group's members and its expected instances, as JSON.",
    ]


@DESCRIBE
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (None, list(GROUP_CONFIGS)),
        ((), list(GROUP_CONFIGS)),
        ((LEARNERS, TARGET_GROUP_SIZE, LEARNERS), [TARGET_GROUP_SIZE, LEARNERS]),
        (("consumer.session.timeout.ms",), []),
        ((MEMBERS,), [MEMBERS]),
    ],
)
def test_keys_limit_the_returned_configs(version: int, keys: tuple[str, ...] | None, expected: list[str]) -> None:
    """No keys means all keys, an unknown one is ignored; as in Kafka."""
    assert [each.name for each in describe(version, keys=keys).configs] == expected


@DESCRIBE
def test_members_are_returned_when_requested_by_name(version: int) -> None:
    """Read-only; a JSON object for each."""
    (reported,) = describe(version, keys=(MEMBERS,), include_synonyms=True).configs
    assert (reported.name, reported.read_only, reported.config_source, reported.synonyms) == (
        MEMBERS,
        True,
        DYNAMIC,
        (),
    )
    assert msgspec.json.decode(reported.value, type=tuple[ListedMember, ...]) == (MEMBER,)
    assert msgspec.json.decode(reported.value)[0]["standing"] == "Active"
    if version >= 3:
        assert reported.config_type == ConfigType.STRING


@DESCRIBE
def test_an_undescribable_group_has_only_an_error(version: int) -> None:
    loading = describing(DescribeGroupConfigOutcome(error=ErrorCode.coordinator_load_in_progress))
    result = describe(version, groups=loading)
    assert (result.error_code, result.configs) == (ErrorCode.coordinator_load_in_progress, ())


@DESCRIBE
@pytest.mark.parametrize(
    ("kind", "name", "error", "message"),
    [
        (TOPIC, "orders", ErrorCode.none, None),
        (TOPIC, "nope", ErrorCode.unknown_topic_or_partition, None),
        (TOPIC, "no topic", ErrorCode.invalid_topic_exception, "'no topic' is not a topic name"),
        (BROKER, "1", ErrorCode.none, None),
        (BROKER, "", ErrorCode.none, None),
        (
            BROKER,
            "2",
            ErrorCode.invalid_request,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (
            BROKER_LOGGER,
            "1",
            ErrorCode.invalid_request,
            "The configs of broker logger '1' cannot be described here.",
        ),
        (NOBODYS, "x", ErrorCode.invalid_request, "The configs of resource type 99 'x' cannot be described here."),
        (GROUP, "", ErrorCode.invalid_request, "Group name must not be empty"),
    ],
)
def test_other_resources_have_no_settings(
    version: int, kind: int, name: str, error: ErrorCode, message: str | None
) -> None:
    """A declared topic and this node exist all the same."""
    groups = describing()
    result = describe(version, name, kind=kind, groups=groups)
    assert (result.error_code, result.error_message, result.configs) == (error, message, ())
    assert groups.commands == []


def test_resources_are_returned_in_request_order_and_once() -> None:
    """The members of a group may be a thousand times longer than its name."""
    requested = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name, keys in (
            (GROUP, "a", None),
            (TOPIC, "orders", None),
            (GROUP, "b", None),
            (GROUP, "a", None),
            (GROUP, "b", ("members",)),
        )
    ]
    groups = ScriptedGroups(lambda _command: None)
    wishes: dict[str, Any] = {"include_synonyms": False, "include_documentation": False}
    exchange = Exchange(new_service(groups), "DescribeConfigs", 4, resources=requested, **wishes)
    assert exchange.answers == []
    for _ in range(2):
        groups.release(DESCRIBED)
    results = exchange.response.results
    assert [each.resource_name for each in results] == ["a", "orders", "b", "b"]
    assert results[-1].error_code is ErrorCode.invalid_request
    assert results[-1].error_message == "Each resource must appear at most once."
