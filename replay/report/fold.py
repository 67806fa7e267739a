"""A group's items -> the values of its page. Pure; what is kept is bounded by `Limits`."""

from collections.abc import Iterable

from muster.events.events import CoordinatorReady
from muster.events.ids import GroupId
from muster.replay.history import Broken, Coordinated, Gap, Happened, Item
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.telling import Teller
from muster.replay.rebalances.wording import missing_text
from muster.replay.report.lanes import Lanes
from muster.replay.report.lives import Latest, Lives
from muster.replay.report.page import LIMITS, Limits, Mark, Missing, Page, Shift, shown
from muster.replay.report.stories import Brief, brief, shift, story
from muster.replay.times import duration, instant
from muster.replay.transitions import Transition, Transitions

MISSING_MAX = 100


def report(group_id: GroupId, log: str, items: Iterable[Item], *, made_ms: int, limits: Limits = LIMITS) -> Page:
    """The page of a group's history. `made_ms`: the wall clock now."""
    fold = ReportFold(group_id)
    for item in items:
        fold.feed(item)
    fold.end()
    return fold.page(log, made_ms=made_ms, limits=limits)


class ReportFold:
    """The fold: feed it all items, end it, then ask for pages."""

    def __init__(self, group_id: GroupId) -> None:
        self._group_id = group_id
        self._transitions = Transitions(group_id)
        self._teller = Teller(group_id)
        self._lives = Lives()
        self._briefs: Latest[Brief] = Latest(LIMITS.incidents)
        self._shifts: Latest[Shift] = Latest(LIMITS.shifts)
        self._takeovers: Latest[Mark] = Latest(LIMITS.bands)
        self._missing: Latest[Missing] = Latest(MISSING_MAX)
        self._events = 0
        self.rebalances = 0
        self._begin_ms: int | None = None
        self._end_ms = 0
        self._last_ms = 0

    @property
    def incidents(self) -> int:
        """How many were told."""
        return self._briefs.left_out(0)

    def feed(self, item: Item) -> None:
        """Take in the next item."""
        if isinstance(item, Happened):
            self._events += 1
            self._note_time(item.at_ms)
        elif isinstance(item, Gap | Broken):
            at_ms = item.position.timestamp_ms
            self._missing.add(Missing(at=instant(at_ms), at_ms=at_ms, text=shown(missing_text(item))))
        elif self._begin_ms is not None:
            self._note_time(item.at_ms)
            self._note_coordinator(item)
        step = self._transitions.feed(item)
        if step is None:
            return
        for each in self._teller.feed(step):
            self._tell(each)
        if isinstance(step, Transition):
            self._note_jump(step.at_ms, self._lives.feed(step))

    def end(self) -> None:
        """The log ends."""
        for each in self._teller.end():
            self._tell(each)
        self._lives.end(self._last_ms)

    def page(self, log: str, *, made_ms: int, limits: Limits = LIMITS) -> Page:
        """The page, with so much detail."""
        begin_ms, end_ms = self._extent()
        lives, group = self._lives, self._lives.group
        lanes = Lanes(lives, limits)
        headlines = {each.incident_id: each.story.headline for each in self._briefs.kept}
        told = enumerate(self._briefs.last(limits.incidents))
        return Page(
            group_id=shown(self._group_id),
            log=shown(log),
            made=instant(made_ms),
            state=group.state if group is not None else "not known",
            events=self._events,
            rebalances=self.rebalances,
            incidents_told=self.incidents,
            begin_ms=begin_ms,
            end_ms=end_ms,
            begin=instant(begin_ms),
            end=instant(end_ms),
            lanes=lanes.lanes,
            bands=lives.bands.last(limits.bands),
            unstable=lives.unstable.last(limits.bands),
            takeovers=self._takeovers.last(limits.bands),
            stories=tuple(story(each, number, headlines, lanes) for number, each in told),
            shifts=tuple(sorted(self._shifts.last(limits.shifts), key=lambda each: each.at)),
            missing=self._missing.last(MISSING_MAX),
            left_out=self._left_out(lanes, limits),
        )

    def _tell(self, incident: Incident) -> None:
        self._briefs.add(brief(incident))
        for rebalance in incident.rebalances:
            self.rebalances += 1
            self._shifts.add(shift(rebalance))

    def _note_time(self, at_ms: int) -> None:
        self._begin_ms = at_ms if self._begin_ms is None else min(self._begin_ms, at_ms)
        self._end_ms = max(self._end_ms, at_ms)
        self._last_ms = at_ms

    def _note_jump(self, at_ms: int, back_ms: int) -> None:
        if back_ms:
            text = f"the wall clock went back by {duration(back_ms)} to here: some of what is drawn later came before"
            self._missing.add(Missing(at=instant(at_ms), at_ms=at_ms, text=text))

    def _note_coordinator(self, item: Coordinated) -> None:
        event = item.event
        if isinstance(event, CoordinatorReady):
            self._takeovers.add(Mark(event.ready_ms, shown(event.owner, 120)))

    def _extent(self) -> tuple[int, int]:
        times = [each.at_ms for each in self._missing.kept]
        begin_ms = min(times, default=0) if self._begin_ms is None else self._begin_ms
        return begin_ms, max(begin_ms + 1, self._end_ms)

    def _left_out(self, lanes: Lanes, limits: Limits) -> tuple[str, ...]:
        lives = self._lives
        parts = [
            ("incidents", self._briefs.left_out(limits.incidents)),
            ("rebalances of the table of assignments", self._shifts.left_out(limits.shifts)),
            ("processes", lanes.left_out),
            ("lives of members", lives.ended.dropped),
            ("stretches of the lanes", lives.stretches.left_out(limits.stretches)),
            ("generations of the chart", lives.bands.left_out(limits.bands)),
            ("takeovers", self._takeovers.left_out(limits.bands)),
            ("gaps", self._missing.dropped),
        ]
        return tuple(f"The {count:,} earliest {what} are left out." for what, count in parts if count)
