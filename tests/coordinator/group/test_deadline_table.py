"""An entry is found when its deadline is due, however it was moved, and not before the next full check."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.deadline_table import LOOK_AHEAD_MS
from muster.coordinator.group.soft_state import (
    NEVER,
    HeldJoin,
    HeldJoins,
    MemberSyncDeadlines,
    Session,
    Sessions,
    SoftState,
)
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from tests.coordinator.group.deadlines import all_due, deadlines, next_deadline_ms
from tests.coordinator.group.harness import Harness

GROUP_ID = GroupId("orders")
NUMBERS = st.integers(0, 79)
TIMEOUTS_MS = st.sampled_from((1, 500, 6_000, 10_000, 45_000))


class Deadlines(RuleBasedStateMachine):
    """Copies of a soft state that share their sessions, which are changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.softs = [SoftState()]

    def soft(self, i: int) -> SoftState:
        return self.softs[i % len(self.softs)]

    @rule(i=st.integers(0))
    def copied(self, i: int) -> None:
        self.softs.append(self.soft(i).copy())

    @rule(i=st.integers(0), number=NUMBERS, timeout_ms=TIMEOUTS_MS, deadline_ms=st.sampled_from((0, 300_000, NEVER)))
    def put(self, i: int, number: int, timeout_ms: int, deadline_ms: float) -> None:
        session = Session(timeout_ms=timeout_ms, deadline_ms=self.now_ms + deadline_ms, last_seen_ms=self.now_ms)
        self.soft(i).sessions[MemberId(f"{number}")] = session

    @rule(i=st.integers(0), numbers=st.lists(NUMBERS), timeout_ms=TIMEOUTS_MS)
    def put_many(self, i: int, numbers: list[int], timeout_ms: int) -> None:
        for n in numbers:
            self.put(i, n, timeout_ms, timeout_ms + n)
            self.soft(i).member_sync_deadlines[MemberId(f"{n}")] = self.now_ms + n

    @rule(i=st.integers(0), numbers=st.lists(NUMBERS))
    def touched(self, i: int, numbers: list[int]) -> None:
        """In every copy that shares them."""
        for n in numbers:
            session = self.soft(i).sessions.get(MemberId(f"{n}"))
            if session is not None:
                session.refresh(self.now_ms, None)

    @rule(i=st.integers(0), number=NUMBERS)
    def forgotten(self, i: int, number: int) -> None:
        self.soft(i).sessions.pop(MemberId(f"{number}"), None)
        self.soft(i).member_sync_deadlines.pop(MemberId(f"{number}"), None)

    @rule(i=st.integers(0))
    def cleared(self, i: int) -> None:
        self.soft(i).member_sync_deadlines.clear()

    @rule(duration_ms=st.sampled_from((1, 400, 1_000, 7_000, 60_000)))
    def slept(self, duration_ms: int) -> None:
        self.now_ms += duration_ms

    @rule(i=st.integers(0))
    def looked(self, i: int) -> None:
        """Everything due is found, and found again if it was not handled."""
        for _ in range(2):
            all_due(GROUP_ID, self.soft(i), self.now_ms)

    @invariant()
    def nothing_is_looked_for_too_late(self) -> None:
        for soft in self.softs:
            next_deadline_ms(soft)


Deadlines.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestDeadlines = Deadlines.TestCase


def test_without_entries_nothing_is_due_ever() -> None:
    """For each kind of table."""
    kinds: tuple[Callable[[], Sessions | HeldJoins | MemberSyncDeadlines], ...] = (
        Sessions,
        HeldJoins,
        MemberSyncDeadlines,
    )
    assert [kind().next_ms() for kind in kinds] == [NEVER, NEVER, NEVER]
    assert deadlines(SoftState()) == []


def test_held_joins_that_are_all_dropped_leave_no_instance_behind() -> None:
    """A lookup by instance id would lead to a join that is not there."""
    join = Harness().static("b").join().command
    assert isinstance(join, JoinGroup)
    joins = HeldJoins({MemberId("b-1"): HeldJoin(join=join, arrived_ms=0, deadline_ms=5_000)})
    assert dict(joins.instances) == {GroupInstanceId("b"): MemberId("b-1")}
    joins.clear()
    assert (dict(joins), dict(joins.instances), joins.next_ms()) == ({}, {}, NEVER)


def test_a_rescheduled_deadline_comes_after_earlier_ones() -> None:
    """Neither of two due entries was handled, and one was refreshed."""
    soft, first, second = SoftState(), MemberId("first"), MemberId("second")
    for member_id in (first, second):
        soft.sessions[member_id] = Session(timeout_ms=1, deadline_ms=1, last_seen_ms=0)
    assert [key for _, key in soft.sessions.due(400)] == [first, second]
    soft.sessions[first].refresh(400, None)
    assert list(soft.sessions.due(401)) == [(1, second), (401, first)]
    assert soft.next_deadline_ms() == 1


class Counting(MemberSyncDeadlines):
    """Count the full checks."""

    looks = 0

    def _check_all(self, now_ms: int) -> None:
        Counting.looks += 1
        super()._check_all(now_ms)


@pytest.mark.parametrize("later_ms", [LOOK_AHEAD_MS - 1, LOOK_AHEAD_MS, LOOK_AHEAD_MS + 1])
def test_those_that_end_within_a_second_are_found_with_one_look_at_all(later_ms: int) -> None:
    """Including one exactly a second later; otherwise members that expire one after another would cost a full check
    each.
    """
    Counting.looks, table = 0, Counting({MemberId("first"): 5, MemberId("second"): 5 + later_ms})
    for name, now_ms in (("first", 5), ("second", 5 + later_ms)):
        assert table.next_ms() == now_ms
        assert [key for _, key in table.due(now_ms)] == [name]
        del table[MemberId(name)]
        assert not list(table.due(now_ms))
    assert Counting.looks == (1 if later_ms <= LOOK_AHEAD_MS else 2)


def test_a_group_whose_members_heartbeat_is_checked_once_per_session() -> None:
    """With a thousand members that heartbeat every three seconds there is one full check in 42 seconds."""
    soft, looks, timeout_ms = SoftState(), 0, 45_000
    for n in range(1_000):
        soft.sessions[MemberId(f"{n}")] = Session(
            timeout_ms=timeout_ms, deadline_ms=timeout_ms + 3 * n, last_seen_ms=3 * n
        )
    for now_ms in range(3_000, 10 * 60_000, 3_000):
        for n, session in enumerate(soft.sessions.values()):
            session.refresh(now_ms - 3_000 + 3 * n, None)
        if soft.next_deadline_ms() <= now_ms:
            looks += 1
            assert not all_due(GROUP_ID, soft, now_ms)
    assert looks <= 10 * 60_000 / (timeout_ms - 3_000 - LOOK_AHEAD_MS)
