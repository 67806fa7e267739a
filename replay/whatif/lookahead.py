"""Delays the steps of a history until the later history that a play needs has been read.

A play needs to know which members are already silent, although they are removed only when their sessions end, and how
fast members rejoin and sync in the rebalance that begins. So a step waits until the history has been read up to twice
the longest session timeout after it and, if it begins a rebalance, until that rebalance has ended. At most STEPS_MAX
steps wait.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from muster.events.events import MemberEvent
from muster.replay.history.items import Coordinated
from muster.replay.whatif.departures import Departures
from muster.replay.whatif.facts import Fact, Step

STEPS_MAX: Final = 20_000
HORIZON_MIN_MS: Final = 60_000
HORIZON_MAX_MS: Final = 3_600_000


class Lookahead:
    """The waiting steps. `was_cut`: a step was released early because more than STEPS_MAX were waiting."""

    def __init__(self) -> None:
        self.departures = Departures()
        self.was_cut = False
        self.horizon_ms = HORIZON_MIN_MS
        self._steps: deque[Step] = deque()
        self._last_ms = 0
        self._session_max_ms = 0
        self._looked_through = 1  # steps already searched for the end of the first step's rebalance

    @property
    def following(self) -> Iterator[Step]:
        """The steps after the one that was released last."""
        return iter(self._steps)

    def add(self, step: Step) -> None:
        self._steps.append(step)
        self.departures.note(step)
        if isinstance(step, Fact):
            self._last_ms = max(self._last_ms, step.at_ms)
            for event in step.events:
                if isinstance(event, MemberEvent):
                    self._session_max_ms = max(self._session_max_ms, event.member.session_timeout_ms)
            self.horizon_ms = min(HORIZON_MIN_MS + 2 * self._session_max_ms, HORIZON_MAX_MS)

    def ready(self, *, is_end: bool = False) -> Iterator[Step]:
        """Yield the steps that no longer need to wait. `is_end`: the history has ended."""
        while self._steps and (is_end or self._is_ready(self._steps[0])):
            step = self._steps.popleft()
            self._looked_through = 1
            if isinstance(step, Fact):
                self.departures.forget(step.at_ms - self.horizon_ms)
            yield step

    def _is_ready(self, step: Step) -> bool:
        if len(self._steps) > STEPS_MAX:
            self.was_cut = True
            return True
        if not isinstance(step, Fact):
            return True
        return self._last_ms - step.at_ms >= self.horizon_ms and (step.started is None or self._has_ended())

    def _has_ended(self) -> bool:
        """Return whether the end of the first step's rebalance has been read."""
        for step in islice(self._steps, self._looked_through, None):
            self._looked_through += 1
            if isinstance(step, Coordinated) or not isinstance(step, Fact):
                return True
            if step.started is not None or step.leaves_settled:
                self._looked_through -= 1
                return True
        return False
