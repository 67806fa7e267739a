"""One command in the world: decided by the rules, checked, and its effect on every process.

Defines how a state leads to the next one; `steps.py` has the commands and when they are sent. The rules are an
argument: the real ones, or broken ones that show what the checks are worth.
"""

import math
from collections.abc import Callable

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group import decide as rules
from muster.coordinator.group.commands import (
    AnyCommand,
    AnyDeadline,
    AnyRequest,
    Caller,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from muster.coordinator.group.decide import Decision
from muster.coordinator.group.loaded_groups import restore_soft_state
from muster.coordinator.group.outcomes import HeartbeatOutcome, JoinGroupOutcome, Outcome, SyncGroupOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import Sessions, SoftState
from muster.coordinator.group.turn import Now
from muster.events.events import StaticMemberReplaced
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupId, GroupInstanceId, MemberId
from muster.events.state import Group, Protocol
from tests.coordinator.group.client import subscription
from tests.coordinator.group.deadlines import all_due, next_deadline_ms
from tests.model.invariants import Violation, assignment_by, check_answer, check_state, check_step
from tests.model.state import Open, Process, State

GROUP_ID = GroupId("orders")
WALL_MS = 1_700_000_000_000
"""It never advances: the rules record it, and compare it only to see which member joined first; here the lower member
id did.
"""

UNIT_MS = 10_000
"""Everything takes whole units. A static member's session outlasts a join phase, a dynamic one's does not."""

DELAY_MS = UNIT_MS
DYNAMIC_SESSION_MS = 2 * UNIT_MS
REBALANCE_MS = 3 * UNIT_MS
STATIC_SESSION_MS = 4 * UNIT_MS

INSTANCES = (GroupInstanceId("a"), GroupInstanceId("b"))
PROTOCOLS = (Protocol(name="range", metadata=subscription("orders")),)
NEW_VERSION, OLD_VERSION = 9, 3
"""JoinGroup v9 requires two steps of a dynamic member (KIP-394), and lets a static leader skip the assignment; v3 does
neither.
"""

Decide = Callable[[AnyCommand, Group | None, SoftState, Now, GroupSettings], Decision]
Resume = Callable[[Group, int, GroupSettings], SoftState]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that are checked."""

    decide: Decide = rules.decide
    resume: Resume = restore_soft_state


REAL = Rules()


class World:
    """See the module. `begin` is the initial state; everything else is a function of a state.

    `is_planned`: an administrator is part of the world, so joins may be delayed, and members may substitute for each
    other.
    """

    def __init__(self, *, rules: Rules = REAL, version: int = NEW_VERSION, is_planned: bool = False) -> None:
        self.rules = rules
        self.version = version
        self.is_planned = is_planned
        self.settings = GroupSettings(initial_rebalance_delay_ms=DELAY_MS)
        static = [Process(name=f"S{n}", is_static=True, version=version) for n in (1, 2, 3)]
        dynamic = Process(name="D", is_static=False, version=version)
        self.decisions = 0
        self.begin = State(soft=SoftState(), processes=(*static, dynamic))

    # ---- what processes send -------------------------------------------------------------------------

    def join(self, state: State, process: Process, *, proposed: MemberId) -> JoinGroup:
        """A join as what it knows itself to be."""
        return JoinGroup(
            group_id=GROUP_ID,
            caller=caller(state, process.name, process.version),
            member_id=process.member_id,
            group_instance_id=process.instance,
            proposed_member_id=proposed,
            protocol_type="consumer",
            protocols=PROTOCOLS,
            session_timeout_ms=STATIC_SESSION_MS if process.is_static else DYNAMIC_SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            reason=None,
            requires_known_member_id=process.version >= 4 and process.instance is None,
            supports_skip_assignment=process.version >= 9,
        )

    def sync(self, state: State, process: Process) -> SyncGroup:
        """Send an assignment for each member in its join response."""
        return SyncGroup(
            group_id=GROUP_ID,
            caller=caller(state, process.name, process.version),
            member_id=process.member_id,
            group_instance_id=process.instance,
            generation_id=process.generation_id,
            protocol_type="consumer",
            protocol_name=PROTOCOLS[0].name,
            assignments=_assignments(state.group, process),
        )

    def heartbeat(self, state: State, process: Process) -> Heartbeat:
        return Heartbeat(
            group_id=GROUP_ID,
            caller=caller(state, process.name, process.version),
            member_id=process.member_id,
            group_instance_id=process.instance,
            generation_id=process.generation_id,
        )

    # ---- what comes of it ----------------------------------------------------------------------------

    def ask(self, state: State, command: AnyRequest, who: int | None) -> tuple[State, ...]:
        """Return the state in which the sender receives the response, and the one in which it does not; one state if it
        is parked. `who`: the number of the sender; None: a sender whose knowledge is not part of the world.
        """
        decision = self.decide(state, command)
        after, own = self._take_effect(state, decision, command, who)
        if own is None:
            return (after,)
        check_answer(command, own, decision, after.fenced, _member_of(command))
        if who is None:
            return (after,)
        process = after.processes[who]
        learnt = _learn(process, command, own)
        if decision.group is state.group and decision.soft is state.soft:
            after = state  # no effect except on what the sender knows
        if learnt == process:
            return () if after is state else (after,)
        heard = _with(after, who, learnt)
        return (heard, after) if isinstance(command, JoinGroup | SyncGroup) and after is not state else (heard,)

    def happen(self, state: State, command: AnyDeadline, now_ms: int) -> State:
        """A deadline passes."""
        state = msgspec.structs.replace(state, now_ms=now_ms)
        after, _ = self._take_effect(state, self.decide(state, command), command, None)
        return after

    def due(self, state: State) -> tuple[int, list[AnyDeadline]]:
        """When the next deadline is due, and all that are due by then; none if nothing will ever happen."""
        next_ms = next_deadline_ms(state.soft)
        if state.group is None or next_ms == math.inf:
            return state.now_ms, []
        now_ms = max(state.now_ms, int(next_ms))
        return now_ms, all_due(GROUP_ID, state.soft, now_ms)

    def take_over(self, state: State) -> State:
        """Another owner takes over: parked requests are lost, and the group is what its events add up to."""
        group = state.group
        soft = SoftState() if group is None else self.rules.resume(group, state.now_ms, self.settings)
        check_state(group, soft, state.fenced, exact=not self.is_planned)
        for member_id, session in soft.sessions.items():
            if session.deadline_ms < state.now_ms + session.timeout_ms:
                raise Violation(9, f"the session of {member_id} is not full after a takeover")
        processes = tuple(p if p.waiting is None else msgspec.structs.replace(p, waiting=None) for p in state.processes)
        return msgspec.structs.replace(state, soft=soft, open={}, processes=processes)

    def decide(self, state: State, command: AnyCommand) -> Decision:
        """Return the rules' decision, after the checks that need nothing else."""
        self.decisions += 1
        now = self.now(state, state.now_ms)
        decision = self.rules.decide(command, state.group, state.soft, now, self.settings)
        decision = touched(decision, state.now_ms)
        check_step(command, state.group, state.soft, decision, state.now_ms)
        return decision

    def now(self, state: State, now_ms: int) -> Now:
        incarnation = max(WALL_MS, state.incarnation_max + 1)
        return Now(monotonic_ms=now_ms, wall_ms=WALL_MS, owner_epoch=0, incarnation=incarnation)

    def _take_effect(
        self, state: State, decision: Decision, command: AnyCommand, who: int | None
    ) -> tuple[State, Outcome | None]:
        """Return the next state, and the sender's own response, which it has not received yet."""
        request_id = command.caller.request_id if isinstance(command, AnyRequest) else None
        processes, open_, own = list(state.processes), state.open, None
        for reply in decision.replies:
            if reply.request_id == request_id and own is None:
                own = reply.outcome
                continue
            if reply.request_id not in open_:
                raise Violation(8, f"answered, and nobody waits for it: {reply}")
            request = open_[reply.request_id]
            open_ = {key: value for key, value in open_.items() if key != reply.request_id}
            check_answer(request.command, reply.outcome, decision, state.fenced, request.member_id)
            process = processes[request.process]
            if process.waiting == reply.request_id:
                processes[request.process] = _learn(process, request.command, reply.outcome)
        if request_id is not None and own is None:
            assert who is not None
            assert isinstance(command, JoinGroup | SyncGroup)
            open_ = {**open_, request_id: Open(command, who, _member_of(command))}
            processes[who] = msgspec.structs.replace(processes[who], waiting=request_id)
        open_ = _without_repeated(open_, decision.soft, request_id, processes)
        fenced = state.fenced
        for event in decision.events:
            if isinstance(event, StaticMemberReplaced):
                fenced |= {event.replaced_member_id}
        if decision.group is not state.group or decision.soft is not state.soft:
            check_state(decision.group, decision.soft, fenced, exact=not self.is_planned)
        after = State(
            group=decision.group,
            soft=decision.soft,
            processes=tuple(processes),
            open=open_,
            fenced=fenced,
            now_ms=state.now_ms,
            serial=state.serial + 1,
            incarnation_max=decision.group.incarnation if decision.group is not None else state.incarnation_max,
        )
        return after, own


def _without_repeated(
    open_: dict[int, Open], soft: SoftState, request_id: int | None, processes: list[Process]
) -> dict[int, Open]:
    """Return the open requests without those that their member has repeated (J13, SG17)."""
    parked = {caller.request_id for caller in (*soft.parked_joins.values(), *soft.parked_syncs.values())}
    parked.update(arrival.join.caller.request_id for arrival in soft.held_joins.values() if arrival.parked)
    if parked == open_.keys():
        return open_
    if not parked <= open_.keys():
        raise Violation(8, f"parked, and answered or never sent: {sorted(parked - open_.keys())}")
    newer = open_.get(request_id) if request_id is not None else None
    for key in open_.keys() - parked:
        old = open_[key]
        if newer is None or type(newer.command) is not type(old.command) or newer.member_id != old.member_id:
            raise Violation(8, f"never answered: {old.command}")
        if processes[old.process].waiting == key:
            processes[old.process] = msgspec.structs.replace(processes[old.process], waiting=None)
    return {key: value for key, value in open_.items() if key in parked}


def touched(decision: Decision, now_ms: int) -> Decision:
    """The decision after its session was touched, on a copy: states share their sessions."""
    heard = decision.refreshed_session
    if heard is None or heard.deadline_ms == now_ms + heard.timeout_ms:
        return decision
    fed = msgspec.structs.replace(heard)
    fed.refresh(now_ms, None)
    soft = decision.soft.copy()
    soft.sessions = Sessions((key, fed if session is heard else session) for key, session in soft.sessions.items())
    return msgspec.structs.replace(decision, soft=soft)


def _learn(process: Process, command: AnyRequest, outcome: Outcome) -> Process:
    """Learn from a response as clients do: only 79, 25 and success change their knowledge (CB10, CB11)."""
    match outcome:
        case JoinGroupOutcome(error=ErrorCode.none):
            return msgspec.structs.replace(
                process,
                member_id=outcome.member_id,
                generation_id=outcome.generation_id,
                told=() if outcome.skip_assignment else tuple(joined.member_id for joined in outcome.members),
                waiting=None,
                proposed=UNKNOWN_MEMBER_ID,
            )
        case JoinGroupOutcome(error=ErrorCode.member_id_required):
            return msgspec.structs.replace(process.blank(), member_id=outcome.member_id)
        case JoinGroupOutcome(error=error) | SyncGroupOutcome(error=error) | HeartbeatOutcome(error=error):
            if error is ErrorCode.unknown_member_id or not process.member_id:
                return process.blank()
            if isinstance(outcome, HeartbeatOutcome):
                return process
            return msgspec.structs.replace(process, waiting=None, proposed=UNKNOWN_MEMBER_ID)
        case _:
            return process.blank() if isinstance(command, LeaveGroup) else process


def _assignments(group: Group | None, process: Process) -> tuple[tuple[MemberId, bytes], ...]:
    if group is None:
        return ()
    whose = {m.member_id: m.group_instance_id or m.member_id for m in group.members.values()}
    leader = whose.get(process.member_id, "nobody")
    return tuple(
        (member_id, assignment_by(leader, whose.get(member_id, "?"), process.generation_id))
        for member_id in process.told
    )


def _member_of(command: AnyRequest) -> MemberId:
    """Return the member of a request; for a join without a member id, the id that it will get."""
    match command:
        case JoinGroup():
            return command.member_id or command.proposed_member_id
        case SyncGroup() | Heartbeat():
            return command.member_id
        case LeaveGroup():
            return command.members[0].member_id
        case _:
            return UNKNOWN_MEMBER_ID


def caller(state: State, name: str, api_version: int) -> Caller:
    return Caller(
        request_id=state.serial,
        client_id=name,
        client_host="/10.0.0.1",
        principal="User:orders",
        api_key=0,
        api_version=api_version,
        arrived_ms=state.now_ms,
        arrived_wall_ms=WALL_MS,
    )


def _with(state: State, who: int, process: Process) -> State:
    processes = tuple(process if n == who else p for n, p in enumerate(state.processes))
    return msgspec.structs.replace(state, processes=processes)
