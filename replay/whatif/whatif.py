"""The fold of `whatif` from a group's items to verdicts on its rebalances.

The recorded rebalances are played twice: with the other settings and, as a control, with the recorded settings. If the
control does not reproduce the recorded rebalance, something mattered that is not in the log (handed-out ids that
delayed a phase, requests without an effect). The first play then proves nothing, and the verdict is *cannot tell*.
"""

import math
from collections.abc import Iterator

from muster.events.events import CoordinatorElected, GroupCreated
from muster.events.evolve import apply, is_gone
from muster.events.ids import GroupId
from muster.events.state import Group, new_group
from muster.replay.history.clock import BEGIN, ClockReading
from muster.replay.history.items import Coordinated, Item
from muster.replay.whatif.addresses import SharedAddresses
from muster.replay.whatif.alterations import Alterations, Altered
from muster.replay.whatif.facts import Fact, RecordedFacts
from muster.replay.whatif.limits import check, check_for
from muster.replay.whatif.lookahead import STEPS_MAX, Lookahead
from muster.replay.whatif.player import Player
from muster.replay.whatif.rebalances import SAME_MS, Verdicts
from muster.replay.whatif.silences import Silences
from muster.replay.whatif.verdict import Line

NEVER_SHORTER_MS = 2**31
"""Longer than any session timeout."""


class WhatIfFold:
    """The fold. `group`: the group before the first item, with no rebalance running; `clock`: its reading then.

    `shared`: from an earlier pass over the same items, needed only for static members. The constructor and `feed` raise
    SettingRefused.
    """

    def __init__(
        self,
        group_id: GroupId,
        alterations: Alterations,
        group: Group | None = None,
        shared: SharedAddresses | None = None,
        clock: ClockReading = BEGIN,
    ) -> None:
        check(alterations)
        self._alterations = alterations
        self._facts = RecordedFacts(group, clock)
        self._ahead = Lookahead()
        self._group = group.copy() if group is not None else new_group(group_id, incarnation=-1, wall_ms=0)
        self._verdicts = Verdicts(group_id, group, clock)
        shorter_ms = alterations.session_timeout_ms or NEVER_SHORTER_MS
        self._silences = Silences(shorter_ms, group, clock, rebalance_timeout_ms=alterations.rebalance_timeout_ms)
        shared = shared or SharedAddresses()
        self._player = Player(Altered(alterations, shared), self._ahead, self._verdicts)
        self._control = Player(Altered(Alterations(), shared), self._ahead, self._verdicts.control)
        self._players = (self._player, self._control)

    @property
    def notes(self) -> Iterator[str]:
        """Notes on the limits of the verdicts."""
        yield from self._silences.notes
        if self._ahead.was_cut:
            yield (
                f"more than {STEPS_MAX} decisions at a time were to be looked ahead at: members that had fallen silent"
                " may have been taken for alive there"
            )

    @property
    def is_over(self) -> bool:
        """True if everything in the window so far is decided."""
        return not (self._verdicts.has_open or any(player.is_playing for player in self._players))

    def feed(self, item: Item, *, is_within: bool = True) -> Iterator[Line]:
        """Process the next item; yield the verdicts that are ready. `is_within`: whether it is in the window."""
        if isinstance(item, Coordinated) and isinstance(item.event, CoordinatorElected):
            check_for(self._alterations, item.event)
        self._verdicts.feed(item, is_within=is_within)
        found = self._silences.feed(item)
        if found is not None and is_within:
            yield found
        for step in self._facts.feed(item, is_within=is_within):
            self._ahead.add(step)
        yield from self._go_on()

    def end(self) -> Iterator[Line]:
        """End the history; yield the remaining verdicts."""
        for step in self._facts.end():
            self._ahead.add(step)
        self._verdicts.end()
        yield from self._go_on(is_end=True)
        for player in self._players:
            player.end()
        yield from self._verdicts.ready()
        yield from self._besides(math.inf)

    def _go_on(self, *, is_end: bool = False) -> Iterator[Line]:
        for step in self._ahead.ready(is_end=is_end):
            if isinstance(step, Fact) and isinstance(step.events[0], GroupCreated):
                self._group = self._nothing()  # like the rerun that made the step
            for player in self._players:
                player.take(step, self._group)
            if isinstance(step, Fact):
                for event in step.events:
                    apply(self._group, event)
                if is_gone(self._group):  # a later incarnation starts empty
                    self._group = self._nothing()
                yield from self._besides(step.at_ms - self._ahead.horizon_ms)
        yield from self._verdicts.ready()

    def _nothing(self) -> Group:
        return new_group(self._group.group_id, incarnation=self._group.incarnation, wall_ms=0)

    def _besides(self, before_ms: float) -> Iterator[Line]:
        """Yield the additional rebalances, except those that the control also has."""
        told, in_control = self._player.besides(before_ms), self._control.besides(before_ms)
        moments = [at_ms for at_ms, _ in in_control]
        yield from (
            additional for at_ms, additional in told if not any(abs(at_ms - each) < SAME_MS for each in moments)
        )
