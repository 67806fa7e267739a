"""Processes around the rules that follow a script and otherwise behave well: one story, lived with any settings.

In each turn, a second long, every live process heartbeats, rejoins when it is notified, and syncs.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyCommand, ConfigOperation
from muster.coordinator.group.configs import EXPANSION_DELAY
from muster.coordinator.group.decide import Decision, decide
from muster.coordinator.group.loaded_groups import restore_soft_state
from muster.coordinator.group.timeouts import due
from muster.events.events import AnyEvent, RebalanceStarted
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.records import StoredRecord
from muster.replay.history.items import Happened, Item
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness
from tests.replay.played import elected, history_of, ready, share
from tests.replay.whole import History

Deed = tuple[int, str, str]
"""The second, the action and the process.

Actions: 'start', 'crash', 'stop' (it leaves), 'stall' (it is paused), 'resume', 'beat' (it sends one heartbeat while
paused), 'takeover' (no process).
"""

SETTLED_S = 20
APART_MS = 7
"""The time between the turns of two processes, so that no two act at the same time."""
LATE_MIN_MS, LATE_STEPS_MS = 2, 4
"""A timer fires 2 to 5 ms late: less than the time between two turns."""


class Unchecked(Harness):
    """A harness without checks: the rules' own tests have them, and a story is long.

    Its timers are late, as real ones are. `takeovers`: for each the number of events before it, and its time (wall
    clock, ms).
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.takeovers: list[tuple[int, int]] = []

    def sleep(self, duration_ms: int) -> tuple[AnyEvent, ...]:
        until_ms, seen = self.now_ms + duration_ms, len(self.events)
        while self.group is not None and (deadline_ms := self.soft.next_deadline_ms()) < math.inf:
            fired_ms = int(deadline_ms) + LATE_MIN_MS + int(deadline_ms) % LATE_STEPS_MS
            if fired_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, fired_ms)
            for command in due(self.group_id, self.soft, self.now_ms):
                self.send(command)
        self.now_ms = until_ms
        return tuple(self.events[seen:])

    def sleep_until_next(self) -> tuple[AnyEvent, ...]:
        deadline_ms = self.soft.next_deadline_ms()
        return self.sleep(max(0, int(deadline_ms) + LATE_MIN_MS + LATE_STEPS_MS - self.now_ms))

    def takeover(self, records: Iterable[StoredRecord] | None = None) -> None:
        assert records is None
        for call in self._open.values():
            call.lost = True
        self._open.clear()
        self.owner_epoch += 1
        self.takeovers.append((len(self.events), self.wall_ms))
        assert self.group is not None
        self.soft = restore_soft_state(self.group, self.now_ms, self.settings)

    def send(self, command: AnyCommand) -> Decision:
        decision = decide(command, self.group, self.soft, self._now(), self.settings)
        if decision.refreshed_session is not None:
            decision.refreshed_session.refresh(self.now_ms, None)
        self.group, self.soft = decision.group, decision.soft
        self.events.extend(decision.events)
        for reply in decision.replies:
            self.calls[reply.request_id].take(reply.outcome)
        self._lose_superseded(command)
        return decision


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which the story is lived."""

    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 60_000
    initial_rebalance_delay_ms: int = 3_000
    scale_up_delay_ms: int | None = None
    is_static: bool = True


class Process:
    """A process, alive or not."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.synced = -1
        self.is_joining = True
        self.is_stalled = False

    def act(self) -> None:
        """Take a turn."""
        client = self.client
        if self.is_stalled:
            return
        if self.is_joining:
            if client.last_join is not None and client.last_join.parked:
                return
            if client.last_join is None or client.last_join.lost or client.last_join.error is not ErrorCode.none:
                self._join()
            if client.last_join is None or client.last_join.parked or client.last_join.error is not ErrorCode.none:
                return
            self.is_joining = False
        if self.synced != client.generation_id:
            self._sync()
            return
        self._learn(client.heartbeat().error)

    def _join(self) -> None:
        self.client.enter()

    def _sync(self) -> None:
        client = self.client
        assert client.joined is not None
        call = client.sync(share([each.member_id for each in client.joined.members]) if client.is_leader else None)
        if call.answer is None or call.error is ErrorCode.none:
            self.synced = client.generation_id
        else:
            self._learn(call.error)

    def _learn(self, error: ErrorCode) -> None:
        if error is ErrorCode.none:
            return
        if error is ErrorCode.unknown_member_id:
            self.client.member_id = UNKNOWN_MEMBER_ID
        self.is_joining, self.synced = True, -1
        self.client.enter()


def live(script: Sequence[Deed], settings: Settings, *, until_s: int, begins: Sequence[str] = "abc") -> Unchecked:
    """Return the harness after the story.

    `begins` form the group, and the script begins after it has been stable for a while.
    """
    h = Unchecked(initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms)
    processes: dict[str, Process] = {name: _process(h, name, settings) for name in begins}
    _turns(h, processes, SETTLED_S)
    if settings.scale_up_delay_ms is not None:
        h.alter((EXPANSION_DELAY, ConfigOperation.SET, str(settings.scale_up_delay_ms)))
    for second in range(until_s):
        for at_s, deed, name in script:
            if at_s == second:
                _do(h, processes, deed, name, settings)
        _turns(h, processes, 1)
    return h


def history_lived(h: Unchecked, *, is_seen: bool = True) -> History:
    """Return the history with each takeover in its place, even if no event follows.

    `is_seen`: whether the former owner recorded that it was alive until then.
    """
    reported = [item for item in history_of(h).items if isinstance(item, Happened)]
    items: list[Item] = [elected(0, h.settings)]
    at = 0
    for epoch, (events, wall_ms) in enumerate(h.takeovers, 1):
        items += [
            *reported[at:events],
            elected(epoch, h.settings),
            ready(epoch, wall_ms, seen_ms=wall_ms if is_seen else None),
        ]
        at = events
    return History(group_id=h.group_id, log="lived", items=(*items, *reported[at:]))


def started(h: Harness) -> int:
    """Return the number of rebalances."""
    return sum(isinstance(event, RebalanceStarted) for event in h.events)


def _turns(h: Harness, processes: dict[str, Process], seconds: int) -> None:
    for _ in range(seconds):
        for process in processes.values():
            process.act()
            h.sleep(APART_MS)
        h.sleep(1_000 - len(processes) * APART_MS)


def _do(h: Harness, processes: dict[str, Process], deed: str, name: str, settings: Settings) -> None:
    if deed == "takeover":
        h.takeover()
        return
    if deed == "start":
        processes.setdefault(name, _process(h, name, settings))
        return
    if deed in ("stall", "resume"):
        if name in processes:
            processes[name].is_stalled = deed == "stall"
        return
    if deed == "beat":
        processes[name].client.heartbeat()
        return
    process = processes.pop(name, None)
    if process is not None and deed == "stop" and not settings.is_static and process.client.member_id:
        process.client.leave()


def _process(h: Harness, name: str, settings: Settings) -> Process:
    timeouts = {
        "session_timeout_ms": settings.session_timeout_ms,
        "rebalance_timeout_ms": settings.rebalance_timeout_ms,
    }
    return Process(h.static(name, **timeouts) if settings.is_static else h.dynamic(f"app-{name}", **timeouts))
