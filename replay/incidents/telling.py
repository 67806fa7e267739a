"""Folds a group's history into incidents, one episode after another; only the current episode is kept."""

from collections.abc import Iterable, Iterator, Sequence

from muster.events.events import CoordinatorElected, GroupDeleted
from muster.events.ids import GroupId
from muster.events.state import Group
from muster.replay.history.clock import BEGIN, ClockReading
from muster.replay.history.items import NOTHING_MISSING, Broken, Coordinated, Gap, Item, MissingParts
from muster.replay.history.transitions import Step, Transition, Transitions
from muster.replay.incidents.episode.coordinator_absences import Absences, Away
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.episode.reading_acts import acts_of
from muster.replay.incidents.grouping import incidents_of
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.windows import ACTS_RUNNING_MAX
from muster.replay.rebalances.timeline import Timeline


def told(group_id: GroupId, items: Iterable[Item]) -> Iterator[Incident]:
    """Yield a group's incidents while its items are read."""
    teller = IncidentTeller(group_id)
    for step in Transitions(group_id).steps(items):
        yield from teller.feed(step)
    yield from teller.end()


class IncidentTeller:
    """The fold.

    `group`: the group before the first step, after a quiet time (`QUIET_MS`), if the history does not begin there; its
    last event was at `at_ms` (wall clock). `missing`: the parts that are missing since its last rebalance. `clock`: the
    reading at that event. `chained`: whether incidents get their chain of statements.
    """

    def __init__(
        self,
        group_id: GroupId,
        group: Group | None = None,
        *,
        at_ms: int = 0,
        missing: MissingParts = NOTHING_MISSING,
        clock: ClockReading = BEGIN,
        chained: bool = True,
    ) -> None:
        self._group_id = group_id
        self._chained = chained
        self._begin_ms = at_ms
        self._last_ms = at_ms
        self._timeline = Timeline(group, missing=missing)
        self._coordinators = Absences(at_ms, clock)
        self._episode = Episode(group)
        self._end_of_life: GroupDeleted | None = None
        self._min_session_ms: int | None = None
        self.away: Away | None = None
        """The last outage of the coordinator."""

    def is_over_before(self, step: Step) -> bool:
        """Return whether no incident can include both this step and earlier ones: the current episode is then over."""
        return self._is_over(self._at_ms(step))

    def _is_over(self, at_ms: int) -> bool:
        is_over = self._episode.is_over(at_ms) and not self._timeline.is_running
        if is_over and self._episode.known_until_ms is None:
            self._episode.known_until_ms = at_ms
        return is_over

    def feed(self, step: Step) -> Sequence[Incident]:
        """Process the next step; return the incidents of the episode that ended before it."""
        if isinstance(step, Coordinated) and isinstance(step.event, CoordinatorElected):
            self._min_session_ms = _min_session_ms(step.event)
        at_ms = self._at_ms(step)
        if not isinstance(step, Transition) and at_ms <= self._begin_ms:
            self._note_earlier(step)
            return ()
        ended: list[Incident] = []
        if self._is_over(at_ms) or len(self._episode.acts) >= ACTS_RUNNING_MAX:
            over, self._episode = self._episode, Episode(self._episode.after)
            self._episode.is_split = not over.is_quiet_before(at_ms)
            over.is_split = over.is_split or self._episode.is_split
            ended += self._incidents(over)
        self._last_ms = step.end.timestamp_ms if isinstance(step, Broken) else at_ms
        finished = self._timeline.feed(step)
        if finished is not None:
            self._episode.rebalances.append(finished)
        if isinstance(step, Transition):
            if step.begins_life:  # its seqs start again at 1
                ended += self._incidents(self._episode)
                self._episode, self._end_of_life = Episode(step.before, self._end_of_life), None
            self._coordinators.note_event(at_ms, step.event.owner_epoch, step.jump_ms)
            self._episode.add(acts_of(step), step.after)
            if isinstance(step.event, GroupDeleted):
                self._end_of_life = step.event
        elif isinstance(step, Gap | Broken):
            self._episode.add_missing(step)
        else:
            after = self._episode.after
            away = self._coordinators.note(step, tuple(after.members.values()) if after is not None else ())
            if away is not None:
                self.away = away
                self._episode.add_away(away)
        return ended

    def _incidents(self, episode: Episode) -> list[Incident]:
        episode.min_session_ms = self._min_session_ms
        return incidents_of(episode, self._group_id, chained=self._chained)

    def _note_earlier(self, step: Coordinated | Gap | Broken) -> None:
        """Note a step from before the start, for the coordinator's state."""
        if isinstance(step, Coordinated):
            self._timeline.feed(step)
            self._coordinators.note(step, ())

    def _at_ms(self, step: Step) -> int:
        """Return the step's wall clock ms, corrected for clock jumps unless a part is missing there."""
        if isinstance(step, Transition):
            return step.event.why.decided_ms
        return self._coordinators.at_ms(step) if isinstance(step, Coordinated) else step.position.timestamp_ms

    def end(self) -> Sequence[Incident]:
        """Return the incidents of the last episode, in which a rebalance may still be running."""
        running = self._timeline.running()
        if running is not None:
            self._episode.rebalances.append(running)
        if self._episode.known_until_ms is None:
            self._episode.known_until_ms = self._last_ms
        return self._incidents(self._episode)


def _min_session_ms(elected: CoordinatorElected) -> int | None:
    value = elected.settings.get("group.min.session.timeout.ms", "")
    return int(value) if value.isdecimal() else None
