"""Scenarios in which members delay others: slow members, slow leaders, ids that were handed out and never used."""

from muster.replay.fleet.simulation.scenarios.losses import crash_of
from muster.replay.fleet.simulation.stage import SECOND, Stage, Wanted, scenario
from muster.replay.fleet.simulation.world.truth import Story


def newcomer(stage: Stage) -> Story:
    """Start another process, whose join causes the rebalance."""
    story = stage.world.story("scale-up")
    stage.newcomers(story, 1, lambda: 0)
    return story


@scenario()
def slow_member(stage: Stage) -> None:
    """A new process joins, and one of the others takes a long time to rejoin."""
    slow = stage.one()
    slow.story = stage.world.story("slow-member", culprits=[slow.name], holds_phases=True)
    slow.slow_ms = stage.random.randint(12 * SECOND, min(50 * SECOND, stage.rebalance_ms - 5 * SECOND))
    stage.note(f"{slow.name} will be busy for {slow.slow_ms / SECOND:.1f} s when it hears of a rebalance")
    newcomer(stage)
    stage.rest(60 * SECOND)


# With a longer timeout the newcomer would be dropped first: its first join waits for five minutes at most (K3).
@scenario(Wanted(static=0.0, rebalance_max_ms=60_000))
def dropped_member(stage: Stage) -> None:
    """As in `slow_member`, but the slow process does not rejoin before the rebalance timeout."""
    slow = stage.one()
    slow.story = stage.world.story("slow-member", culprits=[slow.name], holds_phases=True)
    slow.story.infer(stage.identity(slow, returned=True))
    slow.slow_ms = stage.rebalance_ms + stage.random.randint(4 * SECOND, 30 * SECOND)
    stage.note(f"{slow.name} will be busy for {slow.slow_ms / SECOND:.1f} s when it hears of a rebalance")
    newcomer(stage)
    stage.rest(slow.setup.rebalance_ms + 40 * SECOND)


@scenario()
def slow_leader(stage: Stage) -> None:
    """The leader's assignor takes a long time."""
    leader = stage.world.leader()
    leader.story = stage.world.story("slow-leader", culprits=[leader.name], holds_phases=True)
    leader.assign_slow_ms = stage.random.randint(6 * SECOND, stage.rebalance_ms - 4 * SECOND)
    stage.note(f"the leader {leader.name} will need {leader.assign_slow_ms / SECOND:.1f} s to assign")
    newcomer(stage)
    stage.rest(leader.setup.rebalance_ms)


@scenario()
def leader_timed_out(stage: Stage) -> None:
    """The leader's assignor takes longer than the rebalance timeout, and the leader is dropped."""
    leader = stage.world.leader()
    leader.story = stage.world.story("slow-leader", culprits=[leader.name], holds_phases=True)
    leader.story.infer(stage.identity(leader, returned=True))
    leader.assign_slow_ms = stage.rebalance_ms + stage.random.randint(4 * SECOND, 30 * SECOND)
    stage.note(f"the leader {leader.name} will need {leader.assign_slow_ms / SECOND:.1f} s to assign")
    newcomer(stage)
    stage.rest(2 * leader.setup.rebalance_ms + 40 * SECOND)


@scenario()
def leader_dies_in_sync_phase(stage: Stage) -> None:
    """The leader dies after it has received the list of members."""
    leader = stage.world.leader()
    leader.assign_slow_ms = 20 * SECOND
    newcomer(stage)
    while not (leader.assign_slow_ms == 0 and leader.is_joining):
        stage.run(500)
    stage.run(stage.random.randint(0, 2 * SECOND))
    crash_of(stage, leader)
    stage.rest(stage.session_ms + 10 * SECOND)


@scenario(Wanted(version_min=5))
def unused_id(stage: Stage) -> None:
    """A client gets a member id and never uses it; then another process joins."""
    setup = stage.setup("ghost", static=False)
    story = stage.world.story("unused-id", culprits=[setup.name])
    ghost = stage.world.add(setup.but(session_ms=stage.random.choice((30_000, 45_000))), story)
    ghost.uses_its_id = False
    stage.note(f"{ghost.name} is given a member id, and does not use it")
    stage.run(stage.random.randint(100, 3 * SECOND))
    ghost.die()
    newcomer(stage)
    stage.rest(50 * SECOND)
