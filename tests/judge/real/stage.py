"""The stage of a case: a group of real processes, drawn at random, and what can be done to them.

Configures processes, does single actions and records each, and waits until the group is at rest. Scenarios combine
them (`scenarios/`). Times are ms, by the machine's wall clock.

    with stage.doing(story):     all rebalances until the group is at rest again belong to this story
        stage.kill(process)
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum, unique
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.real.asking import generation_of
from tests.judge.real.diary import Entry, What, wall_ms
from tests.judge.real.given import Family, Given
from tests.judge.real.onlooker import Look, Onlooker
from tests.judge.real.process import RealProcess
from tests.judge.real.service import Service
from tests.judge.real.story import Story
from tests.waiting import until_so

SECOND: Final = 1_000
SESSION_MS, HEARTBEAT_MS, POLL_INTERVAL_MS = 4_000, 500, 30_000
REST_S: Final = 2.0
"""The group is at rest when nothing happens for this long: a few heartbeat intervals."""

REST_WITHIN_S: Final = 120.0


@unique
class Style(StrEnum):
    """Styles of naming. All run at one host."""

    OWN_IDS = "own client ids"
    ALIKE = "the client's default client id"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of a scenario. `static`: None: any."""

    size_min: int = 2
    size_max: int = 4
    static: bool | None = None
    every_other_static: bool = False
    styles: Sequence[Style] = (Style.OWN_IDS, Style.OWN_IDS, Style.ALIKE)
    families: Sequence[Family] = tuple(Family)
    poll_interval_ms: int = POLL_INTERVAL_MS
    session_ms: int = SESSION_MS
    may_mix: bool = True
    may_cooperate: bool = True
    """True if the assignor may be cooperative. librdkafka's then never rejoins for topics that it subscribes to."""
    again_s: float | None = None
    """The time after which their supervisors restart fenced processes; None: they have none."""


class RealStage:
    """See the module."""

    def __init__(self, random: Random, wanted: Wanted, family: Family, *, service: Service, folder: Path) -> None:
        self.random, self.service, self.muster, self.group_id = random, service, service.muster, service.group_id
        self.family = family
        self.session_ms = wanted.session_ms
        self._folder, self._wanted = folder, wanted
        self.size = random.randint(wanted.size_min, wanted.size_max)
        self.style = random.choice(wanted.styles)
        self.is_static = random.random() < 0.35 if wanted.static is None else wanted.static
        mixes = wanted.may_mix and random.random() < 0.2
        self.families = tuple(dict.fromkeys((family, *wanted.families))) if mixes else (family,)
        cooperates = (
            wanted.may_cooperate and not mixes and family in (Family.JAVA, Family.LIBRDKAFKA) and random.random() < 0.3
        )
        self.assignor = "cooperative-sticky" if cooperates else "range"
        self.processes: list[RealProcess] = []
        """The processes that are expected to be members."""
        self.all: list[RealProcess] = []
        self.stories: list[Story] = []
        self.notes: list[tuple[int, str]] = []
        self.absences: list[tuple[int, int]] = []
        """The spans in which Muster was down on purpose."""
        self.incarnation, self.generation = 1, 0
        self._numbers: dict[Family, int] = {}
        self._stack = ExitStack()
        self.onlooker = Onlooker(self.muster.bootstrap, self.group_id)

    def __enter__(self) -> "RealStage":
        self._stack.enter_context(self.onlooker)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def setting(self) -> str:
        """The group, as text."""
        sort = "static" if self.is_static else "dynamic"
        families = " or ".join(self.families)
        return (
            f"{self.size} {sort} processes, {families}, {self.style.value}, {self.assignor},"
            f" session {self.session_ms} ms"
        )

    # ---- configurations ---------------------------------------------------------------------------------------------

    def given(self) -> Given:
        """The configuration of another process."""
        family = self.families[len(self.all) % len(self.families)]
        self._numbers[family] = number = self._numbers.get(family, 0) + 1
        name = f"{family}-{number}"
        is_static = self.is_static and not (self._wanted.every_other_static and len(self.all) % 2)
        return Given(
            name=name,
            family=family,
            bootstrap=self.muster.bootstrap,
            group_id=self.group_id,
            topic=self.service.orders,
            client_id=name if self.style is Style.OWN_IDS else None,
            instance=name if is_static else None,
            assignor=self.assignor,
            session_ms=self.session_ms,
            heartbeat_ms=HEARTBEAT_MS,
            poll_interval_ms=self._wanted.poll_interval_ms,
            again_s=self._wanted.again_s,
            folder="",
        )

    def identity(self) -> Knowable:
        """The evidence in the log that the process is the same as before. Each family has its own default id."""
        if self.is_static:
            return Knowable.RECORDED
        families = Counter(each.given.family for each in self.processes)
        are_alike = self.style is Style.ALIKE and max(families.values()) > 1
        return Knowable.UNKNOWABLE if are_alike else Knowable.INFERRED

    def one(self, *but: RealProcess) -> RealProcess:
        return self.random.choice([each for each in self.processes if each not in but])

    # ---- stories ----------------------------------------------------------------------------------------------------

    def story(self, *kinds: str, culprits: Sequence[str] | None = (), knowable: Knowable = Knowable.RECORDED,
              parent: Story | None = None, is_optional: bool = False) -> Story:  # fmt: skip
        """Begin an incident; see `Story`."""
        story = Story(*kinds, culprits=culprits, knowable=knowable, parent=parent, is_optional=is_optional)
        self.stories.append(story)
        return story

    def restart_story(self, process: RealProcess, *, crash: bool, is_optional: bool = False) -> Story:
        """Return the story of a restart. A process that only leaves, or falls silent under an instance id, looks as if
        it had stopped polling.
        """
        says_why = not process.is_static and (crash or process.given.family is Family.JAVA)
        kinds = ("restart",) if says_why else ("restart", "poll-timeout")
        return self.story(*kinds, culprits=[process.name], knowable=self.identity(), is_optional=is_optional)

    @contextmanager
    def doing(self, story: Story, *others: Story, after_ms: int = 0) -> Iterator[None]:
        """Attribute all rebalances in the block, and until the group is at rest again, to this story. With other
        stories in the block, it stays open to which of them. `after_ms`: its first rebalance begins no sooner.
        """
        before, begun_ms = self.generation, wall_ms()
        yield
        settled_ms = self.settle()
        passed = {(self.incarnation, generation) for generation in range(before + 1, self.generation + 1)}
        if not passed:
            return
        unrest = self.onlooker.unrest(begun_ms, settled_ms)
        started = begun_ms + after_ms, unrest[0].answered_ms if unrest else settled_ms
        ended = unrest[-1].last_asked_ms if unrest else begun_ms, settled_ms
        if not others:
            story.moved(passed, started, ended)
        for each in (story, *others) if others else ():
            each.may |= passed
            each.starts.append((started[0], settled_ms))
            each.ends.append((begun_ms, settled_ms))

    def note(self, text: str) -> None:
        self.notes.append((wall_ms(), text))

    # ---- deeds ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """The group forms."""
        story = self.story("start")
        with self.doing(story):
            for _ in range(self.size):
                self.add(story)
                self.wait_ms(self.random.choice((0, 300)))

    def add(self, story: Story, given: Given | None = None) -> RealProcess:
        """Start a process; a new one is blamed for it."""
        given = given or self.given()
        assert story.culprits is not None
        story.culprits.add(given.name)
        return self.start(given, story)

    def start(self, given: Given, story: Story) -> RealProcess:
        """Start a process. It joins later, when it has loaded its client."""
        given = msgspec.structs.replace(given, folder=str(self._folder / f"{given.name}.{len(self.all)}"))
        begun_ms = wall_ms()
        self.note(f"{given.name} starts")
        process = RealProcess(given, self._stack)
        self.processes.append(process)
        self.all.append(process)
        story.act(begun_ms, begun_ms + 10 * SECOND)  # it joins at some time; a group of its own waits for it
        return process

    def visitor(self, given: Given) -> RealProcess:
        """Start a process that does not become a member."""
        self.note(f"{given.name} starts with {given.assignor}")
        folder = str(self._folder / f"{given.name}.visitor")
        return RealProcess(msgspec.structs.replace(given, folder=folder), self._stack)

    def kill(self, process: RealProcess, story: Story) -> None:
        """kill -9."""
        self.note(f"{process.name} is killed")
        story.act(wall_ms() - HEARTBEAT_MS, wall_ms())
        process.kill()
        self.processes.remove(process)

    def stop(self, process: RealProcess, story: Story) -> None:
        """Close cleanly. The effect depends on the client: a static member usually sends nothing."""
        self.note(f"{process.name} is closed")
        begun_ms = wall_ms()
        process.close()
        story.act(begun_ms - HEARTBEAT_MS, wall_ms())
        self.processes.remove(process)

    def end(self, process: RealProcess, story: Story, *, crash: bool) -> None:
        (self.kill if crash else self.stop)(process, story)

    def restart(self, process: RealProcess, story: Story, *, crash: bool, down_ms: int | None) -> RealProcess:
        """End it, and start it again; `down_ms`: this much later, or (None) when it is no longer a member."""
        self.end(process, story, crash=crash)
        if down_ms is None:
            self.until_gone(process.member_id)
            self.wait_ms(self.random.randint(300, 2_000))
        else:
            self.wait_ms(down_ms)
        return self.start(process.given, story)

    @contextmanager
    def frozen(self, process: RealProcess) -> Iterator[None]:
        """SIGSTOP, and SIGCONT."""
        self.note(f"{process.name} is stopped (SIGSTOP)")
        process.freeze()
        try:
            yield
        finally:
            process.thaw()
            self.note(f"{process.name} goes on (SIGCONT)")

    @contextmanager
    def muster_away(self, *, paused: bool) -> Iterator[None]:
        """Kill Muster and start it again, or stop it (SIGSTOP) and resume it."""
        begun_ms = wall_ms()
        self.note(f"Muster is {'stopped (SIGSTOP)' if paused else 'killed'}")
        pid = self.muster.pid
        if paused:
            os.kill(pid, signal.SIGSTOP)
        else:
            self.muster.kill()
        yield
        self.note("Muster goes on" if paused else "Muster is started again")
        if paused:
            os.kill(pid, signal.SIGCONT)
        else:
            self.muster.start()
        until_so(lambda: self._seen_since(begun_ms), "Muster does not answer")
        self.absences.append((begun_ms, wall_ms()))

    # ---- waiting ----------------------------------------------------------------------------------------------------

    @staticmethod
    def wait_ms(duration_ms: int) -> None:
        """Let time pass without doing anything."""
        time.sleep(duration_ms / SECOND)

    def until_gone(self, *member_ids: str) -> None:
        """Wait until these are no members any more, and the group is at rest."""

        def gone() -> bool:
            look = self.onlooker.last()
            return look is not None and look.is_at_rest and not set(member_ids) & set(look.members)

        until_so(gone, lambda: f"{member_ids} are members still: {self.onlooker.last()}", within_s=REST_WITHIN_S)

    def until_noted(self, process: RealProcess, what: What, times: int) -> Entry:
        """Wait until its diary has this many entries of this sort; return the last of them."""
        until_so(
            lambda: len(process.noted(what)) >= times or not process.runs,
            lambda: f"{process.name} has not noted {what} {times} times: {process.diary[-3:]}",
            within_s=REST_WITHIN_S,
        )
        return process.noted(what)[-1]

    def settle(self) -> int:
        """Wait until exactly the living processes are members, the group is at rest, and stays so.

        Returns since when it surely was.
        """
        since_ms = 0

        def rests() -> bool:
            nonlocal since_ms
            asked_ms = wall_ms()
            until_so(lambda: self._is_in_place(asked_ms), self._out_of_place, within_s=REST_WITHIN_S)
            generation = self._generation()
            since_ms = wall_ms()
            time.sleep(REST_S)
            until_so(lambda: self._seen_since(since_ms + int(REST_S * SECOND)), self._out_of_place)
            look = self.onlooker.last()
            assert look is not None
            if not look.is_at_rest or look.asked_ms > since_ms:
                return False
            if generation is None or self._generation() != generation:
                return False
            self.generation = generation
            return True

        until_so(rests, self._out_of_place, within_s=REST_WITHIN_S)
        return since_ms

    def _generation(self) -> int | None:
        """Return the group's generation; an empty group has one more than the last that its members knew."""
        if self.processes:
            member_id = self.processes[0].member_id
            return generation_of(self.muster.bootstrap, self.group_id, member_id, since=self.generation)
        return self.generation + 1

    def _seen_since(self, at_ms: int) -> bool:
        look = self.onlooker.last()
        return look is not None and look.last_asked_ms >= at_ms

    def _is_in_place(self, at_ms: int) -> bool:
        look = self.onlooker.last()
        if look is None or look.last_asked_ms < at_ms or not look.is_at_rest:
            return False
        return set(look.members) == {each.member_id for each in self.processes}

    def _out_of_place(self) -> tuple[Look | None, list[tuple[str, str, bool]]]:
        return self.onlooker.last(), [(each.name, each.member_id, each.runs) for each in self.processes]
