"""Finds the incidents in a window, and those that cross its edges. Pure.

A window is given by the log's wall clock, or by seqs; the times of incidents are corrected for clock jumps
(`history/clock.py`). So the corrected time of an edge is known once the first transition after it is read: the clock's
error at that transition applies to the edge, too, which stays between the two transitions around it.
"""

import msgspec

from muster.replay.history.transitions import Transition
from muster.replay.history.window import At, AtSeq, AtTime, Window, WindowEdge
from muster.replay.incidents.incident import Incident
from muster.replay.text.times import wall_ms_of


class _Cut:
    """One edge. `is_after`: the edge lies after its time or seq, which is thus in the window: the case at a window's
    end. `life`: the incarnation to which a seq refers.
    """

    def __init__(self, at: At, life: int, *, is_after: bool) -> None:
        self._at = at
        self._life = life
        self._is_after = is_after
        self._ahead_ms = 0
        self._epoch = -1
        self._last_ms: int | None = None
        self.is_passed = False
        self._ms = 0

    @property
    def ms(self) -> int:
        """The edge in corrected wall clock ms, as far as it is known."""
        if self.is_passed:
            return self._ms
        last_ms = self._last_ms or 0
        return max(last_ms, self._at.wall_ms - self._ahead_ms) if isinstance(self._at, AtTime) else last_ms

    def pass_by(self, wall_ms: int, step: Transition) -> None:
        """Process the next transition, which was decided at this wall clock time."""
        if self.is_passed:
            return
        if self._is_behind(wall_ms, step):
            self._ms, self.is_passed = self._between(wall_ms, step), True
        self._ahead_ms, self._epoch = wall_ms - step.at_ms, step.event.owner_epoch
        self._last_ms = step.at_ms

    def note_owner(self, epoch: int) -> None:
        """Process an event of the partition's owner: nothing is known about a new owner's clock."""
        if epoch != self._epoch:
            self._ahead_ms, self._epoch = 0, epoch

    def _is_behind(self, wall_ms: int, step: Transition) -> bool:
        if isinstance(self._at, AtTime):
            return wall_ms > self._at.wall_ms if self._is_after else wall_ms >= self._at.wall_ms
        if step.event.incarnation != self._life:
            return False
        return (*step.parts, step.event)[0].seq > self._at.seq if self._is_after else step.event.seq >= self._at.seq

    def _between(self, wall_ms: int, step: Transition) -> int:
        last_ms = step.at_ms if self._last_ms is None else self._last_ms
        if isinstance(self._at, AtSeq):
            return last_ms if self._is_after else step.at_ms
        at_ms = self._at.wall_ms - (wall_ms - step.at_ms)
        if self._last_ms is None:
            return at_ms
        if self._is_after:
            return max(last_ms, min(at_ms, step.at_ms - 1))
        return min(step.at_ms, max(at_ms, last_ms + 1))


class Edges:
    """Decides which incidents are in a window. `life`: the last incarnation, to which seqs refer."""

    def __init__(self, window: Window, life: int = -1) -> None:
        self._since = None if window.since is None else _Cut(window.since, life, is_after=False)
        self._until = None if window.until is None else _Cut(window.until, life, is_after=True)
        self._is_until_a_time = isinstance(window.until, AtTime)
        self._has_since_a_time = isinstance(window.since, AtTime)
        self.has_begun = False
        """True once a transition before the window's end was read."""

    @property
    def is_over(self) -> bool:
        """True if the last transition lies after the window."""
        return self._until is not None and self._until.is_passed

    @property
    def until_ms(self) -> int:
        """The end of the window, as far as it is known, else the last transition before it; 0 if there is no end."""
        return 0 if self._until is None else self._until.ms

    def pass_by(self, wall_ms: int, step: Transition) -> None:
        """Process the group's next transition, which was decided at this wall clock time."""
        for each in (self._since, self._until):
            if each is not None:
                each.pass_by(wall_ms, step)
        self.has_begun = self.has_begun or not self.is_over

    def note_owner(self, epoch: int) -> None:
        """Process an event of the partition's owner."""
        for each in (self._since, self._until):
            if each is not None:
                each.note_owner(epoch)

    def within(self, incident: Incident) -> Incident | None:
        """Return the incident with the edges that it crosses; None if it is outside of the window."""
        began_ms = wall_ms_of(incident.started_at)
        ended_ms = None if incident.ended_at is None else wall_ms_of(incident.ended_at)
        crosses: list[WindowEdge] = []
        since, until = self._since, self._until
        if since is not None:
            is_reached = since.is_passed or self._has_since_a_time
            if not is_reached or (ended_ms is not None and ended_ms < since.ms):
                return None
            crosses += [WindowEdge.SINCE] if began_ms < since.ms else []
        if until is not None and (until.is_passed or self._is_until_a_time):
            if began_ms > until.ms:
                return None
            crosses += [WindowEdge.UNTIL] if ended_ms is None or ended_ms > until.ms else []
        return msgspec.structs.replace(incident, crosses=tuple(crosses)) if crosses else incident
