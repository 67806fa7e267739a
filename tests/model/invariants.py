"""The invariants of every state and every step, numbered. A violation is reported by its number.

  1. Hard state is as `events/state.py` numbers it: at most one member for each instance id, above all.
  2. A member id, once fenced (replaced), is never a member again and never gets a success again.
  3. A generation that has begun has one leader, a member, and only its successor takes its place; a stable one has
     one assignment for each member, made for it by that leader, for that generation; a rebalance that starts before
     there are any makes the older ones void (RB1).
  4. The generation never decreases, and grows by one only at the end of a join phase; states change only as S1
     allows; events are numbered without a gap.
  5. No request waits forever: if all fall silent, each parked one is answered within the longest rebalance timeout,
     nothing repeats endlessly, and the group is empty in the end.
  6. Nothing is answered that is not in the log: each success names a member, a generation, a leader, an assignment
     as they are in the group that the events add up to.
  7. The projection of the events equals the live state.
  8. A parked request is never forgotten, except for its own repetition by the same member; none is answered twice.
  9. A member heard from in time never expires, nor a parked one, except in its first join (SE3): no session has less
     than its full time from now.
 10. Soft state fits hard state (lettered in `tests/coordinator/group/invariants.py`).
 11. A decision changes none of its inputs.
 12. A new member does not postpone the end of a join phase (JP6).
 13. A repeated join with its proposed id adds no second member: if that id is a member, all members stay.
 14. The restart of a static member in a stable group is absorbed: no rebalance, even if its response is lost.
 15. A static member is only removed by expiry, leaving or removal, never because it missed a join phase (ST28).
 16. A dynamic member that did not rejoin is not in the next generation (RB6).
 17. A join phase, except its initial delay, ends as soon as all have joined and no id is pending (S15, RB3).

Checked on every step: all but 5, the bytes of 7, and 11, which `silence.py` checks.
"""

import zlib
from functools import lru_cache

from muster.coordinator.group.commands import AnyCommand, AnyRequest, JoinGroup
from muster.coordinator.group.decide import Decision
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.group.soft_state import SoftState
from muster.events.consumer_protocol import encode_assignment
from muster.events.events import AnyEvent, MemberJoined, StaticMemberReplaced
from muster.events.evolve import evolve
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.state import Group, GroupState, new_group
from tests.coordinator.group import promises
from tests.coordinator.group.invariants import check_hard, check_soft, check_transition


class Violation(Exception):
    """The invariant of that number does not hold."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"invariant {number}: {text}")
        self.number = number


@lru_cache(maxsize=10_000)
def assignment_by(leader: str, member: str, generation_id: int) -> bytes:
    """The unique assignment of a member by this leader in this generation; both named by what survives a restart."""
    return encode_assignment({"orders": [zlib.crc32(f"{leader}>{member}@{generation_id}".encode()) >> 1]})


def check_state(group: Group | None, soft: SoftState, fenced: frozenset[MemberId], *, exact: bool = True) -> None:
    """Check the invariants of a state by itself; 1 was checked with the step that led to it. `exact`: no member
    substitutes for another, so each has the assignment that was made for it.
    """
    number = 10
    try:
        if group is not None:
            number = 2
            assert fenced.isdisjoint(group.members), f"fenced, and a member: {sorted(fenced & group.members.keys())}"
            number = 3
            _check_assignments(group, exact=exact)
            number = 17
            _check_join_phase_goes_on(group, soft)
        number = 10
        check_soft(group, soft)
    except AssertionError as broken:
        raise Violation(number, str(broken)) from broken


def check_step(command: AnyCommand, group: Group | None, soft: SoftState, decision: Decision, now_ms: int) -> None:
    """Check the invariants of a step: of the state before, the command, and the state it leads to."""
    after, events = decision.group, decision.events
    number = 3
    try:
        if len(decision.replies) > 1:
            promises.check_one_leader(reply.outcome for reply in decision.replies)
        number = 7
        _check_projection(group, decision)
        if events:
            number = 1
            if after is not None:
                check_hard(after)
            number = 4
            check_transition(group, events, after)
            number = 15
            promises.check_removals(events)
            number = 16
            promises.check_absent(decision)
        if group is not None and after is not None:
            number = 3
            promises.check_leader_stays(group, after)
            promises.check_assignments_fall(group, after)
            number = 12
            promises.check_join_phase(command, group, soft, after, decision.soft)
            if isinstance(command, JoinGroup):
                number = 13
                _check_repetition(command, group, events)
                number = 14
                promises.check_restart(command, group, after)
        number = 9
        promises.check_sessions(command, soft, decision.soft, now_ms)
    except AssertionError as broken:
        raise Violation(number, str(broken)) from broken


def check_answer(
    command: AnyRequest, outcome: Outcome, decision: Decision, fenced: frozenset[MemberId], as_member: MemberId
) -> None:
    """Check the invariants of an answer; `as_member`: the sender."""
    number = 2
    try:
        assert as_member not in fenced or not promises.is_success(outcome), f"{as_member} was fenced: {outcome}"
        number = 6
        promises.check_answer(command, outcome, decision.group, decision.soft)
        number = 9
        promises.check_heard(command, outcome, decision.soft)
    except AssertionError as broken:
        raise Violation(number, str(broken)) from broken


def _check_projection(group: Group | None, decision: Decision) -> None:
    events = decision.events
    if not events:
        assert decision.group == group, "the group changed without an event"
        return
    before = group or new_group(events[0].group_id, incarnation=events[0].incarnation, wall_ms=0)
    projected = evolve(before, events)
    if decision.group is None:
        assert projected.state is GroupState.DEAD, "the group is gone, and its events do not say so"
    else:
        assert projected == decision.group, "the events do not add up to the group"


def _check_assignments(group: Group, *, exact: bool) -> None:
    if group.state is not GroupState.STABLE:
        return
    given = {m.member_id: group.assignment_of(m) for m in group.members.values() if not m.is_inactive}
    assert all(given.values()), f"no assignment: {given}"
    promises.check_shares(group)
    if exact:
        leader = promises.entity(group, group.leader_id) or ""
        for member_id, assignment in given.items():
            whose = promises.entity(group, member_id) or ""
            made = assignment_by(leader, whose, group.generation_id)
            assert assignment == made, f"{member_id} has another assignment than {leader} made for it"


def _check_join_phase_goes_on(group: Group, soft: SoftState) -> None:
    waits = group.state is GroupState.PREPARING_REBALANCE and soft.initial_delay is None and not soft.pending_members
    if waits and group.members:  # else the awaited ones were lost in a takeover, and the end is due (RB5)
        assert len(soft.parked_joins) < len(group.members), "a join phase goes on, and all are there"


def _check_repetition(command: JoinGroup, group: Group, events: tuple[AnyEvent, ...]) -> None:
    proposed = command.proposed_member_id
    if command.member_id != UNKNOWN_MEMBER_ID or proposed not in group.members:
        return
    for event in events:
        if isinstance(event, MemberJoined | StaticMemberReplaced):
            raise AssertionError(f"the repetition of {proposed}'s join brought {event.member.member_id}")
