"""Scenarios in which processes are lost: crashes, restarts, crash loops, poll timeouts, freezes, network cuts,
duels."""

from collections.abc import Sequence

from muster.replay.fleet.simulation.stage import MINUTE, SECOND, Stage, Style, Wanted, scenario
from muster.replay.fleet.simulation.world.outages import cut, heal
from muster.replay.fleet.simulation.world.process import Process
from muster.replay.fleet.simulation.world.truth import Knowable, Story


def crash_of(stage: Stage, process: Process, together: Story | None = None) -> Story:
    """Kill the process for good. Killed static members look as if they had been stopped, so two of them share a story:
    `together`.
    """
    kinds = ("stopped", "crash") if process.is_static else ("crash",)
    if together is None or together.kinds != kinds or not process.is_static:
        together = stage.world.story(*kinds, culprits=[process.name], knowable=Knowable.INFERRED)
    else:
        together.blame(process.name)
    stage.kill(process, together)
    return together


def silent_ms(stage: Stage) -> int:
    """A time within which a session is sure to expire."""
    return stage.session_ms + 4 * SECOND


@scenario()
def crash(stage: Stage) -> None:
    """One process dies, and is not replaced."""
    crash_of(stage, stage.one())
    stage.rest(silent_ms(stage))


@scenario(Wanted(size_min=3))
def two_crashes(stage: Stage) -> None:
    """Two processes die, half a minute apart."""
    first, second = stage.some(2)
    story = crash_of(stage, first)
    stage.run(stage.random.randint(20 * SECOND, 45 * SECOND))
    crash_of(stage, second, story if first.is_member else None)
    stage.rest(silent_ms(stage))


@scenario()
def restart(stage: Stage) -> None:
    """One process ends, and is restarted after its session has expired."""
    process, is_crash = stage.one(), stage.random.random() < 0.5
    story = stage.world.story("restart", culprits=[process.name])
    down_ms = stage.random.randint(silent_ms(stage), 9 * MINUTE)
    stage.restart(process, story, down_ms, crash=is_crash)
    stage.rest(down_ms + SECOND)


@scenario(Wanted(static=0.0))
def restart_at_once(stage: Stage) -> None:
    """A dynamic process dies and is restarted before its session expires, so its old member delays the join phase."""
    process = stage.one()
    story = stage.world.story("restart", culprits=[process.name])
    down_ms = stage.random.randint(300, stage.session_ms - 3_500)
    stage.restart(process, story, down_ms, crash=True)
    stage.rest(silent_ms(stage))


@scenario(Wanted(static=1.0))
def absorbed_restart(stage: Stage) -> None:
    """A static process is restarted before its session expires."""
    process = stage.one()
    story = stage.world.story("restart", culprits=[process.name], is_optional=True)
    down_ms = stage.random.randint(300, stage.session_ms - 3_500)
    stage.restart(process, story, down_ms, crash=stage.random.random() < 0.5)
    stage.rest(down_ms + 2 * SECOND)


@scenario()
def crash_loop(stage: Stage) -> None:
    """One process dies repeatedly."""
    process = stage.one()
    story = stage.world.story("crash-loop", culprits=[process.name])
    for _ in range(stage.random.randint(3, 8)):
        process = next(each for each in stage.processes if each.name == process.name)
        longest_ms = 60 * SECOND + silent_ms(stage)
        down_ms = stage.random.randint(silent_ms(stage) if process.is_static else SECOND, longest_ms)
        stage.restart(process, story, down_ms, crash=True)
        stage.rest(down_ms + silent_ms(stage))
        stage.run(stage.random.randint(10 * SECOND, 5 * MINUTE))


@scenario()
def poll_timeout(stage: Stage) -> None:
    """A process is busy for longer than its poll interval, and rejoins."""
    late_poll(stage, stage.one())


def late_poll(stage: Stage, process: Process, longest_ms: int = 8 * MINUTE) -> None:
    """Make a process busy beyond its poll interval, by at most `longest_ms`, and then rejoin."""
    says_so = process.setup.tells_reasons and not process.is_static
    kinds = ("poll-timeout",) if says_so else ("poll-timeout", "restart")
    story = stage.world.story(*kinds, culprits=[process.name])
    identity = stage.identity(process, returned=True)
    if not says_so or identity is Knowable.UNKNOWABLE:
        story.infer(max(identity, Knowable.INFERRED, key=list(Knowable).index))
    stage.run(max(0, process.came_ms + process.setup.rebalance_ms - stage.world.now_ms))  # it polled when it joined
    away_ms = stage.random.randint(silent_ms(stage), longest_ms)
    stage.note(f"{process.name} does not poll for {away_ms / SECOND:.1f} s more than it may")
    process.story = story
    story.act(stage.world.wall_ms)
    process.stop_polling()
    stage.world.at(away_ms, process.poll_again)
    stage.rest(away_ms + SECOND)


def stand_still(stage: Stage, process: Process, *kinds: str) -> None:
    """Pause a process (SIGSTOP) for longer than its session."""
    story = stage.world.story(*kinds, culprits=[process.name], knowable=Knowable.INFERRED)
    story.infer(stage.identity(process, returned=True))
    freeze_ms = stage.session_ms + stage.random.randint(4 * SECOND, 60 * SECOND)
    stage.note(f"{process.name} stands still for {freeze_ms} ms")
    process.story = story
    story.act(stage.world.wall_ms)
    process.freeze()
    stage.world.at(freeze_ms, process.thaw)
    stage.rest(freeze_ms + 5 * SECOND)


@scenario()
def frozen(stage: Stage) -> None:
    """A process is paused for longer than its session; of the kinds in docs/incidents.md only `restart` fits."""
    stand_still(stage, stage.one(), "restart", "poll-timeout")


@scenario()
def short_freeze(stage: Stage) -> None:
    """A process is paused (SIGSTOP) for less than its session."""
    process = stage.one()
    freeze_ms = stage.random.randint(200, stage.session_ms - 4_000)
    stage.note(f"{process.name} stands still for {freeze_ms} ms")
    process.freeze()
    stage.world.at(freeze_ms, process.thaw)
    stage.rest(freeze_ms + 5 * SECOND)


@scenario(Wanted(size_min=4, styles=(Style.OWN_IDS, Style.BEHIND_ONE_HOST, Style.SHARED_ID, Style.PODS)))
def network_cut(stage: Stage) -> None:
    """Some processes are cut off for longer than their sessions, and rejoin when the network is back."""
    number = stage.random.randint(2, stage.size - 1)
    processes = stage.some(number)
    story = stage.world.story("network-cut", culprits=[each.name for each in processes], knowable=Knowable.INFERRED)
    cut_ms = stage.random.randint(silent_ms(stage), 5 * MINUTE)
    stage.note(f"{', '.join(each.name for each in processes)} are cut off for {cut_ms / SECOND:.1f} s")
    cut_for(stage, cut_ms, processes, story)


def cut_for(stage: Stage, cut_ms: int, processes: Sequence[Process], story: Story) -> None:
    for each in processes:
        each.story = story
    cut(stage.world, processes)
    stage.world.at(cut_ms, lambda: heal(stage.world, processes))
    stage.rest(cut_ms + 5 * SECOND)


@scenario(Wanted(size_min=4))
def network_cut_for_good(stage: Stage) -> None:
    """Some processes are cut off, and never return."""
    processes = stage.some(stage.random.randint(2, stage.size - 1))
    story = stage.world.story("network-cut", culprits=[each.name for each in processes], knowable=Knowable.INFERRED)
    for each in processes:
        stage.kill(each, story, with_machine=True)
    stage.rest(silent_ms(stage))


@scenario()
def short_cut(stage: Stage) -> None:
    """Some processes are cut off, if possible for less than their session timeouts."""
    processes = stage.some(stage.random.randint(1, stage.size))
    cut_ms = stage.random.randint(200, stage.session_ms - 5_000)
    stage.note(f"{len(processes)} are cut off for {cut_ms} ms")
    cut(stage.world, processes)
    stage.world.at(cut_ms, lambda: heal(stage.world, processes))
    stage.rest(cut_ms + 5 * SECOND)


@scenario(Wanted(static=1.0))
def overlapping_restart(stage: Stage) -> None:
    """The new process starts before the old one has ended; the old one is fenced once, which is not a duel."""
    old = stage.one()
    story = stage.world.story("restart", culprits=[old.name], is_optional=True)
    old.story = story
    stage.note(f"another process starts as {old.name}, which is about to end")
    stage.start(stage.restarted(old.setup), story)
    story.act(stage.world.wall_ms, stage.world.wall_ms + 5 * SECOND)
    stage.rest(10 * SECOND)


@scenario(Wanted(static=1.0, size_max=12))
def duel(stage: Stage) -> None:
    """Two supervised processes share an instance id, and fence each other in turn."""
    first = stage.one()
    story = stage.world.story("duel", culprits=[first.name])
    begins: list[int] = []
    ends: list[int] = []
    over = False

    def supervise(process: Process) -> None:
        process.story = story
        process.on_fenced = lambda: fenced(process)

    def fenced(process: Process) -> None:
        ends.append(stage.world.wall_ms)
        if not over:
            stage.at(stage.random.randint(SECOND, 8 * SECOND), lambda: again(process))

    def again(process: Process) -> None:
        begins.append(stage.world.wall_ms)
        supervise(stage.start(process.setup, story))

    supervise(first)
    rival = stage.restarted(first.setup)
    stage.note(f"another process starts as {first.name}")
    begins.append(stage.world.wall_ms)
    supervise(stage.world.add(rival, story))
    stage.run(stage.random.randint(60 * SECOND, 4 * MINUTE))
    over = True
    stage.rest(20 * SECOND)
    assert len(begins) >= 4
    story.acts = [(begins[0], begins[1] + 100), (begins[-1], ends[-1] + 100)]
