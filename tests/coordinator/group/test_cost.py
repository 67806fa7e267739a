"""The cost of a decision depends on its changes, not on the number of members in the group.

It is measured as work, not time: each instruction that Python executes, each dictionary entry that is copied, and each
table entry that is iterated. In a group of 5,000 a member costs at most half as much again as in one of 100. Decisions
that answer all members have to touch all of them, and are not measured here.
"""

import string
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import product
from types import FrameType
from typing import Any

import msgspec
import pytest

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    ConfigChange,
    ConfigOperation,
    DescribeGroup,
    EndJoinPhase,
    ExpireSession,
)
from muster.coordinator.group.configs import EXPANSION_DELAY, TARGET_GROUP_SIZE
from muster.coordinator.group.decide import would_refuse
from muster.coordinator.group.loaded_groups import restore_soft_state
from muster.coordinator.group.timeouts import due
from muster.events.consumer_protocol import encode_subscription, subscribed_topics
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.state import GroupState, Protocol
from muster.events.tables import Table
from tests.coordinator.group.crowd import GROUP_ID, Crowd, formed

SMALL, LARGE = 100, 5_000
ROUNDS = 150
"""Enough rounds for each table to be rewritten several times."""

WALKS = {function.__code__ for function in (Table.__iter__, Table.keys, Table.values, Table.items)}


class Work:
    """The work that was counted."""

    def __init__(self) -> None:
        self.executed = 0
        self.copied = 0
        self.walked = 0

    @property
    def total(self) -> int:
        return self.executed + self.copied + self.walked

    @contextmanager
    def counted(self) -> Iterator[None]:
        traced, profiled = sys.gettrace(), sys.getprofile()
        sys.settrace(self._called)
        sys.setprofile(self._profiled)
        try:
            yield
        finally:
            sys.setprofile(profiled)
            sys.settrace(traced)

    def _called(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._executed

    def _executed(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        self.executed += event == "opcode"
        return self._executed

    def _profiled(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and arg.__name__ == "copy":
            self.copied += len(arg.__self__)
        elif event == "call" and frame.f_code in WALKS:
            self.walked += len(frame.f_locals["self"])


@cache
def stable(size: int, *, static: bool = False) -> Crowd:
    return formed(size, static=static)


def again(size: int, *, static: bool = False) -> Crowd:
    """The same group for each test, unaffected by the decisions."""
    before = stable(size, static=static)
    crowd = Crowd()
    crowd.now_ms, crowd.soft, crowd._group = before.now_ms, before.soft.copy(), before.group.copy()
    return crowd


def names(number: int = ROUNDS) -> list[str]:
    return [f"newcomer-{n}" for n in range(number)]


def new_members_come(size: int) -> Work:
    """The first one starts the rebalance."""
    crowd, work = again(size), Work()
    for name in names():
        with work.counted():
            crowd.come(name)
    assert crowd.group.state is GroupState.PREPARING_REBALANCE
    return work


def members_rejoin(size: int) -> Work:
    crowd, work = again(size), Work()
    crowd.come("newcomer")
    for member_id in list(crowd.group.members)[: SMALL - 1]:
        with work.counted():
            crowd.send(crowd.join(member_id))
    return work


def members_sync(size: int) -> Work:
    """Before the leader syncs."""
    crowd, work = again(size), Work()
    crowd.come("newcomer")
    crowd.rejoin_all()
    for member_id in list(crowd.group.members)[1:SMALL]:
        with work.counted():
            crowd.send(crowd.sync(member_id))
    assert crowd.group.state is GroupState.COMPLETING_REBALANCE
    return work


def members_leave(size: int) -> Work:
    """Including the leader, and each leader after it."""
    crowd, work = again(size), Work()
    for member_id in list(crowd.group.members)[: SMALL - 1]:
        with work.counted():
            crowd.send(crowd.leave(member_id))
    return work


def members_expire(size: int) -> Work:
    """One after another, starting with the leader, at different times; the others stay alive.

    The first expiry checks and sorts all deadlines, once a second; that is not counted.
    """
    crowd, work = again(size), Work()
    crowd.come("newcomer")
    for n, session in enumerate(crowd.soft.sessions.values()):
        session.deadline_ms = crowd.now_ms + (10 * n if n < SMALL - 1 else 100_000)
    crowd.soft.sessions = type(crowd.soft.sessions)(crowd.soft.sessions)
    for n in range(SMALL - 1):
        crowd.now_ms += 10
        with work.counted() if n else nullcontext():
            commands = due(GROUP_ID, crowd.soft, crowd.now_ms)
            for command in commands:
                crowd.send(command)
            crowd.soft.next_deadline_ms()
        assert all(isinstance(command, ExpireSession) for command in commands)
    assert len(crowd.group.members) <= size - SMALL + 3
    return work


def static_members_restart(size: int) -> Work:
    """Absorbed: no other member is notified. Not the leader, whose response has all members."""
    crowd, work = again(size, static=True), Work()
    for number in range(1, SMALL):
        with work.counted():
            crowd.send(crowd.join(UNKNOWN_MEMBER_ID, f"i{number}", f"restarted-{number}"))
    assert crowd.group.state is GroupState.STABLE
    return work


def new_members_are_held(size: int) -> Work:
    """Until the scale-up delay is over; this many others are waiting already."""
    crowd, work = again(size), Work()
    configure(crowd, EXPANSION_DELAY, "60000")
    for number in range(size):
        crowd.send(crowd.join(UNKNOWN_MEMBER_ID, f"early-{number}", f"early-{number}"))
    for name in names():
        with work.counted():
            crowd.send(crowd.join(UNKNOWN_MEMBER_ID, name, name))
    assert crowd.group.state is GroupState.STABLE
    return work


def standbys_come(size: int) -> Work:
    """Added to an assignment with enough members."""
    crowd, work = again(size), Work()
    configure(crowd, TARGET_GROUP_SIZE, f"{size}")
    for name in names():
        with work.counted():
            crowd.send(crowd.join(UNKNOWN_MEMBER_ID, name, name))
    assert crowd.group.state is GroupState.STABLE
    return work


def configure(crowd: Crowd, name: str, value: str) -> None:
    change = ConfigChange(name=name, operation=ConfigOperation.SET, value=value)
    crowd.send(AlterGroupConfig(**crowd._request(44), changes=(change,), validate_only=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    "situation",
    [
        new_members_come,
        members_rejoin,
        members_sync,
        members_leave,
        members_expire,
        static_members_restart,
        new_members_are_held,
        standbys_come,
    ],
)
def test_a_large_group_costs_a_member_what_a_small_one_does(situation: Callable[[int], Work]) -> None:
    """At most half as much again."""
    small, large = situation(SMALL), situation(LARGE)
    assert large.total <= 1.5 * small.total, f"{vars(small)}, {vars(large)}"


def test_requests_without_effect_copy_nothing() -> None:
    """A heartbeat, a description, and the check whether a join would be refused; the first two return the same group
    object.
    """
    crowd, requested = again(LARGE), Work()
    group, soft = crowd.group, crowd.soft
    member_id = next(iter(group.members))
    with requested.counted():
        crowd.send(crowd.heartbeat(member_id))
        crowd.send(DescribeGroup(**crowd._request(15)))
    assert (crowd.group is group, crowd.soft is soft, requested.copied) == (True, True, 0)
    refusing = Work()
    with refusing.counted():
        would_refuse(crowd.join(MemberId("nobody")), group, soft, crowd.now(), crowd.settings)
    assert refusing.total < 2_000, vars(refusing)


@pytest.mark.slow
def test_the_end_of_a_join_phase_and_the_leaders_sync_visit_each_member_once() -> None:
    """The same cost for each member as in a small group."""
    each = []
    for size in (SMALL, LARGE):
        crowd, work = again(size), Work()
        crowd.come("newcomer")
        assert crowd.soft.join_deadline_ms is not None
        for member_id in list(crowd.group.members)[:-2]:
            crowd.send(crowd.join(member_id))
        crowd.now_ms = crowd.soft.join_deadline_ms
        with work.counted():
            crowd.send(EndJoinPhase(group_id=GROUP_ID, due_ms=crowd.now_ms))
        for member_id in list(crowd.group.members):
            if member_id != crowd.group.leader_id:
                crowd.send(crowd.sync(member_id))
        assert crowd.group.leader_id is not None
        sync = crowd.sync(crowd.group.leader_id)
        with work.counted():
            crowd.send(sync)
        assert crowd.group.state is GroupState.STABLE
        each.append(work.total / size)
    assert each[1] <= 1.5 * each[0]


@pytest.mark.slow
def test_a_group_of_long_subscriptions_is_not_read_whole_at_once() -> None:
    """Neither at the end of a join phase nor at a takeover: it takes less processor time than reading two of them."""
    alphabet = string.ascii_letters + string.digits
    names = ["".join(name) for name in product(alphabet, repeat=3)][:200_000]
    subscriptions = [encode_subscription(names[n:] + names[:n]) for n in range(20)]
    began_s = time.process_time()
    assert len(subscribed_topics(subscriptions[0]) or ()) == len(names)
    two_s = 2 * (time.process_time() - began_s)
    crowd = Crowd()
    for n, metadata in enumerate(subscriptions):
        protocols = (Protocol(name="range", metadata=metadata),)
        join = crowd.join(UNKNOWN_MEMBER_ID, f"i{n}", f"member-{n}")
        crowd.send(msgspec.structs.replace(join, protocols=protocols))
    assert crowd.soft.join_deadline_ms is not None
    crowd.now_ms = 10 * crowd.soft.join_deadline_ms
    began_s = time.process_time()
    while crowd.group.state is GroupState.PREPARING_REBALANCE:
        crowd.send(EndJoinPhase(group_id=GROUP_ID, due_ms=crowd.now_ms))
        crowd.now_ms = 10 * (crowd.soft.join_deadline_ms or 0)
    restore_soft_state(crowd.group, crowd.now_ms, crowd.settings)
    assert time.process_time() - began_s < two_s
