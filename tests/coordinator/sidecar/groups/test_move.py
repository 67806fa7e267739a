"""Moves: which members are awaited, and for how long."""

from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.group.configs import MUSTER, UPSTREAM
from muster.coordinator.group.move_text import done, late, names, progress
from muster.coordinator.group.outcomes import MoveState, ReleaseGroupOutcome
from muster.coordinator.sidecar.groups.move import ASSUMED_SESSION_MS, FormerMember, Move, Sender
from muster.coordinator.sidecar.groups.move_log import log_end, log_lost, log_waiting
from muster.coordinator.sidecar.groups.recent_members import RECENT_WINDOW_MS, RecentMembers
from muster.events.ids import GroupId, GroupInstanceId, MemberId

SESSION_MS, REBALANCE_MS = 45_000, 300_000


class Socket:
    """A client's connection."""

    def __init__(self) -> None:
        self.open = True

    def is_open(self) -> bool:
        return self.open


def former(name: str, *, instance: str | None = None, **fields: Any) -> FormerMember:
    timeouts = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS}
    return FormerMember(
        member_id=MemberId(name),
        group_instance_id=None if instance is None else GroupInstanceId(instance),
        client_id="client",
        client_host="/10.0.0.1",
        **{**timeouts, **fields},
    )


def sender(socket: Socket, member_id: str = "", *, instance: str | None = None, host: str = "/10.0.0.1") -> Sender:
    return Sender(
        connection=socket,
        client_id="client",
        client_host=host,
        member_id=MemberId(member_id),
        group_instance_id=None if instance is None else GroupInstanceId(instance),
    )


def released(*members: FormerMember) -> Move:
    return Move(UPSTREAM, members, now_ms=0)


def waiting(move: Move, now_ms: int) -> list[str]:
    move.note_connections(now_ms)
    return [each.member_id for each in move.waits_for(now_ms)]


def test_a_member_is_waited_for_until_it_asks_to_join_again() -> None:
    """The notification is not enough: it may still work on fetched records."""
    move, socket = released(former("a"), former("b")), Socket()
    move.mark_notified(sender(socket, "a"), 1_000)
    assert waiting(move, 1_000) == ["a", "b"]
    move.mark_back(sender(socket))
    assert waiting(move, 1_000) == ["b"]


def test_a_silent_member_is_awaited_for_its_session() -> None:
    """It lives no longer."""
    move = released(former("a"))
    assert waiting(move, SESSION_MS - 1) == ["a"]
    assert waiting(move, SESSION_MS) == []


def test_a_notified_member_has_as_long_as_in_any_rebalance() -> None:
    """max.poll.interval.ms, from the first notification."""
    move, socket = released(former("a")), Socket()
    move.mark_notified(sender(socket, "a"), 40_000)
    move.mark_notified(sender(socket, "a"), 90_000)
    assert waiting(move, 40_000 + REBALANCE_MS - 1) == ["a"]
    assert waiting(move, 40_000 + REBALANCE_MS) == []


def test_a_member_without_a_connection_is_awaited_for_its_session() -> None:
    """Its process may have ended, or it still works and will return on another connection."""
    move, socket = released(former("a")), Socket()
    move.mark_notified(sender(socket, "a"), 1_000)
    socket.open = False
    assert waiting(move, 2_000) == ["a"]
    assert waiting(move, 2_000 + SESSION_MS - 1) == ["a"]
    assert waiting(move, 2_000 + SESSION_MS) == []


def test_an_additional_process_does_not_count_as_returned() -> None:
    """An additional process, started during a move, on the same host with the same client id."""
    move, socket = released(former("a")), Socket()
    move.mark_notified(sender(socket, "a"), 0)
    move.mark_back(sender(Socket()))
    move.mark_back(sender(Socket(), instance="new"))
    move.mark_notified(sender(Socket(), "nobody"), 0)
    assert waiting(move, 0) == ["a"]


def test_a_parked_member_returns_on_an_unknown_connection() -> None:
    """Its join was answered when the group was released, so client id and host have to match."""
    move = released(former("a", was_parked=True), former("b", was_parked=True))
    move.mark_back(sender(Socket(), host="/10.0.0.2"))
    assert waiting(move, 0) == ["a", "b"]
    move.mark_back(sender(Socket()))
    assert waiting(move, 0) == ["b"]
    assert waiting(move, REBALANCE_MS) == []


@pytest.mark.parametrize("was_told", [True, False])
def test_a_static_member_is_known_by_its_name(was_told: bool) -> None:
    """Its next process is recognized, too, on any connection."""
    move = released(former("a", instance="web-1"), former("b", instance="web-2"))
    if was_told:
        move.mark_notified(sender(Socket(), "a", instance="web-1"), 0)
    move.mark_back(sender(Socket(), instance="web-1"))
    assert waiting(move, 0) == ["b"]


def test_a_member_that_leaves_is_not_awaited() -> None:
    """A leave of an unknown member changes nothing."""
    move = released(former("a"))
    move.mark_left(MemberId("nobody"))
    assert waiting(move, 0) == ["a"]
    move.mark_left(MemberId("a"))
    assert waiting(move, 0) == []


def test_a_member_from_upstream_is_waited_for_without_a_limit_of_its_own() -> None:
    """Its timeouts are not known here; a lost connection gives it Kafka's default session."""
    unknown: dict[str, Any] = {"session_timeout_ms": None, "rebalance_timeout_ms": None}
    move, socket = Move(MUSTER, [former("a", **unknown)], now_ms=0, deadline_ms=60_000), Socket()
    assert waiting(move, 10**9) == ["a"]
    move.mark_notified(sender(socket, "a"), 0)
    assert waiting(move, 10**9) == ["a"]
    socket.open = False
    assert waiting(move, 10**9) == ["a"]
    assert waiting(move, 10**9 + ASSUMED_SESSION_MS) == []


def test_the_wait_ends_with_the_move_at_the_latest() -> None:
    """Even for a member with more time left."""
    move = Move(MUSTER, [former("a")], now_ms=0, deadline_ms=10_000)
    assert [each.wait_ms for each in move.report(MoveState.MOVING, 1_000).waits_for] == [9_000]


def test_a_member_that_is_back_and_leaves_is_counted_once() -> None:
    """It revoked its partitions when it came back."""
    move, socket = released(former("a"), former("b")), Socket()
    move.mark_notified(sender(socket, "a"), 0)
    move.mark_back(sender(socket))
    move.mark_left(MemberId("a"))
    report = move.report(MoveState.MOVING, 0)
    assert (report.members, report.back, report.left) == (2, 1, 0)


def test_the_report_counts_notified_and_returned_members() -> None:
    """For users and programs."""
    move, socket = released(former("a"), former("b", instance="web-1"), former("c")), Socket()
    move.mark_notified(sender(socket, "a"), 0)
    move.mark_back(sender(socket))
    move.mark_notified(sender(Socket(), "b"), 0)
    report = move.report(MoveState.MOVING, 500)
    assert (report.to, report.members, report.told, report.back, report.took_ms) == (UPSTREAM, 3, 2, 1, 500)
    assert [(each.member_id, each.is_notified) for each in report.waits_for] == [("b", True), ("c", False)]
    assert names(report.waits_for) == "web-1 at 10.0.0.1, client at 10.0.0.1"
    assert names([former(str(number)) for number in range(7)]).endswith("and 2 more")


def test_a_report_counts_left_members_and_names_the_awaited_ones() -> None:
    """A member that has left counts as neither notified nor back; a silent one is awaited for its session."""
    move, socket = released(former("a"), former("b", instance="web-1"), former("c")), Socket()
    assert progress(released(former("a")).report(MoveState.MOVING, 0)) == (
        "its only member has not rejoined yet; waits for client at 10.0.0.1, not heard from yet, for 45.0 s at most"
    )
    move.mark_left(MemberId("a"))
    move.mark_notified(sender(socket, "a"), 1_000)
    report = move.report(MoveState.MOVING, 10_000)
    assert (report.told, report.back, report.left) == (0, 0, 1)
    move.mark_notified(sender(socket, "b"), 10_000)
    assert progress(move.report(MoveState.MOVING, 11_000)) == (
        "of its 3 members 1 has left; waits for web-1 at 10.0.0.1 to rejoin, for 4 min 59 s at most; "
        "for client at 10.0.0.1, not heard from yet, for 34.0 s at most"
    )
    move.mark_back(sender(socket, instance="web-1"))
    assert done(move.report(MoveState.DONE, SESSION_MS)) == (
        "of its 3 members 1 has rejoined, 1 has left, 1 has not rejoined in time"
    )


def test_members_that_have_not_rejoined_in_time_are_named_at_the_end_of_the_move() -> None:
    """An operator has to check that process, so the log and the command do not report a plain success."""
    move, socket = released(former("a"), former("b", instance="web-1")), Socket()
    move.mark_notified(sender(socket, "a"), 0)
    move.mark_back(sender(socket))
    report = move.report(MoveState.DONE, SESSION_MS)
    assert [each.group_instance_id for each in report.late] == ["web-1"]
    assert late(report).startswith("not rejoined in time: web-1 at 10.0.0.1; a process that still runs may go on ")
    with capture_logs() as lines:
        log_end(GroupId("orders"), report)
    (line,) = lines
    assert (line["log_level"], line["not_rejoined_in_time"]) == ("warning", "web-1 at 10.0.0.1")
    assert "reason" not in line


def test_members_dropped_by_the_cluster_have_revoked_nothing_and_are_named() -> None:
    """A hanging process treats its partitions as lost only when it resumes, so that is no plain success."""
    move, socket = Move(MUSTER, [former("a"), former("b", instance="web-1")], now_ms=0), Socket()
    move.mark_notified(sender(socket, "a"), 0)
    move.mark_back(sender(socket))
    move.mark_dropped(MemberId("b"))
    assert waiting(move, 0) == []
    report = move.report(MoveState.DONE, 0)
    assert (report.left, [each.group_instance_id for each in report.late]) == (0, ["web-1"])
    assert done(report) == "of its 2 members 1 has rejoined, 1 has been dropped by the cluster"
    assert late(report).startswith(
        "dropped by the cluster (its session ended): web-1 at 10.0.0.1; a process that still "
    )
    with capture_logs() as lines:
        log_end(GroupId("orders"), report)
    (line,) = lines
    assert (line["log_level"], line["dropped_by_the_cluster"]) == ("warning", "web-1 at 10.0.0.1")
    assert "not_rejoined_in_time" not in line


def test_a_member_notified_late_is_awaited_again() -> None:
    """It resumed during the move; a member about to be notified was removed by us."""
    move = Move(MUSTER, [former("a"), former("b")], now_ms=0)
    move.in_removal.add(MemberId("b"))
    for name in "ab":
        move.mark_dropped(MemberId(name))
    assert waiting(move, 0) == ["b"]
    move.mark_notified(sender(Socket(), "a"), 0)
    assert waiting(move, 0) == ["a", "b"]
    move.mark_dropped(MemberId("a"))
    assert waiting(move, 0) == ["a", "b"]


def test_a_successful_move_is_reported_without_a_reason() -> None:
    """There is none."""
    move = released(former("a"))
    move.mark_left(MemberId("a"))
    with capture_logs() as lines:
        log_end(GroupId("orders"), move.report(MoveState.DONE, 0))
    reported = {"group_id": "orders", "to": UPSTREAM, "members": 1, "left": 1, "took_ms": 0}
    assert lines == [{"event": "group moved", "log_level": "info", **reported}]


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [(ErrorCode.none, True), (ErrorCode.group_id_not_found, True), (ErrorCode.not_coordinator, False)],
    ids=["stored", "nothing to store", "deposed"],
)
def test_a_lost_group_is_reported_with_a_count_only_if_its_release_was_stored(error: ErrorCode, is_lost: bool) -> None:
    """A deposed process has released no member, and the group is not upstream."""
    with capture_logs() as lines:
        log_lost(GroupId("orders"), "why", ReleaseGroupOutcome(error=error))
    (line,) = lines
    assert (line["log_level"], line["reason"]) == ("error" if is_lost else "warning", "why")
    assert ("members" in line, "lost to upstream" in line["event"]) == (is_lost, is_lost)


def test_a_report_of_members_in_the_same_state_says_so() -> None:
    """Without counts."""
    move = released(former("a"), former("b"))
    for name in "ab":
        move.mark_left(MemberId(name))
    assert done(move.report(MoveState.DONE, 0)) == "all its 2 members have left"


def test_a_slow_move_logs_the_awaited_members() -> None:
    """After 5 s, and then once a minute, as long as any is awaited."""
    move = released(former("a"))
    with structlog.testing.capture_logs() as lines:
        for now_ms in (0, 4_999, 5_000, 5_250, 44_999, SESSION_MS + 60_000):
            log_waiting(GroupId("orders"), move, now_ms)
    (line,) = lines
    assert (line["event"], line["group_id"]) == ("group move waits for members", "orders")
    assert "client at 10.0.0.1, not heard from yet, for 40.0 s at most" in line["progress"]


def test_a_recently_heard_member_is_recent() -> None:
    """Per group; the one that was silent for longest is dropped first."""
    recent, group, other = RecentMembers(lambda: 0, members_max=2), GroupId("orders"), GroupId("payments")
    recent.record(group, MemberId("a"), 1_000)
    assert recent.is_recent(group, MemberId("a"), 1_000 + RECENT_WINDOW_MS)
    assert not recent.is_recent(group, MemberId("a"), 1_001 + RECENT_WINDOW_MS)
    assert not recent.is_recent(other, MemberId("a"), 1_000)
    recent.record(group, MemberId("b"), 2_000)
    recent.record(group, MemberId("a"), 3_000)
    recent.record(group, MemberId("c"), 4_000)
    assert [recent.is_recent(group, MemberId(each), 4_000) for each in "abc"] == [True, False, True]
