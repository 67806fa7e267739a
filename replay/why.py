"""`muster replay why`: why did this group rebalance? And what did not make it?"""

import msgspec

from muster.events.ids import GroupId
from muster.replay.history import History
from muster.replay.rebalances.rebalance import Happening, Rebalance
from muster.replay.rebalances.timeline import Timeline
from muster.replay.rebalances.wording import headline
from muster.replay.transitions import Transitions


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one rebalance. `since` and `notes` are about the time after the last one, else empty."""

    headline: str
    rebalance: Rebalance
    since: tuple[Happening, ...] = ()
    notes: tuple[str, ...] = ()


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The rebalances asked for, in order; `rebalances` is how many the log tells of."""

    group_id: GroupId
    log: str
    rebalances: int
    answers: tuple[Answer, ...]


def why(history: History, *, generation: int | None = None, everything: bool = False) -> Why:
    """The rebalances that led to a generation, or all of them, or the last one.

    One that led to no generation (yet) is found under the one it would have led to. Several may have led to the same
    number: a group that was deleted and made anew counts from 0 again.
    """
    answers = answers_of(history)
    chosen = answers[-1:]
    if generation is not None:
        chosen = [answer for answer in answers if _aim(answer.rebalance) == generation]
    elif everything:
        chosen = answers
    return Why(group_id=history.group_id, log=history.log, rebalances=len(answers), answers=tuple(chosen))


def answers_of(history: History) -> list[Answer]:
    """An answer for every rebalance of the history."""
    timeline = Timeline()
    told = [timeline.feed(step) for step in Transitions(history.group_id).steps(history.items)]
    rebalances = [each for each in (*told, timeline.running()) if each is not None]
    answers = [Answer(headline=headline(rebalance), rebalance=rebalance) for rebalance in rebalances]
    if answers:
        answers[-1] = msgspec.structs.replace(answers[-1], since=timeline.since_the_last, notes=timeline.notes)
    return answers


def generations_of(history: History) -> list[int]:
    """The rebalances that can be asked for by number."""
    return sorted({_aim(answer.rebalance) for answer in answers_of(history)})


def _aim(rebalance: Rebalance) -> int:
    return rebalance.from_generation + 1 if rebalance.to_generation is None else rebalance.to_generation
