"""Routes of groups: which requests go upstream, and when."""

from collections.abc import Iterable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Caller, Heartbeat, SyncGroup
from muster.coordinator.group.outcomes import HeartbeatOutcome, Outcome, SyncGroupOutcome
from muster.coordinator.sidecar.apis.membership import MembershipApi, RefusingGroups
from muster.coordinator.sidecar.groups.routing import GroupRoute, GroupRouter, MovingGroups
from muster.coordinator.sidecar.relay.intercept import SidecarApi
from muster.coordinator.upstream.group_probe import ForeignShadow, KeptUpstream
from muster.coordinator.wire import heartbeat as heartbeat_api
from muster.events.ids import REMEMBERED_ID_LENGTH_MAX, GroupId, MemberId
from tests.coordinator.kio_client import frame, parse, with_length
from tests.coordinator.running_server import HEARTBEAT
from tests.coordinator.sidecar.relay.test_relay import heartbeat, join
from tests.coordinator.sidecar.relaying import Relay, relaying
from tests.coordinator.sidecar.scripted_broker import (
    ALL_OPERATIONS,
    DESCRIBE_GROUPS,
    WithheldResponses,
    allowing,
    scripted_broker,
)
from tests.waiting import until

OURS, OTHER = GroupId("ours"), GroupId("other")


class Upstream:
    """Has one group, reports a member in another one, and records its calls."""

    def __init__(self, found: KeptUpstream | None = None, *, nobody: bool = False) -> None:
        self.asked: list[str] = []
        self._found = None if nobody else found or KeptUpstream("somebody is in it")

    def owns(self, group_id: GroupId) -> bool:
        return group_id == OURS

    async def probe(self, _group_id: GroupId) -> KeptUpstream | None:
        self.asked.append("look")
        return self._found

    async def take(self, _group_id: GroupId) -> KeptUpstream | None:
        self.asked.append("take")
        return None


class Moved:
    """These groups are released; none is moving."""

    def __init__(self, *released: GroupId) -> None:
        self._released = released

    def is_moving(self, _group_id: GroupId) -> bool:
        return False

    def is_released(self, group_id: GroupId) -> bool:
        return group_id in self._released


def router(
    upstream: Upstream, *, is_loaded: bool, is_loaded_soon: bool = False, moves: MovingGroups | None = None
) -> GroupRouter:
    return GroupRouter(
        upstream,
        moves or Moved(),
        may_own=lambda _: True,
        is_loaded=lambda _: is_loaded,
        is_loaded_soon=lambda _: is_loaded_soon,
    )


@pytest.mark.parametrize("joins", [True, False])
def test_before_the_log_is_read_upstream_is_queried_about_every_group_not_known_as_ours(joins: bool) -> None:
    """Otherwise a member of a group upstream would succeed here, and be missed there."""
    unread = router(Upstream(), is_loaded=False)
    assert unread.route_of(OTHER, joins=joins) is GroupRoute.UNDECIDED
    assert unread.route_of(OURS, joins=joins) is GroupRoute.LOCAL


@pytest.mark.parametrize("joins", [True, False])
def test_during_a_takeover_upstream_is_not_queried_about_the_partitions_groups(joins: bool) -> None:
    """A thousand groups' heartbeats would each be a request, and delay the takeover."""
    soon = router(Upstream(), is_loaded=False, is_loaded_soon=True)
    assert soon.route_of(OTHER, joins=joins) is GroupRoute.LOADING


def test_once_it_is_read_only_a_join_takes_a_group() -> None:
    read = router(Upstream(), is_loaded=True)
    assert read.route_of(OTHER, joins=True) is GroupRoute.UNDECIDED
    assert read.route_of(OTHER) is GroupRoute.UPSTREAM


def test_a_join_takes_no_group_that_was_released() -> None:
    """Otherwise the next join of any member would undo the release."""
    read = router(Upstream(), is_loaded=True, moves=Moved(OTHER))
    assert read.route_of(OTHER, joins=True) is GroupRoute.UPSTREAM


async def test_a_join_in_vain_takes_nothing() -> None:
    """Upstream is queried, and no shadow joins there."""
    upstream = Upstream()
    asking = router(upstream, is_loaded=True)
    assert await asking.take(OTHER, would_fail=lambda: True) == KeptUpstream("somebody is in it")
    assert await asking.take(OTHER, would_fail=lambda: False) is None
    assert upstream.asked == ["look", "take"]


@pytest.mark.parametrize(
    ("is_unnamed", "is_loaded", "is_told"), [(True, False, False), (True, True, True), (False, False, True)]
)
async def test_before_the_log_is_read_a_shadow_of_an_earlier_version_has_no_owner(
    is_unnamed: bool, is_loaded: bool, is_told: bool
) -> None:
    """It may be our own, from before an upgrade: a join is told that the group is loading, not that it is lost."""
    found = ForeignShadow("another Muster coordinates it", is_unnamed=is_unnamed)
    asking = router(Upstream(found), is_loaded=is_loaded)
    assert await asking.take(OTHER, would_fail=lambda: True) == (found if is_told else None)


def test_a_loading_broker_is_reported_as_kafka_reports_it() -> None:
    """G20, G21: 14 would be fatal to some clients on a sync, and disturb a valid member on a heartbeat."""
    reported: list[Outcome] = []
    refusing = RefusingGroups(ErrorCode.coordinator_load_in_progress)
    caller = Caller(
        request_id=1,
        client_id="",
        client_host="",
        principal="",
        api_key=0,
        api_version=0,
        arrived_ms=0,
        arrived_wall_ms=0,
    )
    who: dict[str, Any] = {"caller": caller, "group_id": OTHER, "member_id": MemberId("m"), "group_instance_id": None}
    sync: dict[str, Any] = {"generation_id": 1, "protocol_type": None, "protocol_name": None, "assignments": ()}
    for command in (SyncGroup(**who, **sync), Heartbeat(**who, generation_id=1)):
        refusing.submit(command, reported.append)
    assert reported == [SyncGroupOutcome(error=ErrorCode.rebalance_in_progress), HeartbeatOutcome(error=ErrorCode.none)]


async def test_questions_about_clients_are_counted() -> None:
    """One for the first heartbeat, and none for the next, which the cached verdict covers."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        for correlation_id in (1, 2):
            await client.ask(with_length(frame("Heartbeat", 3, correlation_id=correlation_id, **HEARTBEAT)))
        assert relay.relayed.authorizations_asked == 1


async def test_authorizations_for_a_group_with_a_very_long_id_are_not_cached() -> None:
    """The number of verdicts cached for one connection would take 130 MB."""
    long = HEARTBEAT | {"group_id": "g" * (REMEMBERED_ID_LENGTH_MAX + 1)}
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        for correlation_id in (1, 2):
            await client.ask(with_length(frame("Heartbeat", 3, correlation_id=correlation_id, **long)))
        assert relay.relayed.authorizations_asked == 2


async def test_while_a_partition_is_taken_over_its_groups_are_answered_as_by_a_broker_that_loads() -> None:
    """The rules are not called: the group may be upstream's. A client that may not read it gets that error first."""
    loading = router(Upstream(), is_loaded=False, is_loaded_soon=True)

    def membership(relay: Relay) -> Iterable[SidecarApi]:
        return MembershipApi(relay.service, loading, relay.moves, lambda _: False).apis()

    async with scripted_broker() as broker, relaying({1: broker}, more=membership) as relay:
        client = await relay.connect(1)
        for _ in range(2):  # asked first, then cached
            assert parse("JoinGroup", 3, await client.ask(join())).error_code == ErrorCode.coordinator_load_in_progress
            assert parse("Heartbeat", 3, await client.ask(heartbeat())).error_code == ErrorCode.none
        assert relay.groups.commands == []
    denied = ErrorCode.group_authorization_failed
    assert GroupRoute.LOADING.refusal(denied) is GroupRoute.LOCAL.refusal(denied) is denied


async def test_a_lookup_during_a_takeover_uses_what_is_known_then() -> None:
    """The log was loaded while the broker was asked about the client's rights: the group is upstream's."""
    is_soon = True
    loading = GroupRouter(
        Upstream(),
        Moved(),
        may_own=lambda _: True,
        is_loaded=lambda _: not is_soon,
        is_loaded_soon=lambda _: is_soon,
    )

    def membership(relay: Relay) -> Iterable[SidecarApi]:
        return MembershipApi(relay.service, loading, relay.moves, lambda _: False).apis()

    async with scripted_broker() as broker, relaying({1: broker}, more=membership) as relay:
        client = await relay.connect(1)
        held = WithheldResponses(broker, DESCRIBE_GROUPS)
        client.send(heartbeat())
        await until(lambda: held.asked)
        is_soon = False
        relayed = WithheldResponses(broker, heartbeat_api.KEY)
        request = held.asked[0]
        request.tell(allowing(request, ALL_OPERATIONS))
        await until(lambda: relayed.asked)
        assert relay.groups.commands == []
