"""Each invariant can fail: evidence of a service without a fence, a lease or a wait for durability is noticed."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from muster.events.causes import Cause
from muster.events.consumer_protocol import encode_assignment
from muster.events.events import Event, JoinPhaseCompleted, MemberAssigned, MemberRemoved, Why
from muster.events.ids import GroupId, MemberId
from muster.events.state import Member, Protocol, new_group
from muster.replay.history.items import LogPosition
from tests.chaos.evidence import LogRead, Recorded, StoredCommit
from tests.chaos.ledger import CommitReply, Entry, HeartbeatReply, JoinReply, LibraryCommit, SyncReply
from tests.chaos.verdict import violations

GROUP = "orders"
SESSION_MS = 10_000
BOTH = encode_assignment({"work": [0, 1]})
ONE = encode_assignment({"work": [1]})


def reply(kind: Any, at_ms: int, *, who: str = "a", generation: int = 1, **more: object) -> Any:
    """Make an entry: a member got this response 5 ms after its request."""
    request = {"group_id": GROUP, "member_id": who, "instance": None, "asked_ms": at_ms, "heard_ms": at_ms + 5}
    return kind(via="h:1", generation_id=generation, **request, **more)


def stored(offset: int, generation: int, *, partition: int = 0) -> StoredCommit:
    return StoredCommit(
        group_id=GROUP, partition=partition, offset=offset, metadata=str(generation), place=f"offset {offset}"
    )


def member(who: str, assignment: bytes = b"") -> Member:
    return Member(
        member_id=MemberId(who),
        group_instance_id=None,
        client_id="app",
        client_host="/10.0.0.1",
        principal="User:app",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocols=(Protocol(name="range", metadata=b""),),
        assignment=assignment,
        assigned_generation_id=1,
        joined_ms=0,
    )


def event(kind: Any, at_ms: int, cause: Cause, **fields: object) -> Event:
    why = Why(cause=cause, arrived_ms=at_ms, decided_ms=at_ms)
    made: Event = kind(group_id=GroupId(GROUP), incarnation=1, seq=1, owner_epoch=1, why=why, **fields)
    return made


def completed(at_ms: int, generation: int, leader: str) -> Event:
    image = new_group(GroupId(GROUP), incarnation=1, wall_ms=0).image
    group = msgspec.structs.replace(image, generation_id=generation, leader_id=MemberId(leader))
    return event(JoinPhaseCompleted, at_ms, Cause.ALL_JOINED, group=group, absent=(), timed_out=False)


def assigned(at_ms: int, who: str, assignment: bytes) -> Event:
    seen = {"last_seen_ms": at_ms, "longest_silence_ms": 0}
    return event(MemberAssigned, at_ms, Cause.ASSIGNMENT_RECEIVED, member=member(who, assignment), **seen)


def removed(at_ms: int, who: str) -> Event:
    return event(MemberRemoved, at_ms, Cause.SESSION_EXPIRED, member=member(who), last_seen_ms=0, longest_silence_ms=0)


TOLD: Sequence[Entry] = (
    reply(JoinReply, 1_000, leader="a"),
    reply(SyncReply, 1_010, assignment=BOTH),
    reply(HeartbeatReply, 2_000),
    reply(CommitReply, 2_000, partition=0, offset=1),
    LibraryCommit(group_id=GROUP, partition=1, offset=7, heard_ms=2_000),
)
EVENTS: Sequence[Event] = (completed(1_005, 1, "a"), assigned(1_012, "a", BOTH))
STORED = (stored(1, 1), stored(7, 1, partition=1))


def numbers(
    entries: Sequence[Entry] = (),
    events: Sequence[Event] = (),
    commits: Sequence[StoredCommit] = (),
    findings: Sequence[str] = (),
) -> set[int]:
    """The invariants that do not hold when there is this, too."""
    recorded = [Recorded(each, LogPosition(partition=0, offset=at, timestamp_ms=0)) for at, each in enumerate(events)]
    log = LogRead(
        [*(Recorded(each, LogPosition(partition=0, offset=0, timestamp_ms=0)) for each in EVENTS), *recorded], ()
    )
    found = violations([*TOLD, *entries], log, [*STORED, *commits], findings, {GROUP: SESSION_MS})
    return {each.number for each in found}


def test_state_as_reported_is_not_a_violation() -> None:
    assert numbers() == set()


def test_a_partition_of_two_members_of_one_generation_is_noticed() -> None:
    """For instance if an owner that was not fenced assigns a generation, too."""
    events = (assigned(1_020, "b", ONE),)
    assert numbers([reply(SyncReply, 1_015, who="b", assignment=ONE)], events) == {1}
    assert numbers([reply(SyncReply, 1_015, who="b", generation=2, assignment=ONE)], events) == set()


def test_an_accepted_commit_that_is_not_stored_is_noticed() -> None:
    """A member's, and one that a library has reported to its application as done."""
    assert numbers([reply(CommitReply, 3_000, partition=0, offset=2)]) == {2}
    assert numbers([LibraryCommit(group_id=GROUP, partition=1, offset=8, heard_ms=3_000)]) == {2}


def test_a_commit_behind_one_of_a_newer_generation_is_noticed() -> None:
    assert numbers(commits=[stored(2, 2), stored(3, 1)]) == {2}
    assert numbers(commits=[stored(3, 1), stored(2, 1), stored(4, 2)]) == set()


@pytest.mark.parametrize(
    "entry", [reply(JoinReply, 3_000, generation=2, leader="a"), reply(SyncReply, 3_000, assignment=ONE)]
)
def test_a_place_without_an_event_is_noticed(entry: Entry) -> None:
    """For instance if a response leaves before its events are durable, and the process dies."""
    assert numbers([entry]) == {3}


def test_an_eviction_within_a_session_after_an_accepted_heartbeat_is_noticed() -> None:
    assert numbers(events=[removed(2_000 + SESSION_MS - 10, "a")]) == {4}
    assert numbers(events=[removed(2_005 + SESSION_MS, "a")]) == set()


def test_a_finding_of_verify_is_a_violation() -> None:
    assert numbers(findings=["an owner of an older epoch has written"]) == {5}


@pytest.mark.parametrize("over", [completed(4_000, 2, "b"), removed(20_000, "a")])
def test_a_heartbeat_that_a_deposed_owner_accepts_is_noticed(over: Event) -> None:
    """Its generation, or its member, no longer existed when the request was sent."""
    at_ms = over.why.decided_ms  # type: ignore[attr-defined]
    assert numbers([reply(HeartbeatReply, at_ms + 50)], [over]) == {6}
    assert numbers([reply(HeartbeatReply, at_ms - SESSION_MS - 50)], [over]) == set()
