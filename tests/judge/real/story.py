"""An incident while it is caused in real processes; `truth` is the result. The stage writes into it.

The rebalances are the generations of the group meanwhile, from its members' heartbeats; times are known as ranges,
since the machine is shared, and an action takes time.
"""

from typing import Any

from muster.replay.fleet.simulation.world.truth import Range, RebalanceId, StoryBase, Truth


class Story(StoryBase):
    """`starts`, `ends`: when its first rebalance began, and its last one ended."""

    def __init__(self, *kinds: str, **given: Any) -> None:
        super().__init__(*kinds, **given)
        self.must: set[RebalanceId] = set()
        self.may: set[RebalanceId] = set()
        self.starts: list[Range] = []
        self.ends: list[Range] = []

    def moved(self, rebalances: set[RebalanceId], started: Range, ended: Range) -> None:
        """These rebalances belong to it: the first began, and the last ended, within these ranges."""
        self.must |= rebalances
        self.starts.append(started)
        self.ends.append(ended)

    def truth(self, stories: "list[Story]") -> Truth:
        moments = [at_ms for each in (*self.acts, *self.starts, *self.ends) for at_ms in each]
        extent = min(moments), max(moments)
        return self._truth(stories, span=self._span(), extent=extent, must=self.must, may=self.may)

    def _span(self) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        if self.must:
            return (self.starts[0],), (self.ends[-1],)
        acts = (self.acts[0],), (self.acts[-1],)
        if not self.may:
            return acts
        return (*acts[0], *self.starts), (*acts[1], *self.ends)
