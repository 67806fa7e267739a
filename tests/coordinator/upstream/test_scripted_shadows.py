"""Shadows join, leave, step out and are given up, in virtual time; upstream is a script whose responses can be
withheld.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import structlog
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.response import ListGroupsResponse

from muster.coordinator.upstream.group_probe import KeptUpstream
from muster.coordinator.upstream.shadow import PROTOCOL_TYPE
from muster.coordinator.upstream.shadow_census import ShadowCensus
from muster.coordinator.upstream.shadows import Shadows, ShadowUnavailable, _fraction
from muster.coordinator.wire.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from muster.events.ids import GroupId
from muster.events.kafka.errors import TryAgain
from tests.coordinator.kio_client import filled
from tests.coordinator.upstream.stage import NAME, unexpected
from tests.coordinator.upstream.test_unknown_shadow import GROUP
from tests.coordinator.upstream.test_unknown_shadow import Upstream as Coordinator
from tests.simulation.virtual_time import simulate

HEARTBEAT_INTERVAL_MS = 10_000
ROUND_MS = 20
"""The time that a request of each kind may take, with a margin; here requests take no time."""


class Upstream(Coordinator):
    """Withholds the responses to requests of the `held` kinds; `somebody` is a member of the group that is no
    shadow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self.goes_on = asyncio.Event()
        self.somebody = False
        self.with_shadow: list[str] = []

    async def ask_coordinator(self, *request: Any, **options: Any) -> Any:
        answer = await super().ask_coordinator(*request, **options)
        if self.asked[-1] in self.held:
            await self.goes_on.wait()
        return self._inhabited() if isinstance(answer, DescribeGroupsResponse) and self.somebody else answer

    def _inhabited(self) -> DescribeGroupsResponse:
        member = {"member_id": "m", "group_instance_id": None, "client_id": "shop", "client_host": "/10.0.0.1"}
        group = {
            "error_code": ErrorCode.none,
            "group_id": GROUP,
            "group_state": "Stable",
            "protocol_type": "consumer",
            "protocol_data": "range",
            "members": [member | {"member_metadata": b"", "member_assignment": b""}],
            "authorized_operations": AUTHORIZED_OPERATIONS_OMITTED,
        }
        answer: DescribeGroupsResponse = filled(
            DescribeGroupsResponse, {"throttle_time": timedelta(0), "groups": [group]}
        )
        return answer

    def brokers(self) -> dict[int, tuple[str, int]]:
        return {1: ("broker", 9092)}

    async def ask(self, _node_id: int, _request: Any, _response: Any, **_options: Any) -> ListGroupsResponse:
        of_others = [{"group_id": "theirs", "protocol_type": "consumer", "group_state": "Stable"}]
        ours = [
            {"group_id": each, "protocol_type": PROTOCOL_TYPE, "group_state": "Stable"} for each in self.with_shadow
        ]
        fields = {"throttle_time": timedelta(0), "error_code": ErrorCode.none, "groups": [*of_others, *ours]}
        answer: ListGroupsResponse = filled(ListGroupsResponse, fields)
        return answer


class Subject:
    """Shadows of one service, with the events that they reported."""

    def __init__(self) -> None:
        self.upstream = Upstream()
        self.lost: list[tuple[GroupId, str]] = []
        link: Any = self.upstream
        self.shadows = Shadows(
            link,
            NAME,
            lost=lambda *reported: self.lost.append(reported),
            give_up=unexpected,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        )

    @property
    def asked(self) -> list[str]:
        return self.upstream.asked

    def wants(self, generation_id: int, *, is_wanted: bool = True) -> None:
        self.shadows.update_generation(GROUP, generation_id=generation_id, is_wanted=is_wanted)

    async def own(self) -> None:
        """The group's shadow has joined, for generation 1; the requests for that are not recorded."""
        self.wants(1)
        await self.shadows.wait_bumped(GROUP, 1)
        await settled()
        self.asked.clear()


async def settled() -> None:
    """Run everything that does not depend on a withheld response."""
    await asyncio.sleep(ROUND_MS / 1000)


def story(run: Callable[[Subject], Awaitable[None]]) -> Callable[[], None]:
    """Run the test in virtual time."""

    async def whole() -> None:
        subject = Subject()
        await run(subject)
        await subject.shadows.close()

    def test() -> None:
        simulate(whole())

    test.__name__, test.__doc__ = run.__name__, run.__doc__
    return test


@story
async def test_simultaneous_takers_of_a_group_share_one_attempt(subject: Subject) -> None:
    """It returns when the join is sent; from then on the group is ours."""
    subject.upstream.held = {"JoinGroup"}
    takes = [asyncio.create_task(subject.shadows.take(GROUP)) for _ in range(3)]
    assert await asyncio.gather(*takes) == [None] * 3
    assert await subject.shadows.take(GROUP) is None
    assert subject.asked == ["DescribeGroups", "JoinGroup"]
    assert subject.shadows.owns(GROUP)
    assert not subject.shadows.is_in(GROUP)
    assert not subject.shadows.owns(GroupId("another"))
    assert not subject.shadows.may_have_shadow(GroupId("another"))
    subject.upstream.goes_on.set()
    await settled()
    assert subject.asked == ["DescribeGroups", "JoinGroup", "SyncGroup"]
    assert subject.shadows.is_in(GROUP)
    assert subject.lost == []


@story
async def test_a_group_with_members_is_not_taken(subject: Subject) -> None:
    subject.upstream.somebody = True
    assert isinstance(await subject.shadows.take(GROUP), KeptUpstream)
    assert isinstance(await subject.shadows.probe(GROUP), KeptUpstream)
    assert not subject.shadows.may_have_shadow(GROUP)
    subject.upstream.somebody = False
    assert await subject.shadows.probe(GROUP) is None
    assert await subject.shadows.take(GROUP) is None


@story
async def test_members_that_joined_before_the_shadow_are_reported_to_the_taker(subject: Subject) -> None:
    """Once: the group was not ours yet, so it is not lost."""
    subject.upstream.held = {"DescribeGroups"}
    subject.upstream.join_errors = [ErrorCode.inconsistent_group_protocol]
    ask, reported = subject.upstream.ask_coordinator, list[str]()

    async def join_is_refused_before_it_counts_as_sent(group_id: GroupId, request: Any, *args: Any, **kw: Any) -> Any:
        reported.append(type(request).__name__)
        if reported[-1] == "JoinGroupRequest":
            kw["sent"] = lambda: None
        return await ask(group_id, request, *args, **kw)

    subject.upstream.ask_coordinator = join_is_refused_before_it_counts_as_sent  # type: ignore[method-assign]
    taking = asyncio.create_task(subject.shadows.take(GROUP))
    await settled()
    subject.upstream.goes_on.set()
    subject.upstream.held = set()
    await asyncio.sleep(0)
    subject.upstream.somebody = True
    verdict = await taking
    assert isinstance(verdict, KeptUpstream)
    assert "shop at /10.0.0.1" in verdict.reason
    assert subject.lost == []
    assert not subject.shadows.may_have_shadow(GROUP)


@story
async def test_a_group_that_was_taken_and_is_refused_later_is_lost(subject: Subject) -> None:
    """The join is no longer awaited; the next caller starts over."""
    subject.upstream.held = {"JoinGroup"}
    subject.upstream.join_errors = [ErrorCode.inconsistent_group_protocol]
    assert await subject.shadows.take(GROUP) is None
    subject.upstream.somebody = True
    subject.upstream.goes_on.set()
    await settled()
    ((group_id, reason),) = subject.lost
    assert (group_id, "shop at /10.0.0.1" in reason) == (GROUP, True)
    assert not subject.shadows.owns(GROUP)
    subject.wants(1)
    await settled()
    assert not subject.shadows.may_have_shadow(GROUP), "members that are here still do not fight for it"
    subject.upstream.somebody = False
    assert await subject.shadows.take(GROUP) is None
    subject.wants(1)
    await subject.shadows.wait_bumped(GROUP, 1)


@story
async def test_a_group_taken_for_a_failed_join_is_left(subject: Subject) -> None:
    """At the time of its first heartbeat."""
    assert await subject.shadows.take(GROUP) is None
    await asyncio.sleep(HEARTBEAT_INTERVAL_MS / 1000)
    assert subject.asked[-1] == "LeaveGroup"
    assert not subject.shadows.may_have_shadow(GROUP)


@story
async def test_each_generation_is_bumped_and_has_its_identity(subject: Subject) -> None:
    """There is none for any other, nor for a group without a shadow."""
    await subject.own()
    first = subject.shadows.commit_identity(GROUP, 1)
    assert first is not None
    subject.wants(2)
    assert subject.shadows.commit_identity(GROUP, 2) is None
    await subject.shadows.wait_bumped(GROUP, 2)
    assert subject.asked == ["JoinGroup", "SyncGroup"]
    assert subject.shadows.commit_identity(GROUP, 2) not in {None, first}
    assert subject.shadows.commit_identity(GROUP, 1) is None
    assert subject.shadows.commit_identity(GroupId("another"), 1) is None
    with pytest.raises(ShadowUnavailable, match="group another has no shadow upstream"):
        await subject.shadows.wait_bumped(GroupId("another"), 1)


@story
async def test_a_generation_is_bumped_again_on_request(subject: Subject) -> None:
    """Until then no commits are possible in it."""
    await subject.own()
    before = subject.shadows.commit_identity(GROUP, 1)
    subject.shadows.bump_again(GROUP)
    subject.shadows.bump_again(GroupId("another"))
    assert subject.shadows.commit_identity(GROUP, 1) is None
    await subject.shadows.wait_bumped(GROUP, 1)
    assert subject.shadows.commit_identity(GROUP, 1) not in {None, before}
    assert subject.asked == ["JoinGroup", "SyncGroup"]


@story
async def test_a_shadow_in_a_group_heartbeats_at_its_interval(subject: Subject) -> None:
    """Half of it to the whole, depending on the group; it has one timer, whatever else is requested."""
    await subject.own()
    for generation_id in (2, 3, 4):
        subject.wants(generation_id)
        await subject.shadows.wait_bumped(GROUP, generation_id)
        await settled()
    subject.asked.clear()
    await asyncio.sleep(6 * HEARTBEAT_INTERVAL_MS / 1000)
    assert set(subject.asked) == {"Heartbeat"}
    assert 6 <= len(subject.asked) <= 12
    sooner = len(subject.asked)
    subject.shadows.heartbeat_soon(GROUP)
    await settled()
    assert len(subject.asked) == sooner + 1


@story
async def test_a_shadow_that_is_not_wanted_any_more_leaves(subject: Subject) -> None:
    """Until it has left the group is not ours, and upstream may still have it."""
    await subject.own()
    subject.upstream.held = {"LeaveGroup"}
    assert not subject.shadows.is_leaving(GROUP)
    subject.wants(1, is_wanted=False)
    await settled()
    assert subject.shadows.is_leaving(GROUP)
    assert not subject.shadows.is_leaving(GroupId("another"))
    assert (subject.shadows.owns(GROUP), subject.shadows.may_have_shadow(GROUP)) == (False, True)
    with pytest.raises(ShadowUnavailable, match="no shadow"):
        await subject.shadows.wait_bumped(GROUP, 1)
    gone = asyncio.create_task(subject.shadows.wait_gone(GROUP))
    await settled()
    assert not gone.done()
    subject.upstream.goes_on.set()
    await gone
    assert subject.asked == ["LeaveGroup"]
    assert not subject.shadows.may_have_shadow(GROUP)
    await subject.shadows.wait_gone(GROUP)
    await asyncio.sleep(2 * HEARTBEAT_INTERVAL_MS / 1000)
    assert subject.asked == ["LeaveGroup"]


@story
async def test_a_shadow_steps_out_for_as_long_as_requested(subject: Subject) -> None:
    """Two callers at once do not disturb each other."""
    await subject.own()
    before = subject.shadows.commit_identity(GROUP, 1)
    async with subject.shadows.withdrawn(GROUP):
        assert subject.asked == ["LeaveGroup"]
        async with subject.shadows.withdrawn(GROUP):
            await settled()
        await asyncio.sleep(2 * HEARTBEAT_INTERVAL_MS / 1000)
        assert subject.asked == ["LeaveGroup"]
        assert subject.shadows.owns(GROUP)
        assert not subject.shadows.is_in(GROUP)
        assert subject.shadows.commit_identity(GROUP, 1) is None
    await subject.shadows.wait_bumped(GROUP, 1)
    assert subject.asked[1:] == ["JoinGroup", "SyncGroup"]
    assert subject.shadows.commit_identity(GROUP, 1) not in {None, before}
    async with subject.shadows.withdrawn(GroupId("another")):
        assert subject.asked[3:] == []


@story
async def test_a_join_that_is_under_way_is_waited_for_before_a_shadow_steps_out(subject: Subject) -> None:
    """A broker continues the rebalance of a member that left while it was parked, and treats the group as taken."""
    subject.upstream.held = {"JoinGroup"}
    subject.wants(1)
    await settled()

    async def step_out() -> None:
        async with subject.shadows.withdrawn(GROUP):
            assert subject.asked[-1] == "LeaveGroup"

    stepping_out = asyncio.create_task(step_out())
    await settled()
    assert (subject.asked, stepping_out.done()) == (["JoinGroup"], False)
    subject.upstream.held = set()
    subject.upstream.goes_on.set()
    await stepping_out
    assert subject.asked[:3] == ["JoinGroup", "SyncGroup", "LeaveGroup"]


@story
async def test_a_shadow_that_is_not_wanted_while_it_is_out_does_not_come_back(subject: Subject) -> None:
    await subject.own()
    async with subject.shadows.withdrawn(GROUP):
        subject.wants(1, is_wanted=False)
        await settled()
    await settled()
    assert subject.asked == ["LeaveGroup"]
    assert not subject.shadows.may_have_shadow(GROUP)


@story
async def test_waiting_for_an_unanswered_join_times_out(subject: Subject) -> None:
    subject.upstream.held = {"JoinGroup"}
    subject.wants(1)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(ShadowUnavailable, match="is not ready after 20000 ms: upstream has not responded"):
        await subject.shadows.wait_bumped(GROUP, 1)
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(20.0)


@story
async def test_closing_ends_waiters_and_leaves_the_shadow_in_place(subject: Subject) -> None:
    """A restart takes it back; later requests are dropped."""
    await subject.own()
    subject.upstream.held = {"JoinGroup"}
    subject.wants(2)
    waiting = asyncio.create_task(subject.shadows.wait_bumped(GROUP, 2))
    taking = asyncio.create_task(subject.shadows.take(GroupId("another")))
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {waiting, taking}
    driving = {task for task in others if task.get_name() == f"shadow-{GROUP}"}
    await subject.shadows.close()
    assert len(driving) == 1
    assert all(task.done() for task in driving)
    for each in (waiting, taking, subject.shadows.take(GROUP)):
        with pytest.raises(ShadowUnavailable, match="stopping"):
            await each
    subject.wants(3)
    assert not subject.shadows.may_have_shadow(GROUP)
    count = len(subject.asked)
    await asyncio.sleep(2 * HEARTBEAT_INTERVAL_MS / 1000)
    assert len(subject.asked) == count
    assert "LeaveGroup" not in subject.asked


@story
async def test_shadows_of_a_former_process_in_groups_that_need_none_are_removed(subject: Subject) -> None:
    """Those of other services stay, and those that are ours now."""
    await subject.own()
    subject.upstream.with_shadow = [GROUP, "stray", "of-another-service"]
    assert await subject.shadows.remove_stray_shadows(lambda group_id: group_id in {GROUP, "stray"}) == ["stray"]
    await subject.shadows.wait_gone(GroupId("stray"))
    assert subject.asked[-1] == "LeaveGroup"
    assert subject.shadows.owns(GROUP)


@story
async def test_unknown_shadow_groups_are_logged(subject: Subject) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise TryAgain("no broker")

    subject.upstream.ask = refuse  # type: ignore[method-assign]
    with pytest.raises(ShadowUnavailable, match="cannot determine which groups have a shadow upstream: no broker"):
        await subject.shadows.remove_stray_shadows(lambda _: True)


@story
async def test_a_bug_of_ours_ends_the_waiting_group_too(subject: Subject) -> None:
    """Otherwise the group would wait for its shadow for ever, for an unknown reason."""
    bug, given_up = RuntimeError("a bug"), list[Exception]()

    async def drive(_handle: object) -> None:
        raise bug

    subject.shadows._driver.drive = drive  # type: ignore[assignment, method-assign]
    subject.shadows._give_up = given_up.append
    subject.wants(1)
    await settled()
    assert given_up == [bug]


def test_heartbeats_of_many_groups_do_not_come_together() -> None:
    """Within the second half of the interval, each group's at its own time."""
    fractions = sorted(_fraction(GroupId(f"g{number}")) for number in range(1_000))
    assert 0.5 <= fractions[0] < 0.51
    assert 0.99 < fractions[-1] <= 1
    assert len(set(fractions)) == len(fractions)


@story
async def test_shadows_that_are_there_and_those_that_are_missing_are_counted(subject: Subject) -> None:
    """A shadow counts as missing if it is wanted but not in its group yet."""
    subject.upstream.held = {"JoinGroup"}
    subject.wants(1)
    await settled()
    census = subject.shadows.census()
    assert (census.present, [each.group_id for each in census.missing]) == (0, [GROUP])
    subject.upstream.held = set()
    subject.upstream.goes_on.set()
    await subject.shadows.wait_bumped(GROUP, 1)
    assert subject.shadows.census() == ShadowCensus(present=1, missing=())
    subject.wants(1, is_wanted=False)
    await settled()
    assert subject.shadows.census() == ShadowCensus(present=0, missing=())


@story
async def test_the_end_logs_which_shadows_remain_and_for_how_long(subject: Subject) -> None:
    """Nothing if there are none."""
    await subject.own()
    with structlog.testing.capture_logs() as reported:
        await subject.shadows.close()
        await subject.shadows.close()
    (line,) = reported
    assert "shadows left in the cluster" in line["event"]
    assert (line["shadows"], line["groups"], line["for_at_most_s"]) == (1, [GROUP], 1800)
