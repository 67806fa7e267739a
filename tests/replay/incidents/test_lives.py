"""The sentences about administrators' actions, the life of a group, and clock jumps.

The same history at the previous format level, which recorded less, gets a weaker grade, never a guess.
"""

import msgspec
import pytest

from muster.coordinator.group.commands import (
    Caller,
    DeleteGroup,
    ExpireOffsets,
    LeaveGroup,
    LeavingMember,
)
from muster.events.causes import Cause
from muster.events.state import GroupState
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from tests.replay.histories import Script
from tests.replay.incidents.fleet import BOTH, BY_ADMIN, OLDER, QUIET_MS, Fleet, expect, of_kind, statements
from tests.replay.whole import incidents

S = 1_000
DAY_MS = 86_400_000
LEAVE, DELETE = 13, 42


@BOTH
@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("member was removed by an admin", ""),
        ("member was removed by an admin: too old", ': "member was removed by an admin: too old"'),
    ],
)
def test_removed_members_are_reported_with_the_requester(reason: str, says: str, level: int) -> None:
    """With host and time; the reason that Kafka's AdminClient sends by itself is left out."""
    fleet = Fleet(4)
    leaving = tuple(
        LeavingMember(member_id=fleet[number].member_id, group_instance_id=None, reason=reason) for number in (2, 3)
    )

    def leave(caller: Caller) -> LeaveGroup:
        return LeaveGroup(group_id=GROUP_ID, caller=caller, members=leaving)

    fleet.world.administer(fleet.story, leave, api_key=LEAVE)
    fleet.rest(20 * S)
    incident = fleet.only(level)
    who = "'app-2' (10.0.1.2) and 'app-3' (10.0.1.3) were removed"
    expect(incident, "removed-by-admin", "recorded", f"{who}, {BY_ADMIN}{says}", "admin-1")
    assert [each.client_id for each in incident.affected] == ["app-2", "app-3"]
    assert f"'app-2' (10.0.1.2) was removed, {BY_ADMIN}" in statements(incident, "recorded")
    assert "left the group" not in statements(incident)


def test_simultaneous_removals_by_other_clients_are_separate_incidents() -> None:
    """Each is attributed to the client that asked, by its client id and host."""
    admins = [("admin-2", "/10.0.200.2"), ("admin-3", "/10.0.200.2"), ("admin-3", "/10.0.200.3")]
    fleet = Fleet(5)
    for number, (client_id, host) in enumerate(admins, start=2):
        member = LeavingMember(member_id=fleet[number].member_id, group_instance_id=None, reason=None)

        def leave(
            caller: Caller, client_id: str = client_id, host: str = host, member: LeavingMember = member
        ) -> LeaveGroup:
            asks = msgspec.structs.replace(caller, client_id=client_id, client_host=host)
            return LeaveGroup(group_id=GROUP_ID, caller=asks, members=(member,))

        fleet.world.administer(fleet.story, leave, api_key=LEAVE)
    fleet.rest(20 * S)
    removed = [each for each in fleet.told() if each.kind == "removed-by-admin"]
    assert len({each.started_at for each in removed}) == 1
    culprits = [(each.client_id, each.client_host) for incident in removed for each in incident.culprits]
    assert culprits == admins
    assert [[each.client_id for each in incident.affected] for incident in removed] == [["app-2"], ["app-3"], ["app-4"]]


def closed() -> Fleet:
    """Close all three processes."""
    fleet = Fleet(3)
    for number in (1, 2, 3):
        fleet[number].close()
        fleet.run(200)
    return fleet


def test_a_deletion_is_reported_with_the_requester() -> None:
    """And with the time and the cause of the group's emptiness (format level 4)."""
    fleet = closed()
    fleet.run(8 * S)
    fleet.world.administer(fleet.story, lambda caller: DeleteGroup(group_id=GROUP_ID, caller=caller), api_key=DELETE)
    shutdown, deleted = fleet.told()
    assert shutdown.kind == "shutdown"
    headline = f"the group was deleted, {BY_ADMIN}: its last member had left 8.2 s before"
    expect(deleted, "group-deleted", "recorded", headline)
    _, older = fleet.told(OLDER)
    expect(older, "group-deleted", "recorded", f"the group was deleted, {BY_ADMIN}")
    assert "since when it was empty, and why, is not recorded" in statements(older, "unknown")


def test_both_lives_of_an_expired_and_recreated_group_are_reported() -> None:
    """With the client that emptied it, the retention that expired, and the client that created it again."""
    fleet = closed()
    fleet.run(7 * DAY_MS)
    fleet.world.send(ExpireOffsets(group_id=GROUP_ID, offsets={}, wall_ms=fleet.wall_ms), fleet.story)
    fleet.run(S)
    fleet.start(7)
    fleet.rest(5 * S)
    emptied, expired, formed = fleet.told()
    assert emptied.kind == "shutdown"
    expect(
        expired,
        "group-expired",
        "recorded",
        "the empty group expired: its last member had left 7 d 0 h before (offsets.retention.minutes: 7 d 0 h)",
    )
    expect(formed, "start", "recorded", "a new process joined an empty group: 'app-7' (10.0.2.7)", "app-7")
    assert "the former group of this name ended: the empty group expired" in statements(formed, "recorded")
    _, older, _ = fleet.told(OLDER)
    expect(older, "group-expired", "recorded", "the empty group expired")


def test_a_duration_is_true_although_the_wall_clock_jumped() -> None:
    """The clock is set back by an hour while a member is slow; a note has the jump.

    Before format level 4 the duration is unknown.
    """
    fleet = Fleet(3)
    fleet[2].slow_ms = 10 * S
    fleet.start(4)
    fleet.run(4 * S)
    fleet.world.rules.wall_offset_ms -= 3_600 * S
    fleet.rest(30 * S)
    slow = of_kind(fleet.told(), "slow-member")
    headline = "'app-2' (10.0.1.2) took 12.0 s to rejoin, for which 2 other members had to wait"
    expect(slow, "slow-member", "recorded", headline, "app-2")
    assert any("wall clock jumped back by 1 h 00 min" in note for note in slow.notes)
    assert slow.cost.rebalancing_ms == slow.rebalances[0].duration_ms == 12_061
    older = of_kind(incidents(fleet.history(OLDER)), "scale-up")
    assert older.cost.rebalancing_ms is None
    assert any("set back while it ran: how long it took is not recorded" in note for note in older.notes)


@pytest.mark.parametrize("how", ["ends", "stalls"])
def test_an_outage_after_a_jump_of_the_clock_has_its_own_length(how: str) -> None:
    """The jump does not count."""
    fleet = Fleet(3, library="librdkafka", session_ms=6 * S)
    fleet.world.rules.wall_offset_ms += 3_600 * S
    fleet.start(4)
    fleet.rest(30 * S)
    if how == "ends":
        fleet.away(14 * S)
    else:
        fleet.paused(14 * S)
    fleet.rest(20 * S)
    outage = of_kind(fleet.told(), "coordinator-outage")
    assert "for 16.0 s since" in outage.headline or "for at least 14.0 s, from" in outage.headline
    assert "4 members lost their places" in outage.headline


def test_requests_of_a_replaced_process_are_counted_until_its_place_is_taken_again() -> None:
    """Two restarts of one instance, and an older process of each that was alive."""
    script = Script().created()
    script.start(script.joined(script.member("billing-1"))).complete().stabilize({"billing-1": {"orders": [0]}})
    for suppressed in (0, 2):
        former = script.of("billing-1")
        script.wait(60_000).advanced(script.replaced("billing-1", Cause.STATIC_RESTART_ABSORBED, host="/10.0.0.8"))
        script.wait(1_000).fenced(former, script.of("billing-1"), suppressed=suppressed)
    first, second = (each for each in incidents(script.history()) if each.kind == "restart")
    assert "1 request of it was fenced" in statements(first, "recorded")
    assert "3 requests of it were fenced" in statements(second, "recorded")


def test_processes_that_leave_are_counted_and_named() -> None:
    """One, several, and all."""
    one, three = "'app-1' (10.0.1.1)", "'app-3' (10.0.1.3)"
    headlines = []
    for leaving in ((2,), (1, 3), (1, 2, 3)):
        fleet = Fleet(3)
        for number in leaving:
            fleet[number].close()
        fleet.rest(20 * S)
        headlines.append((fleet.only().kind, fleet.only().headline))
    assert headlines == [
        ("scale-down", "a process left: 'app-2' (10.0.1.2)"),
        ("scale-down", f"2 processes left within 0 ms: {one} and {three}"),
        ("shutdown", f"3 processes left within 0 ms, the group was empty: {one}, 'app-2' (10.0.1.2) and {three}"),
    ]


@pytest.mark.parametrize(("stood_s", "kinds"), [(14, ["start"]), (16, ["start", "scale-up"])])
def test_a_member_that_joins_a_stable_group_is_not_part_of_its_start(stood_s: int, kinds: list[str]) -> None:
    """Two processes form the group, and a third one joins later."""
    fleet = Fleet(2)
    for number in (1, 2):
        fleet[number].close(None)
    fleet.rest(QUIET_MS)
    fleet.began_ms = fleet.wall_ms
    for number in (3, 4):
        fleet.start(number)
    while fleet.world.state is not GroupState.STABLE:
        fleet.run(50)
    fleet.run(stood_s * S)
    fleet.start(5)
    fleet.rest(20 * S)
    found = fleet.told()
    assert [each.kind for each in found] == kinds
    assert [len(each.rebalances) for each in found] == ([2] if len(kinds) == 1 else [1, 1])
