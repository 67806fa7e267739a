"""`muster replay why`: why did this group rebalance? And what did not make it?"""

from collections.abc import Iterator
from enum import StrEnum, unique

import msgspec

from muster.events.events import RebalanceStarted
from muster.events.ids import GroupId
from muster.events.state import Group
from muster.replay.history import History, Item
from muster.replay.rebalances.rebalance import Happening, Rebalance
from muster.replay.rebalances.timeline import Timeline
from muster.replay.rebalances.wording import headline
from muster.replay.transitions import Transition, Transitions
from muster.replay.window import WHOLE, Bounds, Cut, Place


@unique
class Edge(StrEnum):
    """An edge of the window that a rebalance crosses: it began before, or had not ended at the end."""

    SINCE = "since"
    UNTIL = "until"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one rebalance. `since` and `notes` are about the time after the last one, else empty."""

    headline: str
    rebalance: Rebalance
    since: tuple[Happening, ...] = ()
    notes: tuple[str, ...] = ()
    crosses: tuple[Edge, ...] = ()


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The rebalances asked for, in order; `rebalances` is how many the log tells of, or the window, if there is one."""

    group_id: GroupId
    log: str
    rebalances: int
    answers: tuple[Answer, ...]
    window: Bounds | None = None


class Answers:
    """The fold: an answer for each rebalance, as the items of a group pass by; the last one at the end.

    `group`: as it stood before the first item, where that is not the first of its history.
    """

    def __init__(self, group_id: GroupId, group: Group | None = None, cut: Cut | None = None) -> None:
        self._transitions = Transitions(group_id, group)
        self._timeline = Timeline(group)
        self._cut = cut or Cut(WHOLE)
        self._place = Place.BEFORE
        self.has_begun = False
        """Whether anything is in the window."""
        self._began_before = False
        self._waiting: Answer | None = None
        """The last one that ended: it is told with what happened since then, if no other one follows."""

    @property
    def is_over(self) -> bool:
        """Whether the window is."""
        return self._place is Place.AFTER

    def feed(self, item: Item) -> Answer | None:
        """Take in the next item; returns the answer about a rebalance before the last one that has ended."""
        self._place = self._cut.place(item)
        if self.is_over:
            return None
        self.has_begun = self.has_begun or self._place is Place.WITHIN
        step = self._transitions.feed(item)
        if step is None:
            return None
        finished = self._timeline.feed(step)
        told = self._answer(finished) if finished is not None and self._place is Place.WITHIN else None
        if isinstance(step, Transition) and isinstance(step.event, RebalanceStarted):
            self._began_before = self._place is Place.BEFORE
        if told is None:
            return None
        ready, self._waiting = self._waiting, told
        return ready

    def end(self) -> Iterator[Answer]:
        """The answers that are left; a rebalance may be running."""
        running, last = self._timeline.running(), self._waiting
        if running is not None:
            if last is not None:
                yield last
            last = self._answer(running, is_cut=self.is_over)
        if last is not None:
            yield msgspec.structs.replace(last, since=self._timeline.since_the_last, notes=self._timeline.notes)

    def _answer(self, rebalance: Rebalance, *, is_cut: bool = False) -> Answer:
        crosses = (*([Edge.SINCE] if self._began_before else []), *([Edge.UNTIL] if is_cut else []))
        return Answer(headline=headline(rebalance), rebalance=rebalance, crosses=crosses)


def why(history: History, *, generation: int | None = None, everything: bool = False) -> Why:
    """The rebalances that led to a generation, or all of them, or the last one.

    One that led to no generation (yet) is found under the one it would have led to. Several may have led to the same
    number: a group that was deleted and made anew counts from 0 again.
    """
    answers = answers_of(history)
    chosen = answers[-1:]
    if generation is not None:
        chosen = [answer for answer in answers if generation_of(answer.rebalance) == generation]
    elif everything:
        chosen = answers
    return Why(group_id=history.group_id, log=history.log, rebalances=len(answers), answers=tuple(chosen))


def answers_of(history: History) -> list[Answer]:
    """An answer for every rebalance of the history."""
    fold = Answers(history.group_id)
    told = [fold.feed(item) for item in history.items]
    return [*(each for each in told if each is not None), *fold.end()]


def generations_of(history: History) -> list[int]:
    """The rebalances that can be asked for by number."""
    return sorted({generation_of(answer.rebalance) for answer in answers_of(history)})


def generation_of(rebalance: Rebalance) -> int:
    """The generation by which a rebalance is asked for."""
    return rebalance.from_generation + 1 if rebalance.to_generation is None else rebalance.to_generation
