"""A group's items as transitions: the events of one decision, with the group before and after it.

The fold that everything else here stands on: it goes over the items once and keeps the group as it stands. A
transition is the events before one on the group's own key, and that event (`events/events.py`).
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

    `begins_life`: the group was made anew, and has nothing to do with the one before; `before` is a new group then.
    `jump_ms`: by how much the wall clock jumped before it. Its times, and all after it, are given as if it had not.
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
"""A transition, or what concerns the group and is none."""


class Transitions:
    """The fold. `group`, `clock`: as they stood before the first item, where that is not the first of its history."""

    def __init__(self, group_id: GroupId, group: Group | None = None, clock: ClockReading = BEGIN) -> None:
        self._group_id = group_id
        self._parts: list[Part] = []  # of the transition that is being read
        self._clock = SteadyClock(clock)
        self._jump_ms = 0
        self.group: Group | None = group
        """The group as of the last transition; None before the first."""

    def steps(self, items: Iterable[Item]) -> Iterator[Step]:
        """The steps that end within these items."""
        for item in items:
            step = self.feed(item)
            if step is not None:
                yield step

    def feed(self, item: Item) -> Step | None:
        """Take in the next item; returns the step that ends with it."""
        if not isinstance(item, Happened):
            return item
        return self.take(item.event)

    def take(self, event: AnyEvent) -> Transition | None:
        """Take in the next event; returns the transition that ends with it."""
        event, jump_ms = self._clock.steadied(event)
        self._jump_ms += jump_ms
        if not isinstance(event, GroupEvent):
            self._parts.append(event)
            return None
        parts, self._parts = tuple(self._parts), []
        group = self.group
        if group is not None and event.incarnation < group.incarnation:
            return None  # a leftover of an earlier life, which `evolve` passes over, too
        begins_life = group is None or event.incarnation > group.incarnation
        before = new_group(self._group_id, incarnation=event.incarnation, wall_ms=0) if begins_life else group
        assert before is not None
        self.group = evolve(before, (*parts, event))
        jump_ms, self._jump_ms = self._jump_ms, 0
        return Transition(
            parts=parts, event=event, before=before, after=self.group, begins_life=begins_life, jump_ms=jump_ms
        )
