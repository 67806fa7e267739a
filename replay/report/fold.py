"""A group's items -> the values of its page. Pure; memory is bounded by `Limits`.

Items before a window are folded, but not shown. After a window, only open incidents are followed until they end, since
an incomplete one could be classified as another kind. Incidents that cross an edge of the window are marked.
"""

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from muster.events.events import CoordinatorReady
from muster.events.ids import GroupId
from muster.events.state import Group
from muster.replay.history.clock import BEGIN, ClockReading
from muster.replay.history.items import NOTHING_MISSING, Broken, Coordinated, Gap, Happened, Item, MissingParts
from muster.replay.history.transitions import Step, Transition, Transitions
from muster.replay.history.window import WHOLE, AtTime, Cut, Place, Window, bounds
from muster.replay.history.wording import jump_text, missing_text
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.html.chart import Mark
from muster.replay.html.document import shown
from muster.replay.incidents.edges import Edges
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.telling import IncidentTeller
from muster.replay.report.lanes import Lanes
from muster.replay.report.lives import Latest, Lives
from muster.replay.report.page import LIMITS, Limits, Missing, Page, Shift
from muster.replay.report.stories import Brief, Total, brief, shift, story
from muster.replay.text.times import duration, instant

MISSING_MAX = 100
WEIGHTIEST = 5
"""The number of incidents that are listed at the top of a page."""


class ReportFold:
    """The fold: feed it all items, or until it `is_over`, end it, then request pages.

    `group`: its state before the first item, after a quiet time, if that is not the first of its history; its last
    event was at `at_ms` (wall clock), and `missing` is what is missing since its last rebalance. `life`: the last
    incarnation, for a window of event numbers. `clock`: the reading at that last event. `times`: the corrected event
    times to look events up by.
    """

    def __init__(
        self,
        group_id: GroupId,
        group: Group | None = None,
        *,
        at_ms: int = 0,
        missing: MissingParts = NOTHING_MISSING,
        window: Window = WHOLE,
        life: int = -1,
        clock: ClockReading = BEGIN,
        times: Times = AS_RECORDED,
    ) -> None:
        self._group_id = group_id
        self._window = window
        self._times = times
        self._cut = Cut(window, life, times)
        self._edges = Edges(window, life)
        self._transitions = Transitions(group_id, group, clock)
        self._teller = IncidentTeller(group_id, group, at_ms=at_ms, missing=missing, clock=clock)
        self._lives = Lives(group, at_ms=at_ms)
        self._briefs: Latest[Brief] = Latest(LIMITS.incidents)
        self._weightiest: list[Brief] = []
        self._total = Total()
        self._kinds: Counter[str] = Counter()
        self._shifts: Latest[Shift] = Latest(LIMITS.shifts)
        self._takeovers: Latest[Mark] = Latest(LIMITS.bands)
        self._missing: Latest[Missing] = Latest(MISSING_MAX)
        self._events = 0
        self.rebalances = 0
        self.has_begun = False
        self.is_over = False
        """`has_begun`: something in the window was read. `is_over`: no later item can be in the window."""
        self._has_ended = False
        self._begin_ms: int | None = None
        self._end_ms = 0
        self._last_ms = at_ms

    @property
    def incidents(self) -> int:
        """The number of incidents so far."""
        return self._briefs.left_out(0)

    def feed(self, item: Item) -> None:
        """Process the next item."""
        place = self._cut.place(item)
        step = self._transitions.feed(item)
        if isinstance(step, Transition) and isinstance(item, Happened):
            self._edges.pass_by(self._times.at_ms(item), step)
        elif isinstance(step, Coordinated):
            self._edges.note_owner(step.event.owner_epoch)
        if place is Place.AFTER:
            self._go_on(step)
            return
        if place is Place.WITHIN:
            self._note(item, step)
        if step is None:
            return
        for each in self._teller.feed(step):
            self._tell(each)
        if isinstance(step, Gap | Broken):
            self._lives.miss()
        elif isinstance(step, Transition):
            back_ms = self._lives.feed(step)
            if place is Place.WITHIN:
                self._note_jump(step, back_ms)

    def end(self) -> None:
        """Finish at the end of the log, or of the window. The window may contain nothing but an open incident."""
        for each in self._teller.end():
            if not self.has_begun and isinstance(self._window.since, AtTime) and self._edges.within(each):
                self._begin()
            self._tell(each)
        self._lives.end(self._last_ms)

    def page(self, log: str, *, made_ms: int, limits: Limits = LIMITS, damage: Sequence[str] = ()) -> Page:
        """Return the page, with as much detail as `limits` allows. `damage`: what was unreadable in the log, as
        text.
        """
        begin_ms, end_ms = self._extent()
        lives, group = self._lives, self._lives.group
        lanes = Lanes(lives, limits)
        briefs = self._chosen(limits)
        numbers = {each.incident_id: number for number, each in enumerate(briefs)}
        return Page(
            group_id=shown(self._group_id),
            log=shown(log),
            made=instant(made_ms),
            window=bounds(self._window),
            state=group.state if group is not None else "not known",
            events=self._events,
            rebalances=self.rebalances,
            incidents_told=self.incidents,
            cost=self._total.text,
            kinds=tuple(self._kinds.most_common()),
            weightiest=tuple(numbers[each.incident_id] for each in self._weightiest),
            begin_ms=begin_ms,
            end_ms=end_ms,
            begin=instant(begin_ms),
            end=instant(end_ms),
            lanes=lanes.lanes,
            bands=lives.bands.last(limits.bands),
            unstable=lives.unstable.last(limits.bands),
            takeovers=self._takeovers.last(limits.bands),
            stories=tuple(story(each, number, numbers, lanes) for number, each in enumerate(briefs)),
            shifts=tuple(sorted(self._shifts.last(limits.shifts), key=lambda each: each.at)),
            missing=self._missing.last(MISSING_MAX),
            damage=tuple(map(shown, damage)),
            left_out=self._left_out(lanes, limits),
        )

    # ---- the window -------------------------------------------------------------------------------------------------

    def _note(self, item: Item, step: Step | None) -> None:
        """Record the next item of the window."""
        if isinstance(item, Happened):
            self._events += 1
        if not self.has_begun:
            self._begin()
        if isinstance(step, Gap | Broken):
            self._miss(step.position.timestamp_ms, missing_text(step))
        elif isinstance(step, Coordinated):
            if self._begin_ms is not None:
                self._note_time(step.at_ms)
                self._note_coordinator(step)
        elif step is not None:
            self._note_time(step.at_ms)

    def _begin(self) -> None:
        """Start the window: drop everything that ended before it, and draw the current members from its beginning."""
        self.has_begun = True
        self._lives.forget()
        if self._lives.group is not None and isinstance(self._window.since, AtTime):
            self._begin_ms = self._end_ms = self._last_ms = self._window.since.wall_ms

    def _go_on(self, step: Step | None) -> None:
        """Follow open incidents beyond the end of the window."""
        if not self._has_ended:
            self._has_ended = True
            if isinstance(self._window.until, AtTime):
                self._note_time(self._edges.until_ms)
        if step is None or self.is_over:
            return
        self.is_over = self._teller.is_over_before(step)
        if not self.is_over:
            for each in self._teller.feed(step):
                self._tell(each)

    # ---- incidents
    # ------------------------------------------------------------------------------------------------------

    def _tell(self, incident: Incident) -> None:
        within = self._edges.within(incident) if self.has_begun else None
        if within is None:
            return
        told = brief(within)
        self._briefs.add(told)
        self._total.add(incident.cost)
        self._kinds[incident.kind] += 1
        if incident.rebalances:
            self._weightiest = sorted([*self._weightiest, told], key=attrgetter("story.weight"), reverse=True)[
                :WEIGHTIEST
            ]
        for rebalance in incident.rebalances:
            self.rebalances += 1
            self._shifts.add(shift(rebalance))

    def _note_time(self, at_ms: int) -> None:
        self._begin_ms = at_ms if self._begin_ms is None else min(self._begin_ms, at_ms)
        self._end_ms = max(self._end_ms, at_ms)
        self._last_ms = at_ms

    def _note_jump(self, step: Transition, back_ms: int) -> None:
        if step.jump_ms:
            self._miss(step.at_ms, jump_text(step.jump_ms))
        if back_ms:
            text = f"the wall clock went back by {duration(back_ms)} to here: some points drawn later happened earlier"
            self._miss(step.at_ms, text)

    def _miss(self, at_ms: int, text: str) -> None:
        self._missing.add(Missing(at=instant(at_ms), at_ms=at_ms, text=shown(text)))

    def _note_coordinator(self, item: Coordinated) -> None:
        event = item.event
        if isinstance(event, CoordinatorReady):
            self._takeovers.add(Mark(event.ready_ms, shown(event.owner, 120)))

    def _extent(self) -> tuple[int, int]:
        times = [each.at_ms for each in self._missing.kept]
        begin_ms = min(times, default=0) if self._begin_ms is None else self._begin_ms
        return begin_ms, max(begin_ms + 1, self._end_ms)

    def _chosen(self, limits: Limits) -> list[Brief]:
        """Return the incidents to show: the latest, and those with the highest cost."""
        latest = self._briefs.last(limits.incidents)
        ids = {each.incident_id for each in latest}
        earlier = (each for each in self._weightiest if each.incident_id not in ids)
        return [*sorted(earlier, key=lambda each: each.story.begin_ms), *latest]

    def _left_out(self, lanes: Lanes, limits: Limits) -> tuple[str, ...]:
        lives = self._lives
        parts = [
            ("incidents that cost less", self.incidents - len(self._chosen(limits))),
            ("rebalances in the assignments table", self._shifts.left_out(limits.shifts)),
            ("processes", lanes.left_out),
            ("memberships", lives.ended.dropped),
            ("segments of the lanes", lives.stretches.left_out(limits.stretches)),
            ("generations of the chart", lives.bands.left_out(limits.bands)),
            ("takeovers", self._takeovers.left_out(limits.bands)),
            ("gaps", self._missing.dropped),
        ]
        return tuple(f"The {count:,} earliest {what} are left out." for what, count in parts if count)
