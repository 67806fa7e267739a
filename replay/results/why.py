"""`muster replay why`: why did this group rebalance? The incidents of a group, and the choice of those to show.

`WhyFold` folds a group's items into its incidents and yields those in a window. Items before the window are folded,
too; an incident that crosses an edge of the window is shown in full, and marked. The choices below take incidents and
yield those to show; each keeps only as many as it shows. An incident is as new as its newest rebalance: a deployment
that began before a crash and continued after it is newer than the crash.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from muster.events.ids import GroupId
from muster.replay.history.items import Coordinated, Happened, Item
from muster.replay.history.skim import BEGINNING, Checkpoint
from muster.replay.history.transitions import Transition, Transitions
from muster.replay.history.window import WHOLE, At, Window
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.incidents.edges import Edges
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.telling import IncidentTeller
from muster.replay.rebalances.rebalance import Outcome, Rebalance
from muster.replay.text.times import wall_ms_of

NEWEST: Final = 20
"""The number of incidents that are shown in text unless the user asks for more."""


class WhyFold:
    """The fold. `start`: where the items begin. `life`: the last incarnation, which event numbers refer to.

    `at`: find the wall clock time in ms of this point. `times`: the corrected event times by which events are found.
    """

    def __init__(
        self,
        group_id: GroupId,
        start: Checkpoint = BEGINNING,
        *,
        window: Window = WHOLE,
        at: At | None = None,
        life: int = -1,
        times: Times = AS_RECORDED,
    ) -> None:
        group, clock = start.group(group_id), start.clock
        self._times = times
        self._transitions = Transitions(group_id, group, clock)
        self._teller = IncidentTeller(group_id, group, at_ms=start.at_ms, missing=start.missing, clock=clock)
        self._edges = Edges(window, life)
        self._at = Edges(Window(until=at), life)
        self.is_over = False
        """True if everything that follows belongs to incidents that begin after the window."""

    @property
    def has_begun(self) -> bool:
        """True if there was any event before the end of the window, and before `at`."""
        return self._edges.has_begun and self._at.has_begun

    @property
    def at_ms(self) -> int:
        """The time of `at`: that of the event number, or of the last event before it so far."""
        return self._at.until_ms

    def feed(self, item: Item) -> Iterator[Incident]:
        """Process the next item; yield the incidents that ended before it."""
        step = self._transitions.feed(item)
        if step is None:
            return
        if isinstance(step, Transition) and isinstance(item, Happened):
            at_ms = self._times.at_ms(item)
            self._edges.pass_by(at_ms, step)
            self._at.pass_by(at_ms, step)
            if self._edges.is_over:
                self.is_over = self.is_over or self._teller.is_over_before(step)
        elif isinstance(step, Coordinated):
            self._edges.note_owner(step.event.owner_epoch)
            self._at.note_owner(step.event.owner_epoch)
        if self.is_over:
            return
        yield from self._within(self._teller.feed(step))

    def end(self) -> Iterator[Incident]:
        """Yield the remaining incidents; one may still be open."""
        yield from self._within(self._teller.end())

    def _within(self, incidents: Sequence[Incident]) -> Iterator[Incident]:
        """Yield the incidents of an episode that are in the window, ordered by their newest rebalances."""
        for incident in sorted(incidents, key=lambda each: each.newest_ms):
            told = self._edges.within(incident)
            if told is not None:
                yield told


# ---- choices of incidents to show --------------------------------------------------------------------------------


class IncidentChoice(Protocol):
    """Takes incidents, oldest first, and yields those to show, in the order to show them."""

    def take(self, incident: Incident) -> Iterable[Incident]: ...

    def end(self) -> Iterable[Incident]: ...


class Every:
    """All incidents, oldest first."""

    def take(self, incident: Incident) -> Iterable[Incident]:
        return (incident,)

    def end(self) -> Iterable[Incident]:
        return ()


class NewestIncidents:
    """The last few incidents, newest first. `older`: the number of incidents left out."""

    def __init__(self, at_most: int) -> None:
        self._last: deque[Incident] = deque(maxlen=at_most)
        self._taken = 0

    @property
    def older(self) -> int:
        return self._taken - len(self._last)

    def take(self, incident: Incident) -> Iterable[Incident]:
        self._taken += 1
        self._last.append(incident)
        return ()

    def end(self) -> Iterable[Incident]:
        return reversed(self._last)


class OfGeneration:
    """The incidents with a rebalance that led to the generation, or would have led to it.

    There are several if the group was deleted and recreated, since generations then start again at 0.
    """

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.known: tuple[int, int] | None = None
        """The lowest and the highest generation so far."""
        self.running: int | None = None
        """The generation that a rebalance still running at the end of the log would lead to."""

    def take(self, incident: Incident) -> Iterable[Incident]:
        numbers = [generation_of(each) for each in incident.rebalances]
        if numbers:
            least, greatest = self.known or (numbers[0], numbers[0])
            self.known = (min(least, *numbers), max(greatest, *numbers))
        for each in incident.rebalances:
            if each.outcome is Outcome.RUNNING:
                self.running = generation_of(each)
        return (incident,) if self.generation in numbers else ()

    def end(self) -> Iterable[Incident]:
        return ()


class Around:
    """The incidents that were open at a given time; if there is none, the nearest before and after it."""

    def __init__(self, fold: WhyFold) -> None:
        self._fold = fold
        self._spanning: list[Incident] = []
        self._before: Incident | None = None
        self._after: Incident | None = None

    @property
    def nearest(self) -> str:
        """Which incidents stand in for one open at that time: 'before', 'after', 'before and after'; '' if one was
        open, or there are none.
        """
        sides = {"before": self._before, "after": self._after}
        return "" if self._spanning else " and ".join(side for side, incident in sides.items() if incident is not None)

    @property
    def has_after(self) -> bool:
        """True if no later incident can be nearer: later episodes begin later."""
        return self._after is not None

    def take(self, incident: Incident) -> Iterable[Incident]:
        at_ms = self._fold.at_ms
        if wall_ms_of(incident.started_at) > at_ms:
            if self._after is None or incident.started_at < self._after.started_at:
                self._after = incident
        elif incident.ended_at is not None and wall_ms_of(incident.ended_at) < at_ms:
            if self._before is None or self._before.ended_at is None or self._before.ended_at <= incident.ended_at:
                self._before = incident
        else:
            self._spanning.append(incident)
        return ()

    def end(self) -> Iterable[Incident]:
        return self._spanning or [each for each in (self._before, self._after) if each is not None]


def generation_of(rebalance: Rebalance) -> int:
    """Return the generation number by which a rebalance is selected."""
    return rebalance.from_generation + 1 if rebalance.to_generation is None else rebalance.to_generation
