"""The progress of a move in words."""

import msgspec
import pytest

from muster.coordinator.group.configs import UPSTREAM
from muster.coordinator.group.move_text import DROPPED_MAY, LATE_MAY, done, late, names, progress, waiting
from muster.coordinator.group.outcomes import GroupMove, MoveState, MovingMember


def member(name: str, *, is_notified: bool = True, wait_ms: int | None = None) -> MovingMember:
    return MovingMember(
        member_id=f"{name}-1",
        group_instance_id=name,
        client_id="app",
        client_host="/10.0.0.1",
        is_notified=is_notified,
        wait_ms=wait_ms,
    )


def move(*waits_for: MovingMember, members: int, back: int = 0, left: int = 0) -> GroupMove:
    return GroupMove(
        to=UPSTREAM,
        state=MoveState.MOVING,
        members=members,
        told=0,
        back=back,
        left=left,
        waits_for=waits_for,
        took_ms=0,
    )


A, B = member("a"), member("b")


@pytest.mark.parametrize(
    ("moving", "told"),
    [
        (move(A, members=1), "its only member has not rejoined yet"),
        (move(members=1, back=1), "its only member has rejoined"),
        (move(members=1, left=1), "its only member has left"),
        (move(members=1), "its only member has not rejoined in time"),
        (move(A, B, members=2), "of its 2 members none has rejoined yet"),
        (move(A, members=2, back=1), "of its 2 members 1 has rejoined"),
        (move(members=2, back=2), "all its 2 members have rejoined"),
        (move(members=2), "all its 2 members have not rejoined in time"),
        (move(members=5, back=2, left=1), "of its 5 members 2 have rejoined, 1 has left, 2 have not rejoined in time"),
    ],
)
def test_the_progress_of_members_is_counted(moving: GroupMove, told: str) -> None:
    """If all members are in the same state there are no counts."""
    assert done(moving) == told


@pytest.mark.parametrize(
    ("moving", "told"),
    [
        (move(members=1, back=1), ""),
        (move(A, members=1), "waits for a at 10.0.0.1 to rejoin"),
        (move(member("a", wait_ms=2_000), B, members=2), "waits for a at 10.0.0.1, b at 10.0.0.1 to rejoin"),
        (
            move(member("a", wait_ms=2_000), member("b", wait_ms=7_000), members=2),
            "waits for a at 10.0.0.1, b at 10.0.0.1 to rejoin, for 7.0 s at most",
        ),
        (
            move(A, member("b", is_notified=False, wait_ms=7_000), members=2),
            "waits for a at 10.0.0.1 to rejoin; for b at 10.0.0.1, not heard from yet, for 7.0 s at most",
        ),
    ],
)
def test_awaited_members_are_named_with_the_longest_wait(moving: GroupMove, told: str) -> None:
    """The limit is left out if it is not known for each of them."""
    assert waiting(moving) == told


def test_the_progress_is_both() -> None:
    """Without the wait, if there are no members to wait for."""
    assert progress(move(members=1, back=1)) == "its only member has rejoined"
    assert progress(move(A, members=2, back=1)) == "of its 2 members 1 has rejoined; waits for a at 10.0.0.1 to rejoin"


def test_late_members_are_named_with_the_consequence() -> None:
    """A member that the cluster has dropped was not awaited, and is listed separately."""
    nobody, overdue = move(members=1, back=1), msgspec.structs.replace(move(members=2, back=1), late=(A,))
    assert late(nobody) == ""
    assert (late(overdue), done(overdue)) == (
        f"not rejoined in time: a at 10.0.0.1; {LATE_MAY}",
        "of its 2 members 1 has rejoined, 1 has not rejoined in time",
    )
    dropped = msgspec.structs.replace(overdue, late=(msgspec.structs.replace(A, was_dropped=True),))
    assert (late(dropped), done(dropped)) == (
        f"dropped by the cluster (its session ended): a at 10.0.0.1; {DROPPED_MAY}",
        "of its 2 members 1 has rejoined, 1 has been dropped by the cluster",
    )
    both = msgspec.structs.replace(
        move(members=2), late=tuple(msgspec.structs.replace(m, was_dropped=True) for m in (A, B))
    )
    assert (late(both), done(both)) == (
        f"dropped by the cluster (their sessions ended): a at 10.0.0.1, b at 10.0.0.1; {DROPPED_MAY}",
        "all its 2 members have been dropped by the cluster",
    )
    one_of_each = msgspec.structs.replace(both, late=(A, both.late[1]))
    assert late(one_of_each) == (
        f"not rejoined in time: a at 10.0.0.1; {LATE_MAY}; "
        f"dropped by the cluster (its session ended): b at 10.0.0.1; {DROPPED_MAY}"
    )


def test_some_of_many_are_named() -> None:
    """Five of them; a dynamic member by its client id."""
    assert names([member(name) for name in "abcde"]).endswith("d at 10.0.0.1, e at 10.0.0.1")
    assert names([member(name) for name in "abcdefg"]).endswith("e at 10.0.0.1 and 2 more")
    dynamic = MovingMember(member_id="c-1", group_instance_id=None, client_id="app", client_host="/h", is_notified=True)
    assert names([dynamic]) == "app at h"
