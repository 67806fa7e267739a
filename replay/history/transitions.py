"""Folds a group's history into transitions: the events of one decision, with the group before and after it.

All analyses build on this fold. It reads the items once and keeps only the current group. A transition consists of an
event on the group's own key and the events before it (`events/events.py`).
"""

from collections.abc import Iterable, Iterator

import msgspec

from muster.events.events import AnyEvent, AnyGroupEvent, GroupEvent
from muster.events.evolve import evolve
from muster.events.ids import GroupId
from muster.events.state import Group, new_group
from muster.replay.history.clock import BEGIN, ClockReading, SteadyClock
from muster.replay.history.items import Broken, Coordinated, Gap, Happened, Item, Part


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one decision. `parts` are those before `event`, the one on the group's own key.

    `begins_life`: the group was recreated and is unrelated to the earlier one; `before` is then a new group. `jump_ms`:
    the jump of the wall clock before the transition; its times and all later ones are corrected for it.
    """

    parts: tuple[Part, ...]
    event: AnyGroupEvent
    before: Group
    after: Group
    begins_life: bool
    jump_ms: int = 0

    @property
    def at_ms(self) -> int:
        """Wall clock ms of the decision."""
        return self.event.why.decided_ms


Step = Transition | Coordinated | Gap | Broken
"""A transition, or another item of the group's history."""


class Transitions:
    """The fold. `group` and `clock`: their state before the first item, if the history does not begin there."""

    def __init__(self, group_id: GroupId, group: Group | None = None, clock: ClockReading = BEGIN) -> None:
        self._group_id = group_id
        self._parts: list[Part] = []  # of the current transition
        self._clock = SteadyClock(clock)
        self._jump_ms = 0
        self.group: Group | None = group
        """The group as of the last transition; None before the first."""

    def steps(self, items: Iterable[Item]) -> Iterator[Step]:
        """Yield the steps that end within these items."""
        for item in items:
            step = self.feed(item)
            if step is not None:
                yield step

    def feed(self, item: Item) -> Step | None:
        """Process the next item; return the step that it completes."""
        if not isinstance(item, Happened):
            return item
        return self.take(item.event)

    def take(self, event: AnyEvent) -> Transition | None:
        """Process the next event; return the transition that it completes."""
        event, jump_ms = self._clock.steadied(event)
        self._jump_ms += jump_ms
        if not isinstance(event, GroupEvent):
            self._parts.append(event)
            return None
        parts, self._parts = tuple(self._parts), []
        group = self.group
        if group is not None and event.incarnation < group.incarnation:
            return None  # a leftover of an earlier incarnation, which `evolve` also ignores
        begins_life = group is None or event.incarnation > group.incarnation
        before = new_group(self._group_id, incarnation=event.incarnation, wall_ms=0) if begins_life else group
        assert before is not None
        self.group = evolve(before, (*parts, event))
        jump_ms, self._jump_ms = self._jump_ms, 0
        return Transition(
            parts=parts, event=event, before=before, after=self.group, begins_life=begins_life, jump_ms=jump_ms
        )
