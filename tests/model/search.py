"""Breadth first through all states, each once; the first violation found is one with the fewest steps.

For each state its number, its parent's and the step between them are kept, so that the path to it can be reported and
repeated. States themselves are only kept until they are expanded.
"""

import math
import multiprocessing
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from tests.model.invariants import Violation
from tests.model.key import key_of
from tests.model.scopes import Scope
from tests.model.silence import Again, check_bytes, check_silence, is_sampled
from tests.model.state import State
from tests.model.world import REAL, Rules, World

VARIANTS, WHOS = 4, 64
SLICE = 500
"""The number of states that are expanded at once; several processes share a level in slices."""

Taken = tuple[int, int, int]
"""A step, its subject, and which of its resulting states this is: indexes into `STEPS`, `whos`, and `take`'s result."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A violation, and the shortest way to it, in words."""

    number: int
    text: str
    trace: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`depth`: all states up to this many steps from the usual paths are explored; `is_all`: there are no more states.

    `levels`: new states at each depth.
    """

    states: int
    transitions: int
    depth: int
    is_all: bool
    levels: tuple[int, ...]
    seconds: float
    violation: Found | None


class _Stopped(Exception):
    def __init__(self, found: Found) -> None:
        super().__init__(found.text)
        self.found = found


class New(msgspec.Struct, frozen=True):
    """A new state: its parent, the step that led to it, and its key."""

    parent: int
    taken: int
    key: bytes
    state: State


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """The states one step on from some states."""

    new: list[New]
    transitions: int
    found: Found | None


class Search:
    """See the module. `run` begins once; `jobs`: processes that share the work."""

    def __init__(self, scope: Scope, *, rules: Rules = REAL, jobs: int = 1) -> None:
        self.world = World(rules=rules, version=scope.version, is_planned=bool(scope.settings))
        self.steps = scope.steps
        self._ways = scope.ways
        self.transitions = 0
        self.levels: list[int] = []
        self.level: list[tuple[int, State]] = []
        self._jobs = jobs
        self._moves = [(number, who) for number, step in enumerate(self.steps) for who in range(step.whos)]
        self._numbers: dict[bytes, int] = {}
        self._parents = array("l")
        self._taken = array("l")

    def run(self, *, depth: int | None = None, seconds: float | None = None) -> Report:
        """Until all is seen to that depth, the time is over, or an invariant does not hold."""
        began = time.monotonic()
        until = began + seconds if seconds is not None else math.inf
        complete, violation = 0, None
        try:
            self._begin()
            while self.level and (depth is None or complete < depth) and self._deepen(until):
                complete += 1
        except _Stopped as stopped:
            violation = stopped.found
        return Report(
            states=len(self._parents),
            transitions=self.transitions,
            depth=complete,
            is_all=not self.level and complete == len(self.levels) - 1,
            levels=tuple(self.levels),
            seconds=time.monotonic() - began,
            violation=violation,
        )

    def _begin(self) -> None:
        """The ordinary ways; a step that makes no sense in this world is left out."""
        numbers = {step.name: number for number, step in enumerate(self.steps)}
        self.levels.append(0)
        start = self._admit(self._look(-1, 0, self.world.begin))
        for way in self._ways:
            parent, state = start, self.world.begin
            for name, who in way:
                states = self._take(parent, state, numbers[name], who)
                if states:
                    state = states[0]
                    parent = self._admit(self._look(parent, _pack(numbers[name], who, 0), state))

    def _deepen(self, until: float) -> bool:
        """One step on from all states of the last level; False if the time was over before."""
        self.levels.append(0)
        level, self.level = self.level, []
        with expanding(self, level, jobs=self._jobs if len(level) > SLICE else 1) as expansions:
            for expansion in expansions:
                self.transitions += expansion.transitions
                for new in expansion.new:
                    self._admit(new)
                if expansion.found is not None:
                    raise _Stopped(expansion.found)
                if time.monotonic() > until:
                    return False
        return True

    def expand(self, states: Sequence[tuple[int, State]]) -> Expansion:
        """One step on from some states, which were admitted. Changes nothing."""
        new: list[New] = []
        seen: set[bytes] = set()
        found, decisions = None, self.world.decisions
        try:
            for parent, state in states:
                for step, who in self._moves:
                    for variant, after in enumerate(self._take(parent, state, step, who)):
                        key = key_of(after)
                        if key not in self._numbers and key not in seen:
                            seen.add(key)
                            new.append(self._look(parent, _pack(step, who, variant), after, key))
        except _Stopped as stopped:
            found = stopped.found
        return Expansion(new=new, transitions=self.world.decisions - decisions, found=found)

    def _take(self, parent: int, state: State, step: int, who: int) -> tuple[State, ...]:
        try:
            return self.steps[step].take(self.world, state, who)
        except Violation as broken:
            words = self.steps[step].words(self.world, state, who)
            raise _Stopped(self._found(broken, self._way(parent), words)) from broken

    def _look(self, parent: int, taken: int, state: State, key: bytes = b"") -> New:
        """Look closer at a state that is new."""
        key = key or key_of(state)
        try:
            check_silence(self.world, state)
            if is_sampled(key):
                check_silence(self.world, state, to_the_end=True)
                self._go_again([*self._way(parent), *([_unpack(taken)] if parent >= 0 else [])])
        except Violation as broken:
            raise _Stopped(self._found(broken, [*self._way(parent), _unpack(taken)], "then nothing more")) from broken
        return New(parent, taken, key, state)

    def _admit(self, new: New) -> int:
        """Return the state's number and queue it, unless another process has found it meanwhile."""
        number = self._numbers.setdefault(new.key, len(self._parents))
        if number == len(self._parents):
            self._parents.append(new.parent)
            self._taken.append(new.taken)
            self.level.append((number, new.state))
            self.levels[-1] += 1
        return number

    # ---- the way to a state ------------------------------------------------------------------------

    def _go_again(self, way: Sequence[Taken]) -> None:
        world = Again(rules=self.world.rules, version=self.world.version, is_planned=self.world.is_planned)
        state = world.begin
        for step, who, variant in way:
            state = self.steps[step].take(world, state, who)[variant]
        check_bytes(state, world.records)

    def _way(self, number: int) -> list[Taken]:
        """The steps to a state that was admitted."""
        way = []
        while number >= 0 and self._parents[number] >= 0:
            way.append(_unpack(self._taken[number]))
            number = self._parents[number]
        return way[::-1]

    def _found(self, broken: Violation, way: Sequence[Taken], last: str) -> Found:
        words, state = [], self.world.begin
        for step, who, variant in way:
            states = self.steps[step].take(self.world, state, who)
            lost = ", and does not hear the answer" if variant else ""
            words.append(self.steps[step].words(self.world, state, who) + lost)
            state = states[variant]
        return Found(number=broken.number, text=str(broken), trace=(*words, last))


@contextmanager
def expanding(search: Search, level: Sequence[tuple[int, State]], *, jobs: int) -> Iterator[Iterable[Expansion]]:
    """The level expanded slice by slice, in order: here, or in forked processes, which see the states found so far."""
    starts = range(0, len(level), SLICE)
    if jobs == 1:
        yield (search.expand(level[start : start + SLICE]) for start in starts)
        return
    global _forked  # noqa: PLW0603 -- what a forked process inherits needs a name
    _forked = (search, level)
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield pool.imap(_expand, starts)
    _forked = None


_forked: tuple[Search, Sequence[tuple[int, State]]] | None = None


def _expand(start: int) -> Expansion:
    assert _forked is not None
    search, level = _forked
    return search.expand(level[start : start + SLICE])


def _pack(step: int, who: int, variant: int) -> int:
    return (step * WHOS + who) * VARIANTS + variant


def _unpack(taken: int) -> Taken:
    rest, variant = divmod(taken, VARIANTS)
    step, who = divmod(rest, WHOS)
    return step, who, variant
