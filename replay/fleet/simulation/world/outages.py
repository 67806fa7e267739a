"""Outages of the coordinator and of the network: the coordinator ends, is paused or taken over; the network is cut."""

from collections.abc import Iterable

from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.replay.fleet.simulation.world.process import NEVER, Process
from muster.replay.fleet.simulation.world.truth import Story
from muster.replay.fleet.simulation.world.world import World

RECONNECT_MS = 1_500
"""The longest time that a process takes to find the coordinator again."""


def take_down(world: World, *, orderly: bool) -> None:
    """Stop the coordinator; requests in flight are lost."""
    if orderly:
        world.rules.stop()
    world.is_down = True
    world.forget_requests()
    for each in world.live:
        each.next_heartbeat_ms = NEVER
    _watch_sessions(world, world.live)


def bring_up(world: World, story: Story, *, seen_ms: int | None = None) -> None:
    """Start the coordinator again, or another one; the processes find it one after another.

    `seen_ms`: when the former coordinator was last seen, wall clock.
    """
    world.is_down = False
    before, size = world.view.seen(), world.view.size()
    if world.rules.take_over(owner_before_seen_ms=seen_ms) is not None:
        world.view.watch(before, size, None, story, [])
    for each in world.live:
        each.connection = world.new_connection()
        _reconnect_later(world, each)


def pause(world: World) -> None:
    """Pause the coordinator (SIGSTOP); its sockets still accept requests."""
    world.paused_since_ms = world.now_ms
    _watch_sessions(world, world.live)


def resume(world: World) -> None:
    assert world.paused_since_ms is not None
    world.rules.resume(world.now_ms - world.paused_since_ms)
    world.paused_since_ms = None
    world.deliver_queue()
    for each in world.live:
        if each.member_id == UNKNOWN_MEMBER_ID and not each.is_joining:
            _reconnect_later(world, each)


def cut(world: World, processes: Iterable[Process]) -> None:
    """Cut these processes off from the network."""
    for each in processes:
        each.cut = True
    _watch_sessions(world, processes)


def heal(world: World, processes: Iterable[Process]) -> None:
    for each in processes:
        each.cut = False
        each.connection = world.new_connection()
        _reconnect_later(world, each)


def _reconnect_later(world: World, process: Process) -> None:
    world.later(world.random.randint(20, RECONNECT_MS), process, process.reconnect)


def _watch_sessions(world: World, processes: Iterable[Process]) -> None:
    for each in processes:
        ends_ms = max(0, each.last_heard_ms + each.setup.session_ms - world.now_ms)
        world.later(ends_ms, each, each.lose_session)
