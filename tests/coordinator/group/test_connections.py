"""Events record the connection of a request, and how the member's previous connection ended."""

from typing import Any

from muster.coordinator.group.connections import ConnectionRecord
from muster.events.connection import ConnectionEnd, LastConnection
from muster.events.events import MemberJoined, MemberRejoined, MemberRemoved, StaticMemberReplaced
from muster.events.ids import MemberId
from tests.coordinator.group.client import SESSION_TIMEOUT_MS
from tests.coordinator.group.harness import Harness


def last(h: Harness, event_type: type[Any]) -> Any:
    return next(event for event in reversed(h.events) if isinstance(event, event_type))


def test_a_silent_member_leaves_the_facts_of_its_connection() -> None:
    """A process that ended has closed its connection; one that is cut off has not."""
    for end in (ConnectionEnd.CLOSED, ConnectionEnd.RESET, None):
        h = Harness()
        a, b = h.stable_group(h.static("a"), h.dynamic("b"))
        b.heartbeat()
        h.sleep(1_000)
        if end is not None:
            b.connection.ended(end, h.now_ms)
        ended_ms = h.wall_ms
        received_ms = h.wall_ms - 1_000
        for _ in range(4):
            a.heartbeat()
            h.sleep(SESSION_TIMEOUT_MS // 4)
        assert last(h, MemberRemoved).last_connection == LastConnection(
            connection_id=b.connection.number,
            received_ms=received_ms,
            end=end,
            ended_ms=None if end is None else ended_ms,
        )
        assert last(h, MemberRemoved).why.connection_id is None, "a timer's"


def test_a_process_that_leaves_and_joins_again_does_so_on_one_connection() -> None:
    """Like a consumer that polled too late."""
    h = Harness()
    _, b = h.stable_group(h.static("a"), h.dynamic("b"))
    b.leave()
    b.member_id = MemberId("")
    b.enter()
    left, joined = last(h, MemberRemoved), last(h, MemberJoined)
    assert left.why.connection_id == left.last_connection.connection_id == joined.why.connection_id
    assert left.last_connection.end is None


def test_a_rejoin_on_another_connection_records_the_end_of_the_former_one() -> None:
    """On the same connection there is nothing to record."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    leader = a if a.is_leader else b
    leader.join()
    assert last(h, MemberRejoined).last_connection is None
    former, leader.connection = leader.connection, h.new_connection()
    former.ended(ConnectionEnd.CLOSED_BY_COORDINATOR, h.now_ms)
    leader.join()
    rejoined = last(h, MemberRejoined)
    assert rejoined.last_connection.connection_id == former.number
    assert rejoined.last_connection.end is ConnectionEnd.CLOSED_BY_COORDINATOR
    assert rejoined.why.connection_id == leader.connection.number


def test_a_static_restart_records_the_end_of_the_former_connection() -> None:
    """If the former process is alive its connection is open: then there are two processes."""
    for end in (ConnectionEnd.CLOSED, None):
        h = Harness()
        a, _ = h.stable_group(h.static("a"), h.static("b"))
        if end is not None:
            a.connection.ended(end, h.now_ms)
        a.restarted().join()
        replaced = last(h, StaticMemberReplaced).replaced_connection
        assert (replaced.connection_id, replaced.end) == (a.connection.number, end)


def test_connections_are_unknown_after_a_takeover_until_the_member_sends_a_request() -> None:
    """Its previous connection led to the former owner."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.takeover()
    a.connection = h.new_connection()
    a.heartbeat()
    h.sleep(SESSION_TIMEOUT_MS)
    removed = [event for event in h.events if isinstance(event, MemberRemoved)]
    known = {str(event.member.group_instance_id): event.last_connection for event in removed}
    assert known["b"] is None
    assert known["a"] is not None
    assert known["a"].connection_id == a.connection.number
    assert b.connection.number != a.connection.number


def test_the_connection_of_a_member_is_that_of_its_last_request() -> None:
    """The connection of an older request does not count."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    former, b.connection = b.connection, h.new_connection()
    b.heartbeat()
    former.ended(ConnectionEnd.CLOSED, h.now_ms)
    h.sleep(SESSION_TIMEOUT_MS - 1)
    a.heartbeat()
    h.sleep(1)
    removed = last(h, MemberRemoved)
    assert removed.member.group_instance_id == "b"
    assert (removed.last_connection.connection_id, removed.last_connection.end) == (b.connection.number, None)


def test_the_first_end_counts() -> None:
    """We close our side once the client has closed its own."""
    record = ConnectionRecord(number=1)
    record.ended(ConnectionEnd.CLOSED, 5)
    record.ended(ConnectionEnd.CLOSED_BY_COORDINATOR, 6)
    assert (record.end, record.ended_ms) == (ConnectionEnd.CLOSED, 5)
