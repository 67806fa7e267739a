"""Arrivals: new members whose joins are gathered, so that many of them make one rebalance.

Two things gather: a registration (KIP-469: the named instances are waited for, all of them or until a timeout), and
the delay of a scale-up (the expansion timeout of KIP-345's drafts). Both hold joins to a group that has an assignment,
or is about to get one, and leave the group alone meanwhile. An arrival is no member: it has no session and no event.

    hold        parked for min(its rebalance timeout, 20 s), since some clients give up any request after 40 s
    send back   COORDINATOR_LOAD_IN_PROGRESS, which every client takes as: ask again (REBALANCE_IN_PROGRESS kills some)
    forget      who has not asked again 10 s later has not arrived
    admit       as soon as a join phase begins, for whatever reason: those who are parked become members
"""

from collections.abc import Collection

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.members import add_parked_member, supports_protocols
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.roles import role_of_new_member
from muster.coordinator.group.soft import Arrival, Arrivals, Session, Soft
from muster.coordinator.group.turn import Turn
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.state import GroupState

HOLD_MS_MAX = 20_000
HOLD_MS_MIN = 100
COMES_BACK_WITHIN_MS = 10_000


def is_held(turn: Turn, command: JoinGroup) -> bool:
    """Whether this new member has to wait."""
    if turn.image.state not in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        return False
    return command.group_instance_id in turn.group.registrations or bool(turn.group.config.expansion_delay_ms)


def is_waited_for(turn: Turn, command: JoinGroup) -> bool:
    """Whether it was registered, and others that were are here and wait for it."""
    registered = command.group_instance_id in turn.group.registrations
    return registered and any(instance in turn.group.registrations for instance in turn.soft.arrivals.instances)


def hold(turn: Turn, command: JoinGroup, member_id: MemberId) -> None:
    """Park the join of an arrival, or of one that came back."""
    soft, group = turn.soft, turn.group
    before = take_back(turn, command, member_id)
    if command.group_instance_id not in group.registrations and soft.expansion_deadline_ms is None:
        soft.expansion_deadline_ms = turn.now_ms + (group.config.expansion_delay_ms or 0)
    hold_ms = min(max(command.rebalance_timeout_ms, HOLD_MS_MIN), HOLD_MS_MAX)
    soft.arrivals[member_id] = Arrival(
        join=command,
        arrived_ms=before.arrived_ms if before else turn.now_ms,
        deadline_ms=turn.now_ms + hold_ms,
    )


def take_back(turn: Turn, command: JoinGroup, member_id: MemberId) -> Arrival | None:
    """The arrival that this is, if it came before; it is none any more.

    A parked join of its own is never answered (J13). Another process with the same instance id is fenced at once, as a
    member would be (ST7).
    """
    arrivals = turn.soft.arrivals
    if member_id in arrivals:
        return arrivals.pop(member_id)
    other = arrival_of(turn.soft, command.group_instance_id)
    if other is None:
        return None
    arrival = arrivals.pop(other)
    _answer(turn, arrival, ErrorCode.fenced_instance_id, other)
    return arrival


def arrival_error(turn: Turn, member_id: MemberId, group_instance_id: GroupInstanceId | None) -> ErrorCode:
    """An arrival under its own member id names its own instance id, or none (as M4, M5 for members)."""
    own = turn.soft.arrivals[member_id].join.group_instance_id
    if group_instance_id in (None, own):
        return ErrorCode.none
    is_taken = group_instance_id in turn.group.instances or arrival_of(turn.soft, group_instance_id) is not None
    return ErrorCode.fenced_instance_id if is_taken else ErrorCode.unknown_member_id


def arrival_of(soft: Soft, group_instance_id: GroupInstanceId | None) -> MemberId | None:
    """The member id of the arrival with this instance id."""
    if group_instance_id is None:
        return None
    return soft.arrivals.instances.get(group_instance_id)


def end_hold(turn: Turn, member_id: MemberId) -> None:
    """Send an arrival back, to ask again; forget one that did not."""
    arrival = turn.soft.arrivals.get(member_id)
    if arrival is None or arrival.deadline_ms > turn.now_ms:
        return
    if not arrival.parked:
        del turn.soft.arrivals[member_id]
        return
    _answer(turn, arrival, ErrorCode.coordinator_load_in_progress, member_id)
    turn.soft.arrivals[member_id] = msgspec.structs.replace(
        arrival, parked=False, deadline_ms=turn.now_ms + COMES_BACK_WITHIN_MS
    )


def give_up(turn: Turn, member_id: MemberId) -> None:
    """The arrival leaves, or is removed, before it was a member (as L8)."""
    _answer(turn, turn.soft.arrivals.pop(member_id), ErrorCode.unknown_member_id, UNKNOWN_MEMBER_ID)


def all_arrived(turn: Turn, instances: Collection[GroupInstanceId]) -> bool:
    """Whether each of these instances is held; one that was sent back a moment ago counts."""
    held = turn.soft.arrivals.instances
    return len(held) >= len(instances) and all(instance in held for instance in instances)


def admit_arrivals(turn: Turn) -> None:
    """A join phase has begun: who is parked takes part in it, as a new member; the others come when they come."""
    why = turn.why
    arrivals, turn.soft.arrivals = turn.soft.arrivals, Arrivals()
    turn.soft.expansion_deadline_ms = None
    for member_id, arrival in arrivals.items():
        if not arrival.parked:
            _expect_back(turn, member_id, arrival)
            continue
        if not supports_protocols(turn, arrival.join):
            _answer(turn, arrival, ErrorCode.inconsistent_group_protocol, member_id)
        elif len(turn.soft.joins) >= turn.settings.max_size:
            _answer(turn, arrival, ErrorCode.group_max_size_reached, UNKNOWN_MEMBER_ID)
        else:
            add_parked_member(turn, arrival.join, member_id, role_of_new_member(turn, arrival.join))
    turn.why = why


def _expect_back(turn: Turn, member_id: MemberId, arrival: Arrival) -> None:
    """It was sent back a moment ago: a dynamic one comes again with its id, while a static one needs none."""
    if arrival.join.group_instance_id is None:
        turn.soft.pending[member_id] = Session(
            timeout_ms=arrival.join.session_timeout_ms, deadline_ms=arrival.deadline_ms, heard_ms=turn.now_ms
        )


def _answer(turn: Turn, arrival: Arrival, error: ErrorCode, echo: MemberId) -> None:
    if arrival.parked:
        turn.reply(arrival.join.caller, JoinGroupOutcome(error=error, member_id=echo))
