"""The steps that can happen next. A step is one line in `STEPS`, and a function of the world and a state.

`take(world, state, who)` returns the states that the step leads to: none if it makes no sense now, two if the response
may be received or lost. `who` numbers the subject of the step: a process, an instance, or a due deadline. A new feature
adds its own steps, and what they add to a state to `key.py`.
"""

from collections.abc import Callable

import msgspec

from muster.coordinator.group.commands import DeleteGroup, ExpirePendingMember, ExpireSession, LeaveGroup, LeavingMember
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.model.state import Process, State
from tests.model.world import GROUP_ID, INSTANCES, World, caller

Take = Callable[[World, State, int], tuple[State, ...]]
Words = Callable[[World, State, int], str]

PROCESSES_OF_AN_INSTANCE = 2
DYNAMIC_MEMBERS = 2
"""Limited, since a process that keeps starting over would leave any number of members behind."""

DEADLINES = 6


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """`whos`: how many subjects it may have. `words`: its description, given the state before it."""

    name: str
    whos: int
    take: Take
    words: Words


# ---- joining -----------------------------------------------------------------------------------


def joins(world: World, state: State, who: int) -> tuple[State, ...]:
    """With the member id that it has: again, or after a 79."""
    process = state.processes[who]
    if not process.member_id or process.waiting is not None:
        return ()
    return world.ask(state, world.join(state, process, proposed=MemberId("unused")), who)


def starts(world: World, state: State, who: int) -> tuple[State, ...]:
    """Join without a member id, for the first time or after starting over; the process forgets its member id and
    requests.
    """
    which, instance = divmod(who, 2)
    process = state.processes[which]
    if process.waiting is not None or not _may_start(state, which, instance):
        return ()
    proposed = MemberId(f"m{state.serial:04d}")
    fresh = msgspec.structs.replace(
        process.blank(), proposed=proposed, instance=INSTANCES[instance] if process.is_static else None
    )
    return _join_anew(world, state, which, fresh)


def _may_start(state: State, which: int, instance: int) -> bool:
    process = state.processes[which]
    if not process.is_static:
        return instance == 0 and _dynamic_members(state) < DYNAMIC_MEMBERS
    if not process.is_blank:
        return process.instance == INSTANCES[instance]
    others = state.processes
    if any(p.is_blank and p.is_static for p in others[:which]):
        return False  # processes that were never started are all the same
    return sum(p.instance == INSTANCES[instance] for p in others) < PROCESSES_OF_AN_INSTANCE


def _dynamic_members(state: State) -> int:
    if state.group is None:
        return 0
    members = sum(member.group_instance_id is None for member in state.group.members.values())
    arrivals = sum(arrival.join.group_instance_id is None for arrival in state.soft.held_joins.values())
    return members + arrivals + len(state.soft.pending_members)


def sends_again(world: World, state: State, who: int) -> tuple[State, ...]:
    """Repeat its join without a member id, whose response it did not receive, with the id that was proposed before.

    No client ever received that id, so it may return even if another process replaced it and the rules no longer know
    (`SoftState.replaced_members` is lost in a takeover). That is the only exception to invariant 2.
    """
    process = state.processes[who]
    if not process.proposed or process.waiting is not None:
        return ()
    if process.proposed not in state.soft.replaced_members:
        state = msgspec.structs.replace(state, fenced=state.fenced - {process.proposed})
    return _join_anew(world, state, who, process)


def _join_anew(world: World, state: State, who: int, process: Process) -> tuple[State, ...]:
    processes = tuple(process if n == who else p for n, p in enumerate(state.processes))
    state = msgspec.structs.replace(state, processes=processes)
    return world.ask(state, world.join(state, process, proposed=process.proposed), who)


def hangs_up(_world: World, state: State, who: int) -> tuple[State, ...]:
    """Its connection breaks, so it will not receive the response; the owner does not know."""
    process = state.processes[who]
    if process.waiting is None:
        return ()
    processes = tuple(
        msgspec.structs.replace(process, waiting=None) if n == who else p for n, p in enumerate(state.processes)
    )
    return (msgspec.structs.replace(state, processes=processes),)


# ---- being a member ----------------------------------------------------------------------------


def syncs(world: World, state: State, who: int) -> tuple[State, ...]:
    process = state.processes[who]
    if not process.member_id or process.waiting is not None:
        return ()
    return world.ask(state, world.sync(state, process), who)


def heartbeats(world: World, state: State, who: int) -> tuple[State, ...]:
    """Also while its join or sync is parked (H8)."""
    process = state.processes[who]
    if not process.member_id:
        return ()
    return world.ask(state, world.heartbeat(state, process), who)


def leaves(world: World, state: State, who: int) -> tuple[State, ...]:
    """It knows nothing afterwards, whatever the answer (CE4); also while it waits (CE6)."""
    process = state.processes[who]
    if not process.member_id:
        return ()
    entry = LeavingMember(member_id=process.member_id, group_instance_id=process.instance, reason=None)
    return world.ask(state, _leave(state, entry, process.name), who)


def is_removed(world: World, state: State, who: int) -> tuple[State, ...]:
    """An administrator removes an instance (KIP-345)."""
    instance = INSTANCES[who]
    if state.group is None or instance not in state.group.instances:
        return ()
    entry = LeavingMember(member_id=UNKNOWN_MEMBER_ID, group_instance_id=GroupInstanceId(instance), reason=None)
    return world.ask(state, _leave(state, entry, "admin"), None)


def _leave(state: State, entry: LeavingMember, name: str) -> LeaveGroup:
    return LeaveGroup(group_id=GROUP_ID, caller=caller(state, name, 5), members=(entry,))


# ---- without a request ---------------------------------------------------------------------------


def passes(world: World, state: State, who: int) -> tuple[State, ...]:
    """One of the deadlines that are due, or due next."""
    now_ms, deadlines = world.due(state)
    return (world.happen(state, deadlines[who], now_ms),) if who < len(deadlines) else ()


def waits(world: World, state: State, _who: int) -> tuple[State, ...]:
    """The next deadline is due, and another step comes first."""
    now_ms, deadlines = world.due(state)
    return (msgspec.structs.replace(state, now_ms=now_ms),) if deadlines and now_ms > state.now_ms else ()


def _words_of_deadline(world: World, state: State, who: int) -> str:
    now_ms, deadlines = world.due(state)
    deadline = deadlines[who]
    of = f" of {deadline.member_id}" if isinstance(deadline, ExpireSession | ExpirePendingMember) else ""
    return f"{type(deadline).__name__}{of} after {now_ms - state.now_ms} ms"


def takes_over(world: World, state: State, _who: int) -> tuple[State, ...]:
    return (world.take_over(state),) if state.group is not None else ()


def is_deleted(world: World, state: State, _who: int) -> tuple[State, ...]:
    if state.group is None or state.group.state is not GroupState.EMPTY:
        return ()
    return world.ask(state, DeleteGroup(group_id=GROUP_ID, caller=caller(state, "admin", 2)), None)


# ---- the list ----------------------------------------------------------------------------------


def _process(what: str) -> Words:
    def words(_world: World, state: State, who: int) -> str:
        process = state.processes[who]
        instance = f" ({process.instance})" if process.instance else ""
        return f"{process.name}{instance} {what}"

    return words


def _starter(_world: World, state: State, who: int) -> str:
    process = state.processes[who // 2]
    return f"{process.name} starts" + (f" as {INSTANCES[who % 2]}" if process.is_static else "")


PROCESSES = 4
STEPS: tuple[Step, ...] = (
    Step(name="starts", whos=2 * PROCESSES, take=starts, words=_starter),
    Step(name="joins", whos=PROCESSES, take=joins, words=_process("joins with its member id")),
    Step(name="sends again", whos=PROCESSES, take=sends_again, words=_process("sends its join again")),
    Step(name="hangs up", whos=PROCESSES, take=hangs_up, words=_process("hangs up")),
    Step(name="syncs", whos=PROCESSES, take=syncs, words=_process("syncs")),
    Step(name="heartbeats", whos=PROCESSES, take=heartbeats, words=_process("heartbeats")),
    Step(name="leaves", whos=PROCESSES, take=leaves, words=_process("leaves")),
    Step(name="is removed", whos=2, take=is_removed, words=lambda _w, _s, who: f"{INSTANCES[who]} is removed"),
    Step(name="passes", whos=DEADLINES, take=passes, words=_words_of_deadline),
    Step(name="waits", whos=1, take=waits, words=lambda *_: "time passes until a deadline is due"),
    Step(name="takes over", whos=1, take=takes_over, words=lambda *_: "another owner takes over"),
    Step(name="is deleted", whos=1, take=is_deleted, words=lambda *_: "the group is deleted"),
)
