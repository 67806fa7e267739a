"""Configs of a group: accepted values, refusals with their reasons, and descriptions."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import ConfigOperation
from muster.coordinator.group.configs import (
    COORDINATOR,
    DAY_MS,
    DIGITS_MAX,
    EXPANSION_DELAY,
    GROUP_CONFIGS,
    LEARNER_TIMEOUT,
    LEARNERS,
    LIST_LENGTH_MAX,
    REBALANCE,
    REGISTERED,
    REGISTRATION_TIMEOUT,
    RETIRED,
    RETIREMENT_TIMEOUT,
    TARGET_GROUP_SIZE,
    BadConfig,
    ConfigType,
    coordinator,
    number,
)
from muster.coordinator.group.outcomes import ListedMember, Standing
from muster.events.causes import Cause
from muster.events.events import GroupConfigured, GroupDeleted, RegistrationEnded
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import NOT_CONFIGURED, GroupState
from tests.coordinator.group.client import protocols, subscription
from tests.coordinator.group.harness import Harness
from tests.coordinator.group.test_registration import starts

SET, APPEND, SUBTRACT, DELETE = (
    ConfigOperation.SET,
    ConfigOperation.APPEND,
    ConfigOperation.SUBTRACT,
    ConfigOperation.DELETE,
)

REFUSED = [
    ("members.nonsense", SET, "1", ErrorCode.invalid_config, "members.nonsense"),
    ("max.size", SET, "1", ErrorCode.invalid_config, "max.size: there is no such config of a group here"),
    ("target.group.sise", SET, "2", ErrorCode.invalid_config, "of a group here; did you mean target.group.size?"),
    (TARGET_GROUP_SIZE, SET, "0", ErrorCode.invalid_config, "target.group.size=0: should be a whole number from 1"),
    (TARGET_GROUP_SIZE, SET, "many", ErrorCode.invalid_config, "target.group.size=many"),
    (TARGET_GROUP_SIZE, APPEND, "1", ErrorCode.invalid_config, "not a LIST"),
    (EXPANSION_DELAY, SET, "-1", ErrorCode.invalid_config, "-1"),
    (EXPANSION_DELAY, SET, str(DAY_MS + 1), ErrorCode.invalid_config, str(DAY_MS)),
    (LEARNER_TIMEOUT, SET, "0", ErrorCode.invalid_config, "from 1"),
    (REGISTRATION_TIMEOUT, SET, "0", ErrorCode.invalid_config, "from 1"),
    (RETIREMENT_TIMEOUT, SET, "٣", ErrorCode.invalid_config, "whole number"),
    (REGISTERED, APPEND, "a", ErrorCode.duplicate_resource, "a-1 at 10.0.0.1"),
    (REGISTERED, APPEND, "x,x", ErrorCode.duplicate_resource, "twice"),
    (REGISTERED, APPEND, "x,y,y", ErrorCode.duplicate_resource, "'y' is named twice"),
    (REGISTERED, APPEND, "no blanks", ErrorCode.invalid_config, "no instance id"),
    (REGISTERED, APPEND, "i" * 250, ErrorCode.invalid_config, "249"),
    (REGISTERED, SUBTRACT, "x", ErrorCode.unknown_member_id, "group 'orders' has no member 'x'"),
    (REGISTERED, SUBTRACT, "a", ErrorCode.invalid_request, "'a' is not expected: it is an active member"),
    (RETIRED, SUBTRACT, "a", ErrorCode.invalid_request, "'a' is not retiring: it is an active member"),
    (RETIRED, APPEND, "aa", ErrorCode.unknown_member_id, "has no member 'aa'; did you mean a?"),
    (RETIRED, APPEND, "a-1", ErrorCode.invalid_request, "it is the member id of 'a'"),
    (LEARNERS, SUBTRACT, "a", ErrorCode.invalid_request, "'a' is not a learner: it is an active member"),
    (REGISTERED, SET, ",".join(f"i{n}" for n in range(10_000)), ErrorCode.invalid_config, "30000 at most"),
    (TARGET_GROUP_SIZE, SET, "9" * 10_000, ErrorCode.invalid_config, "whole number"),
    (REBALANCE, SET, "now", ErrorCode.invalid_config, "'static' or 'force'"),
    (REBALANCE, SET, "static", ErrorCode.invalid_request, "'force'"),
]


def test_a_number_may_have_as_many_digits_as_the_longest() -> None:
    """Leading zeros change nothing; text with more digits than any number is refused."""
    h = Harness()
    h.stable_group(h.static("a"))
    assert h.alter((EXPANSION_DELAY, SET, "5".zfill(DIGITS_MAX))).error is ErrorCode.none
    assert h.live.config.expansion_delay_ms == 5
    assert h.alter((EXPANSION_DELAY, SET, "5".zfill(DIGITS_MAX + 1))).error is ErrorCode.invalid_config


def test_a_list_is_limited_by_the_length_of_one_value() -> None:
    """Each name also takes a comma, and names that are withdrawn make room."""
    h = Harness()
    h.stable_group(h.static("a"))
    names = [f"{n:0249}" for n in range(LIST_LENGTH_MAX // 250)]
    h.set(members_registered=",".join(names[:-1]))
    assert h.alter((REGISTERED, APPEND, f"{names[-1]},b")).error is ErrorCode.invalid_config
    assert h.alter((REGISTERED, APPEND, names[-1])).error is ErrorCode.none
    assert h.alter((REGISTERED, APPEND, "b")).error is ErrorCode.invalid_config
    assert h.alter((REGISTERED, SET, ",".join([*names[1:], "b"]))).error is ErrorCode.none


@pytest.mark.parametrize(("name", "operation", "value", "error", "says"), REFUSED)
def test_invalid_values_are_refused_with_the_value_and_the_limit(
    name: str, operation: ConfigOperation, value: str, error: ErrorCode, says: str
) -> None:
    """Nothing is changed, including the other settings of the request."""
    h = Harness()
    h.stable_group(h.static("a"), h.dynamic())
    seen = len(h.events)
    call = h.alter(
        (EXPANSION_DELAY, SET, "5") if name != EXPANSION_DELAY else (LEARNER_TIMEOUT, SET, "5"),
        (name, operation, value),
    )
    assert call.error is error
    assert says in (call.outcome.message or "")
    assert len(h.events) == seen


def refusal(h: Harness, name: str, operation: ConfigOperation, value: str) -> str:
    """The reason of the refusal."""
    call = h.alter((name, operation, value))
    assert call.error is not ErrorCode.none
    return call.outcome.message or ""


def test_the_actual_type_of_a_name_is_reported() -> None:
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(members_registered="b,c")
    assert (
        refusal(h, RETIRED, APPEND, "b") == "members.retired: 'b' is not a member: it is expected, and has not joined"
    )
    assert refusal(h, REGISTERED, APPEND, "b") == "members.registered: 'b' is expected already"
    h.static("c").join()
    assert refusal(h, RETIRED, APPEND, "c").endswith(
        "'c' is not a member: it is expected, and its join waits for others"
    )
    h.set(members_retired="a")
    assert refusal(h, RETIRED, APPEND, "a") == "members.retired: 'a' is retiring already"
    assert refusal(h, LEARNERS, SUBTRACT, "a").endswith("is not a learner: it is an active member that is retiring")


def test_a_standby_is_not_a_learner() -> None:
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(target_group_size="1")
    h.static("b").join()
    assert refusal(h, LEARNERS, SUBTRACT, "b") == "members.learners: 'b' is not a learner: it is a standby"


def test_a_setting_named_twice_is_refused() -> None:
    """It would be ambiguous."""
    h = Harness()
    h.stable_group(h.static("a"))
    call = h.alter((TARGET_GROUP_SIZE, SET, "1"), (TARGET_GROUP_SIZE, SET, "2"))
    assert call.error is ErrorCode.invalid_request


def test_an_unknown_group_is_refused() -> None:
    """No group is created."""
    h = Harness()
    call = h.alter((TARGET_GROUP_SIZE, SET, "1"))
    assert call.error is ErrorCode.group_id_not_found
    assert "'orders'" in (call.outcome.message or "")
    assert h.group is None
    assert Harness(group_id="").alter((TARGET_GROUP_SIZE, SET, "1")).error is ErrorCode.invalid_group_id


def test_validate_only_changes_nothing() -> None:
    """It is validated all the same."""
    h = Harness()
    h.stable_group(h.static("a"))
    seen = len(h.events)
    assert h.alter((REGISTERED, APPEND, "b"), validate_only=True).error is ErrorCode.none
    assert h.alter((REGISTERED, APPEND, "a"), validate_only=True).error is ErrorCode.duplicate_resource
    assert len(h.events) == seen


def test_a_group_of_group_max_size_expects_no_instances() -> None:
    """KIP-389: no instance can be registered beyond the limit."""
    h = Harness(max_size=2)
    h.stable_group(h.static("a"))
    assert h.alter((REGISTERED, APPEND, "b")).error is ErrorCode.none
    call = h.alter((REGISTERED, APPEND, "c"))
    assert call.error is ErrorCode.group_max_size_reached
    assert "group.max.size=2" in (call.outcome.message or "")


def test_every_setting_is_shown_as_it_was_set_and_survives_a_takeover() -> None:
    """A deleted one is gone."""
    h = Harness()
    h.stable_group(h.static("a"))
    values = {
        definition.name: str(7_000 + place)
        for place, definition in enumerate(GROUP_CONFIGS.values())
        if definition.type is ConfigType.INT
    }
    h.alter(*((name, SET, value) for name, value in values.items()))
    h.takeover()
    assert h.describe_config().values == values
    h.alter(*((name, DELETE, None) for name in values))
    assert h.live.config == NOT_CONFIGURED
    assert h.records[-2].value is None, "nothing is left of the settings but a tombstone"


def test_defaults_are_values_that_may_be_set() -> None:
    """The table is consistent; "" is off."""
    for definition in GROUP_CONFIGS.values():
        if definition.type is ConfigType.INT and definition.default:
            assert str(number(definition, definition.default)) == definition.default


def test_limits_are_values_that_may_be_set() -> None:
    """Refusals quote them."""
    for definition in GROUP_CONFIGS.values():
        if definition.type is ConfigType.INT:
            for limit in (definition.minimum, definition.maximum):
                assert number(definition, f" {limit} ") == limit


@pytest.mark.parametrize("name", [REGISTRATION_TIMEOUT, RETIREMENT_TIMEOUT, LEARNER_TIMEOUT])
def test_any_time_is_a_timeout_and_none_is_not(name: str) -> None:
    """From 1 ms to a day. With none, the wait would have timed out before it began."""
    h = Harness()
    h.stable_group(h.static("a"))
    for value, error in (("1", ErrorCode.none), (str(DAY_MS), ErrorCode.none), ("0", ErrorCode.invalid_config)):
        assert h.alter((name, SET, value)).error is error
    assert h.describe_config().values == {name: str(DAY_MS)}


@pytest.mark.parametrize("name", [EXPANSION_DELAY, TARGET_GROUP_SIZE])
def test_a_delay_may_be_none_and_a_group_is_somebody(name: str) -> None:
    h = Harness()
    h.stable_group(h.static("a"))
    assert h.alter((name, SET, "0")).error is (ErrorCode.none if name == EXPANSION_DELAY else ErrorCode.invalid_config)
    assert h.alter((name, SET, "1")).error is ErrorCode.none


def test_a_refused_value_is_shown_whole_up_to_a_length() -> None:
    """A mistaken value can have any length."""
    for value, shown in (("m" * DIGITS_MAX, "m" * DIGITS_MAX), ("m" * (DIGITS_MAX + 1), "m" * DIGITS_MAX + "...")):
        with pytest.raises(BadConfig, match=f"^{COORDINATOR}={shown}: should be 'muster' or 'upstream'$"):
            coordinator(value)
        with pytest.raises(BadConfig, match=f"^{TARGET_GROUP_SIZE}={shown}: should be a whole number"):
            number(GROUP_CONFIGS[TARGET_GROUP_SIZE], value)


def test_deleting_a_group_deletes_what_was_planned_for_it() -> None:
    """Its plans are entities of their own in the log."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.set(members_registered="b,c", target_group_size="3")
    a.leave()
    events = h.delete().events
    assert [type(event) for event in events] == [RegistrationEnded, RegistrationEnded, GroupConfigured, GroupDeleted]
    h.stable_group(h.static("a"))
    assert h.live.config == NOT_CONFIGURED


def test_rebalance_on_demand() -> None:
    """forceStaticRebalance of the drafts."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.set(members_rebalance="static")
    assert starts(h)[1:] == [Cause.REBALANCE_REQUESTED]
    refused = h.alter((REBALANCE, SET, "static"))
    assert refused.error is ErrorCode.rebalance_in_progress
    assert "PreparingRebalance" in (refused.outcome.message or "")
    h.rejoin_all(a, b)
    assert h.live.generation_id == 2
    assert REBALANCE not in h.describe_config().values


def test_rebalance_on_demand_with_dynamic_members_has_to_be_forced() -> None:
    """They lose nothing that they would otherwise keep, but the request is for a static rebalance."""
    h = Harness()
    h.stable_group(h.static("a"), h.dynamic())
    assert h.alter((REBALANCE, SET, "force")).error is ErrorCode.none
    assert h.state is GroupState.PREPARING_REBALANCE


def test_rebalance_of_an_empty_group_is_refused() -> None:
    """It has no members to rebalance."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    assert h.alter((REBALANCE, SET, "force")).error is ErrorCode.invalid_request


def test_the_listing_shows_each_member_with_its_session() -> None:
    """Ids, host, standing, join time, and time until the session expires."""
    h = Harness()
    a, _b = h.stable_group(h.static("a", session_timeout_ms=30_000), h.dynamic())
    h.sleep(1_000)
    first = h.describe_config().members[0]
    assert (first.group_instance_id, first.member_id, first.client_id) == ("a", a.member_id, "app-a")
    assert (first.client_host, first.standing, first.is_leader) == ("/10.0.0.1", Standing.ACTIVE, True)
    assert (first.session_left_ms, first.join_left_ms) == (29_000, None)
    assert first.since_ms == h.live.members[a.member_id].joined_ms


def test_a_first_join_has_no_session_yet() -> None:
    """Only the limit for new members runs (K3), whatever its session timeout."""
    h = Harness()
    h.stable_group(h.dynamic())
    newcomer = h.static("b", session_timeout_ms=6_000)
    newcomer.join()
    h.sleep(1_000)
    (reported,) = (each for each in h.describe_config().members if each.group_instance_id == "b")
    assert (reported.session_left_ms, reported.join_left_ms) == (None, 299_000)


def test_a_member_with_a_parked_join_has_no_running_session() -> None:
    """It has waited for longer than its session (SE8): the end of the phase arms it again."""
    h = Harness()
    a, _b = h.stable_group(h.static("a", session_timeout_ms=6_000), h.static("b", session_timeout_ms=30_000))
    assert a.join(protocols=protocols("range", metadata=subscription("payments"))).parked
    h.sleep(10_000)
    reported = {each.group_instance_id: each.session_left_ms for each in h.describe_config().members}
    assert reported == {"a": None, "b": 20_000}


def test_the_listing_shows_waiting_and_expected_members() -> None:
    """Neither is a member: no session, not retiring, not the leader."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(members_registered="c,d")
    registered_ms = h.wall_ms
    h.sleep(700)
    c = h.static("c")
    c.join()
    arrived_ms = h.wall_ms
    h.sleep(300)
    c.join(member_id=next(iter(h.soft.held_joins)))
    _, waiting, expected = h.describe_config().members
    assert waiting == ListedMember(
        group_instance_id=GroupInstanceId("c"),
        member_id=next(iter(h.soft.held_joins)),
        client_id="app-c",
        client_host="/10.0.0.1",
        standing=Standing.WAITING,
        retiring=False,
        is_leader=False,
        session_left_ms=None,
        since_ms=arrived_ms,
    )
    assert expected == ListedMember(
        group_instance_id=GroupInstanceId("d"),
        member_id=MemberId(""),
        client_id="",
        client_host="",
        standing=Standing.EXPECTED,
        retiring=False,
        is_leader=False,
        session_left_ms=None,
        since_ms=registered_ms,
    )


def test_the_listing_of_an_unknown_group_is_empty() -> None:
    """The request is no error, as in Kafka."""
    assert Harness().describe_config().members == ()


def test_each_part_of_a_request_is_attributed_to_its_sender() -> None:
    """Withdrawing one registration completes another's; the rest of the request is still attributed to the
    administrator.
    """
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(members_registered="c,d")
    h.static("c").join()
    h.alter((REGISTERED, SUBTRACT, "d"), ("members.retired", APPEND, "a"))
    retired = next(event for event in h.events[::-1] if event.why.cause is Cause.MEMBERS_RETIRED)
    assert (retired.why.client_id, retired.why.member_id) == ("admin", None)
