"""An incident while it is being done to real processes; `truth` is what is left of it.

What belongs here: what the stage writes down. The rebalances are the generations that the group went through while it
was being done, as its members' heartbeats were answered; moments are known as ranges: the machine is shared, and a deed
takes its time.
"""

from collections.abc import Iterable

from muster.replay.fleet.simulation.world.truth import REPLACING, Knowable, Range, RebalanceId, Truth


class Story:
    """`kinds`: any is right, the first is the page's. `culprits` are names of processes; None: not to be compared.

    `starts`, `ends`: when its first rebalance began, and its last one ended. `acts`: its first and its last act, for
    the span of what made no rebalance.
    """

    def __init__(
        self,
        *kinds: str,
        culprits: Iterable[str] | None = (),
        knowable: Knowable = Knowable.RECORDED,
        parent: "Story | None" = None,
        is_optional: bool = False,
    ) -> None:
        self.kinds = kinds
        self.culprits = None if culprits is None else set(culprits)
        self.knowable = knowable
        self.parent = parent
        self.is_optional = is_optional
        self.must: set[RebalanceId] = set()
        self.may: set[RebalanceId] = set()
        self.starts: list[Range] = []
        self.ends: list[Range] = []
        self.acts: list[Range] = []

    @property
    def kind(self) -> str:
        return self.kinds[0]

    def infer(self, knowable: Knowable) -> None:
        """Less is known than was thought."""
        order = list(Knowable)
        self.knowable = max(self.knowable, knowable, key=order.index)

    def act(self, from_ms: int, to_ms: int) -> None:
        """One of its acts was within this range."""
        self.acts.append((from_ms, to_ms))

    def moved(self, rebalances: set[RebalanceId], started: Range, ended: Range) -> None:
        """These rebalances came of it: the first began, and the last ended, within these ranges."""
        self.must |= rebalances
        self.starts.append(started)
        self.ends.append(ended)

    def truth(self, stories: "list[Story]") -> Truth:
        starts, ends = self._span()
        moments = [at_ms for each in (*self.acts, *self.starts, *self.ends) for at_ms in each]
        was_absorbed = self.kind in REPLACING and not self.must and not self.may
        return Truth(
            kinds=self.kinds,
            culprits=None if self.culprits is None else frozenset(self.culprits),
            starts=starts,
            ends=ends,
            extent=(min(moments), max(moments)),
            must=frozenset(self.must),
            may=frozenset(self.may),
            parent=None if self.parent is None else stories.index(self.parent),
            knowable=self.knowable,
            is_optional=self.is_optional or was_absorbed,
        )

    def _span(self) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        if self.must:
            return (self.starts[0],), (self.ends[-1],)
        acts = (self.acts[0],), (self.acts[-1],)
        if not self.may:
            return acts
        return (*acts[0], *self.starts), (*acts[1], *self.ends)
