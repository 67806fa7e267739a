"""Planned scale-down: members are asked to leave, departures are gathered, and one rebalance follows."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import ConfigOperation
from muster.coordinator.group.configs import DEFAULT_WAIT_MS, RETIRED, RETIREMENT_TIMEOUT
from muster.coordinator.group.outcomes import Standing
from muster.events.causes import Cause
from muster.events.state import GroupState
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness
from tests.coordinator.group.test_registration import starts


def retiring(h: Harness, names: str, group: str = "abcd") -> dict[str, Client]:
    """A stable group of static members that do not expire, some of which are retired."""
    clients = {name: h.static(name, session_timeout_ms=1_200_000) for name in group}
    h.stable_group(*clients.values())
    assert h.alter((RETIRED, ConfigOperation.APPEND, names)).error is ErrorCode.none
    return clients


def test_departures_are_gathered() -> None:
    """Members leave, are removed or expire. The last one starts the rebalance."""
    h = Harness()
    clients = retiring(h, "b,c,d")
    clients["b"].leave()
    h.leave_instance("c")
    assert clients["a"].heartbeat().error is ErrorCode.none
    assert starts(h)[1:] == []
    clients["d"].leave()
    assert starts(h)[1:] == [Cause.RETIREMENT_COMPLETE]


def test_a_dynamic_member_is_retired_by_its_member_id() -> None:
    """It has no instance id."""
    h = Harness()
    _a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    assert h.alter((RETIRED, ConfigOperation.APPEND, b.member_id)).error is ErrorCode.none
    b.leave()
    assert starts(h)[1:] == [Cause.RETIREMENT_COMPLETE]


def test_a_retiring_member_that_does_not_leave_is_removed() -> None:
    """In one rebalance, with those that left."""
    h = Harness()
    clients = retiring(h, "b,c")
    h.set(members_retirement_timeout_ms="60000")
    clients["b"].leave()
    h.sleep(60_000)
    assert starts(h)[1:] == [Cause.RETIREMENT_TIMED_OUT]
    assert clients["c"].heartbeat().error is ErrorCode.unknown_member_id
    assert h.soft.retirement_deadline_ms is None


def test_another_member_that_goes_is_not_waited_for() -> None:
    """Its partitions are needed now; the gathered ones are shared out with them."""
    h = Harness()
    clients = retiring(h, "b,c")
    clients["b"].leave()
    clients["d"].leave()
    assert starts(h)[1:] == [Cause.MEMBER_LEFT]


def test_a_restart_does_not_end_a_retirement() -> None:
    """The member is still asked to leave."""
    h = Harness()
    clients = retiring(h, "b")
    again = clients["b"].restarted()
    again.join()
    assert h.describe_config().values[RETIRED] == "b"
    again.leave()
    assert starts(h)[1:] == [Cause.RETIREMENT_COMPLETE]


def test_keeping_the_last_one_shares_out_what_the_others_had() -> None:
    """The others have left already."""
    h = Harness()
    clients = retiring(h, "b,c")
    clients["b"].leave()
    h.alter((RETIRED, ConfigOperation.SUBTRACT, "c"))
    assert starts(h)[1:] == [Cause.RETIREMENT_WITHDRAWN]


def test_all_members_may_retire() -> None:
    """The group is empty then."""
    h = Harness()
    for client in retiring(h, "a,b", "ab").values():
        client.leave()
    assert h.state is GroupState.EMPTY


def test_a_takeover_keeps_retiring_members() -> None:
    """The time-out restarts."""
    h = Harness()
    clients = retiring(h, "b,c")
    clients["b"].leave()
    h.takeover()
    h.sleep(DEFAULT_WAIT_MS - 1)
    assert h.state is GroupState.STABLE
    h.sleep(1)
    assert starts(h)[1:] == [Cause.RETIREMENT_TIMED_OUT]


def test_a_new_timeout_counts_from_now() -> None:
    """Also for those that are awaited already."""
    h = Harness()
    retiring(h, "b")
    h.sleep(1_000)
    h.alter((RETIREMENT_TIMEOUT, ConfigOperation.SET, "5000"))
    h.sleep(4_999)
    assert h.state is GroupState.STABLE
    h.sleep(1)
    assert h.state is not GroupState.STABLE


def test_another_setting_leaves_the_time_of_a_retirement_alone() -> None:
    h = Harness()
    retiring(h, "b")
    deadline_ms = h.soft.retirement_deadline_ms
    h.sleep(1_000)
    h.set(members_registration_timeout_ms="60000")
    assert deadline_ms is not None
    assert h.soft.retirement_deadline_ms == deadline_ms


def test_a_timeout_alone_retires_no_member() -> None:
    h = Harness()
    h.stable_group(h.static("a"))
    h.alter((RETIREMENT_TIMEOUT, ConfigOperation.SET, "5000"))
    assert h.soft.retirement_deadline_ms is None


@pytest.mark.parametrize(("names", "error"), [("x", ErrorCode.unknown_member_id), ("b", ErrorCode.duplicate_resource)])
def test_an_absent_or_retiring_member_is_refused(names: str, error: ErrorCode) -> None:
    """Nothing is changed."""
    h = Harness()
    retiring(h, "b")
    seen = len(h.events)
    assert h.alter((RETIRED, ConfigOperation.APPEND, f"c,{names}")).error is error
    assert len(h.events) == seen


def test_the_listing_shows_retiring_members() -> None:
    """Active, and retiring."""
    h = Harness()
    retiring(h, "b")
    shown = {str(each.group_instance_id): (each.standing, each.retiring) for each in h.describe_config().members}
    assert (shown["a"], shown["b"]) == ((Standing.ACTIVE, False), (Standing.ACTIVE, True))
