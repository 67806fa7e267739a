"""A discrete-event simulation of one group: processes, the network to the coordinator, and virtual time.

Outages of the coordinator and the network are in `outages.py`, the view of the group in `view.py`. Knows nothing of
kinds of incidents, or of events.

Heartbeats of healthy members of a stable group are not sent one by one: time jumps to the next time at which something
else happens, and their sessions are refreshed as if they had been sent.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AnyCommand,
    AnyDeadline,
    AnyRequest,
    Caller,
    EndJoinPhase,
    EndSyncPhase,
    ExpireSession,
)
from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.settings import GroupSettings
from muster.events.ids import MemberId
from muster.events.state import GroupState
from muster.replay.fleet.simulation.world.client import NOWHERE, PlaceAndTime, Setup
from muster.replay.fleet.simulation.world.process import NEVER, Process
from muster.replay.fleet.simulation.world.rules import Rules
from muster.replay.fleet.simulation.world.truth import Story
from muster.replay.fleet.simulation.world.view import WorldView

BEGAN_WALL_MS = 1_700_000_000_000
FIRING_MAX = 2_000
LATE_MAX_MS = 8
"""The maximum lateness of the coordinator's timers; real timers were 2 to 8 ms late."""
ALTER_CONFIGS = 44


class World:
    """The simulation of a group; see the module. Times are monotonic ms; `rules.wall_ms` is the wall clock."""

    def __init__(
        self, random: Random, *, settings: GroupSettings, partitions: Mapping[str, int], place: PlaceAndTime = NOWHERE
    ) -> None:
        self.random = random
        began_ms = BEGAN_WALL_MS + random.randrange(10**9) if place.began_ms is None else place.began_ms
        self.rules = Rules(wall_ms=began_ms, settings=settings, group_id=place.group_id)
        self.view = WorldView(self.rules)
        self.partitions = dict(partitions)
        self.processes: list[Process] = []
        self.names: dict[MemberId, str] = {}
        self.stories: list[Story] = []
        self.notes: list[tuple[int, str]] = []
        self.plan: Story | None = None
        """The story to which the effects of the group's own deadlines belong (of registrations, retirements, learners).
        """
        self.is_down = False
        self.paused_since_ms: int | None = None
        self._queue: list[tuple[Process, int, Callable[[int], AnyRequest], Callable[[Any], None]]] = []
        self._members: dict[MemberId, Process] = {}
        self._waiting: dict[int, tuple[Process, int, Callable[[Any], None]]] = {}
        self._request_ids = count()
        self._connection_numbers = count(1)
        self._order = count()
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        # Drawn from its own generator, so that scenarios do not depend on how many timers fire.
        self._lateness = Random(f"{place.group_id} {began_ms}")
        self._late_ms = self._draw_late_ms()

    @property
    def now_ms(self) -> int:
        return self.rules.now_ms

    @property
    def wall_ms(self) -> int:
        return self.rules.wall_ms

    @property
    def is_away(self) -> bool:
        """True while the coordinator does not respond."""
        return self.is_down or self.paused_since_ms is not None

    @property
    def state(self) -> GroupState:
        return self.view.seen()[1]

    @property
    def story_of_last_rebalance(self) -> Story:
        return self.view.rebalances[-1].story

    @property
    def live(self) -> list[Process]:
        """The processes that have not ended, as a copy of the list."""
        return list(self.processes)

    def process_of(self, member_id: str) -> Process:
        return self._members[MemberId(member_id)]

    def leader(self) -> Process:
        assert self.rules.group is not None
        assert self.rules.group.leader_id is not None
        return self._members[self.rules.group.leader_id]

    # ---- what scenarios do ----------------------------------------------------------------------

    def story(self, *kinds: str, **given: Any) -> Story:
        """Begin an incident; see `Story`."""
        story = Story(*kinds, **given)
        self.stories.append(story)
        return story

    def note(self, text: str) -> None:
        self.notes.append((self.wall_ms, text))

    def add(self, setup: Setup, story: Story) -> Process:
        """Start a process."""
        process = Process(self, setup, story)
        self.processes.append(process)
        process.join()
        return process

    def ended(self, process: Process) -> None:
        """Remove a process from the live ones."""
        self.processes.remove(process)

    def new_member_id(self, process: Process) -> MemberId:
        prefix = process.setup.instance or process.setup.client_id
        member_id = MemberId(f"{prefix}-{self.random.getrandbits(64):016x}")
        self._members[member_id] = process
        self.names[member_id] = process.name
        return member_id

    def new_connection(self) -> ConnectionRecord:
        return ConnectionRecord(number=next(self._connection_numbers))

    # ---- time -----------------------------------------------------------------------------------

    def at(self, delay_ms: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now_ms + delay_ms, next(self._order), do))

    def later(self, delay_ms: int, process: Process, do: Callable[[], None]) -> None:
        """Schedule an action of the process, which is dropped if it is no longer alive then; a frozen process acts once
        it is thawed.
        """

        life = process.life

        def run() -> None:
            if process.frozen:
                process.backlog.append(run)
            elif process.alive and process.life == life:
                do()

        self.at(delay_ms, run)

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        until_ms = self.now_ms + duration_ms
        fired_at_once = 0
        while True:
            at_ms = self._next_ms(until_ms)
            if at_ms > until_ms:
                break
            fired_at_once = fired_at_once + 1 if at_ms <= self.now_ms else 0
            assert fired_at_once < FIRING_MAX, "something happens again and again"
            self.rules.now_ms = max(self.now_ms, at_ms)
            self._happen()
        self.rules.now_ms = max(self.now_ms, until_ms)

    def settle(self, at_least_ms: int = 0) -> None:
        """Let time pass until the group is at rest and no process is joining."""
        self.run(at_least_ms)
        for _ in range(600):
            at_rest = self.state in (GroupState.STABLE, GroupState.EMPTY)
            if at_rest and not any(each.is_joining for each in self.live):
                return
            self.run(1_000)
        raise AssertionError(f"the group never comes to rest: {self.notes}")

    def _next_ms(self, until_ms: int) -> int:
        """The next time at which something happens, after handling healthy heartbeats until then."""
        next_ms = min(self._agenda[0][0] if self._agenda else until_ms + 1, until_ms + 1)
        beating = [each for each in self.processes if each.next_heartbeat_ms != NEVER]
        if self._is_quiet(beating):
            silence_ms = self._next_silence_ms({each.member_id for each in beating}) + self._late_ms
            next_ms = int(min(next_ms, silence_ms))
            for each in beating:
                self._beat_until(each, min(next_ms, until_ms))
            return next_ms
        heartbeat_ms = min((each.next_heartbeat_ms for each in beating), default=NEVER)
        deadline_ms = NEVER if self.is_away else self._next_timer_ms()
        return int(min(next_ms, heartbeat_ms, deadline_ms))

    def _is_quiet(self, beating: Sequence[Process]) -> bool:
        """Return whether no heartbeat has any consequence."""
        if self.is_away or self.state is not GroupState.STABLE or self.rules.soft.member_sync_deadlines:
            return False
        return all(each.is_calm for each in beating)

    def _next_silence_ms(self, heard: set[MemberId]) -> float:
        """The next deadline of members that send no heartbeats, and of the group."""
        soft = self.rules.soft
        phases = (
            soft.registration_deadline_ms,
            soft.expansion_deadline_ms,
            soft.retirement_deadline_ms,
            soft.promotion_deadline_ms,
            soft.sync_deadline_ms,
        )
        return min(
            *(session.deadline_ms for member_id, session in soft.sessions.items() if member_id not in heard),
            *(session.deadline_ms for session in soft.pending_members.values()),
            *(held.deadline_ms for held in soft.held_joins.values()),
            *(deadline_ms for deadline_ms in phases if deadline_ms is not None),
            NEVER,
            NEVER,
        )

    def _beat_until(self, process: Process, until_ms: int) -> None:
        """Refresh the session as if the heartbeats until then had been sent."""
        first_ms, every_ms = int(process.next_heartbeat_ms), process.setup.heartbeat_ms
        if first_ms > until_ms:
            return
        last_ms = first_ms + (until_ms - first_ms) // every_ms * every_ms
        session = self.rules.soft.sessions[process.member_id]
        session.refresh(first_ms, process.connection)
        process.connection.received_ms = last_ms
        if last_ms > first_ms:
            session.longest_silence_ms = max(session.longest_silence_ms, every_ms)
            session.last_seen_ms, session.deadline_ms = last_ms, last_ms + session.timeout_ms
        process.last_heard_ms, process.next_heartbeat_ms = last_ms, last_ms + every_ms

    def _happen(self) -> None:
        """Run the next thing that is due; requests come before deadlines."""
        if self._agenda and self._agenda[0][0] <= self.now_ms:
            heapq.heappop(self._agenda)[2]()
            return
        for process in self.processes:
            if process.next_heartbeat_ms <= self.now_ms:
                process.heartbeat()
                return
        if not self.is_away and self._next_timer_ms() <= self.now_ms:
            for deadline in self.rules.due():
                self._expire(deadline)
            self._late_ms = self._draw_late_ms()

    def _next_timer_ms(self) -> float:
        """When the coordinator next handles what is due: timers fire a little late."""
        return self.rules.next_deadline_ms() + self._late_ms

    def _draw_late_ms(self) -> int:
        return self._lateness.randint(0, LATE_MAX_MS)

    # ---- requests -------------------------------------------------------------------------------

    def ask(self, process: Process, make: Callable[[int], AnyRequest], learn: Callable[[Any], None]) -> bool:
        """Send a request; return False if no coordinator can be reached.

        `make` creates the request from its id, when the request arrives; `learn` gets the response.
        """
        if self.is_down or process.cut:
            return False
        if self.paused_since_ms is not None:
            self._queue.append((process, process.life, make, learn))
        else:
            self._deliver(process, make, learn)
        return True

    def forget_requests(self) -> None:
        """Drop the requests in flight, since no response will come."""
        self._waiting.clear()

    def deliver_queue(self) -> None:
        """Deliver the requests that were sent to a paused coordinator, unless their senders have given up on them."""
        queue, self._queue = self._queue, []
        for process, life, make, learn in queue:
            if process.life == life:
                self._deliver(process, make, learn)

    def _deliver(self, process: Process, make: Callable[[int], AnyRequest], learn: Callable[[Any], None]) -> None:
        request_id = next(self._request_ids)
        self._waiting[request_id] = process, process.life, learn
        self.send(make(request_id), process.motive or process.story, [process])

    def send(self, command: AnyCommand, story: Story | None, subjects: Sequence[Process] = ()) -> Any:
        """Apply the command, update the view, and send the responses. Returns the response to an administrator."""
        before, size = self.view.seen(), self.view.size()
        decision = self.rules.send(command)
        self.view.watch(before, size, command, story, subjects)
        own = None
        for reply in decision.replies:
            if reply.request_id not in self._waiting:
                own = reply.outcome
                continue
            process, life, learn = self._waiting.pop(reply.request_id)
            if process.life == life:
                self.later(self.random.randint(1, 4), process, _Answer(process, learn, reply.outcome))
        return own

    def administer(self, story: Story, make: Callable[[Caller], AnyRequest], *, api_key: int = ALTER_CONFIGS) -> Any:
        """Send an administrator's request, which must succeed, and return the outcome."""
        caller = Caller(
            request_id=next(self._request_ids),
            client_id="admin-1",
            client_host="/10.0.200.1",
            principal="User:admin",
            api_key=api_key,
            api_version=1,
            arrived_ms=self.now_ms,
            arrived_wall_ms=self.wall_ms,
        )
        story.act(self.wall_ms)
        outcome = self.send(make(caller), story)
        assert outcome.error is ErrorCode.none, outcome
        return outcome

    def _expire(self, deadline: AnyDeadline) -> None:
        soft, group = self.rules.soft, self.rules.group
        named: Iterable[MemberId] = ()
        if isinstance(deadline, EndSyncPhase):
            named = soft.pending_syncs
        elif isinstance(deadline, EndJoinPhase) and group is not None:
            named = [*(each for each in group.members if each not in soft.parked_joins), *soft.pending_members]
        elif hasattr(deadline, "member_id"):
            named = [deadline.member_id]
        subjects = [self._members[member_id] for member_id in named]
        for each in subjects:
            if isinstance(deadline, ExpireSession) and each.is_member:
                each.story.act(self.wall_ms)
        self.send(deadline, subjects[0].story if subjects else self.plan, subjects)


class _Answer:
    """A response in flight; a process that is cut off does not receive it."""

    def __init__(self, process: Process, learn: Callable[[Any], None], outcome: Any) -> None:
        self._process, self._learn, self._outcome = process, learn, outcome

    def __call__(self) -> None:
        if not self._process.cut:
            self._process.last_heard_ms = self._process.world.now_ms
            self._learn(self._outcome)
