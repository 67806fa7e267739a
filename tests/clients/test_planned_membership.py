"""Planned membership with consumers of each library: joining, leaving, learners, and the number of rebalances."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from muster.coordinator.client.group_admin import GroupAdmin
from muster.coordinator.group.outcomes import Standing
from muster.events.causes import Cause
from tests.clients.consumers import RunningConsumer
from tests.clients.crew import ALL, Crew, crew
from tests.clients.probe import remove_static_members
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

T = TypeVar("T")
LONG_MS = 600_000


def ask(group: Crew, question: Callable[[GroupAdmin], Awaitable[T]]) -> T:
    """Send a request as an administrator."""

    async def requested() -> T:
        async with GroupAdmin(group.bootstrap) as admin:
            return await question(admin)

    return asyncio.run(requested())


def standings(group: Crew) -> Counter[Standing]:
    members = ask(group, lambda admin: admin.list_members(group.group_id))
    return Counter(member.standing for member in members)


def until_standing(group: Crew, **wanted: int) -> None:
    """Wait until exactly these numbers of members have these standings."""
    expected = Counter({Standing(name.capitalize()): count for name, count in wanted.items()})
    until_so(lambda: standings(group) == expected, lambda: standings(group))


def test_registered_members_make_one_rebalance(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """KIP-469: a group of two grows to six, in one generation."""
    with crew(muster, library) as group:
        first, second = group.add("a"), group.add("b")
        group.until_shared()
        triggers, seen = group.triggers, group.assignments
        names = ["c", "d", "e", "f"]
        results = ask(group, lambda admin: admin.add_members_to_group(group.group_id, names, timeout_ms=LONG_MS))
        assert [result.done for result in results] == [True] * 4
        for name in names[:-1]:
            group.add(name)
        until_standing(group, active=2, waiting=3, expected=1)
        assert [first.assignments, second.assignments] == seen
        group.add(names[-1])
        group.until_shared()
        assert group.triggers == [*triggers, Cause.REGISTRATION_COMPLETE]


def test_retired_members_go_in_one_rebalance(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """A group of six shrinks to two; a departure has no effect until the last one has left."""
    with crew(muster, library) as group:
        retired = ["c", "d", "e", "f"]
        for name in ("a", "b", *retired):
            group.add(name)
        group.until_shared()
        triggers = group.triggers
        ask(group, lambda admin: admin.retire_members(group.group_id, retired, timeout_ms=LONG_MS))
        staying = group.consumers[:2]
        seen = [consumer.assignments for consumer in staying]
        for consumer in group.consumers[2:]:
            assert [consumer.assignments for consumer in staying] == seen
            group.close(consumer)
            remove_static_members(group.bootstrap, group.group_id, str(consumer.instance))
        group.until_shared()
        assert group.triggers == [*triggers, Cause.RETIREMENT_COMPLETE]


def test_a_scale_up_is_gathered(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """Dynamic members wait for each other; switching the delay off ends it at once."""
    with crew(muster, library) as group:
        group.add()
        group.add()
        group.until_shared()
        triggers = group.triggers
        ask(group, lambda admin: admin.set_expansion_delay(group.group_id, LONG_MS))
        for _ in range(4):
            group.add()
        until_standing(group, active=2, waiting=4)
        ask(group, lambda admin: admin.set_expansion_delay(group.group_id, None))
        group.until_shared()
        assert group.triggers == [*triggers, Cause.GROUP_CONFIGURED]


def test_a_learner_is_promoted(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """It has no partitions and disturbs no other member, until it is promoted."""
    with crew(muster, library) as group:
        first, second = group.add("a"), group.add("b")
        group.until_shared()
        triggers, seen = group.triggers, group.assignments
        ask(group, lambda admin: admin.set_learner_timeout(group.group_id, LONG_MS))
        learner = group.add("c")
        until_standing(group, active=2, learner=1)
        until_so(lambda: learner.assignments == 1, lambda: "it has not been told that it has nothing")
        assert learner.assigned == frozenset()
        assert [first.assignments, second.assignments] == seen
        ask(group, lambda admin: admin.promote_learners(group.group_id, ["c"]))
        group.until_shared()
        assert group.triggers == [*triggers, Cause.LEARNERS_PROMOTED]


def test_a_rebalance_on_demand(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """All members rejoin."""
    with crew(muster, library) as group:
        first, second = group.add("a"), group.add("b")
        group.until_shared()
        triggers, seen = group.triggers, group.assignments
        ask(group, lambda admin: admin.rebalance_group(group.group_id))
        until_so(lambda: all(now > then for now, then in zip(group.assignments, seen, strict=True)), group.shares)
        group.until_shared()
        assert group.triggers == [*triggers, Cause.REBALANCE_REQUESTED]
        assert first.assigned | second.assigned == ALL
