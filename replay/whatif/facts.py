"""Everything that came in, in order: the recorded history as commands, with the events that each made.

The commands are those that the re-run derives; where the rules do not give what was recorded, or a part is missing,
there is no command, and `unexplained` says why.
"""

from collections.abc import Iterator
from functools import cached_property

import msgspec

from muster.coordinator.group.commands import AnyCommand
from muster.events.avro.evolve import evolve
from muster.events.events import AnyEvent, GroupEvent, RebalanceStarted
from muster.events.state import Group, GroupState, new_group
from muster.replay.history import Broken, Coordinated, Gap, Happened, History
from muster.replay.rerun.rerun import Rerunner

MISSING = "parts of the history before it are missing"
DIFFERENT = "the rules of this version do not give what was recorded"
_SETTLED = (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)


class Fact(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One command, the group before it, and what it made. `unexplained`: why there is no command."""

    command: AnyCommand | None
    events: tuple[AnyEvent, ...]
    before: Group
    unexplained: str = ""

    @property
    def at_ms(self) -> int:
        """Wall clock ms of the decision."""
        return self.events[0].why.decided_ms

    @cached_property
    def started(self) -> RebalanceStarted | None:
        """The rebalance that began with it."""
        return next((event for event in self.events if isinstance(event, RebalanceStarted)), None)

    @cached_property
    def leaves_settled(self) -> bool | None:
        """Whether the group was in no rebalance afterwards; None: as before."""
        states = [event.group.state for event in self.events if isinstance(event, GroupEvent)]
        return states[-1] in _SETTLED if states else None


Step = Fact | Coordinated | Gap | Broken


def facts(history: History) -> Iterator[Step]:
    """The facts, and what concerns the group besides."""
    reader = _Reader(history)
    for item in history.items:
        yield from reader.feed(item)
    yield from reader.end()


class _Reader:
    def __init__(self, history: History) -> None:
        self._rerunner = Rerunner()
        self._group = new_group(history.group_id, incarnation=-1, wall_ms=0)
        self._waiting: list[AnyEvent] = []  # in no fact yet

    def feed(self, item: Happened | Coordinated | Gap | Broken) -> Iterator[Step]:
        self._rerunner.feed(item)
        if isinstance(item, Happened):
            if self._waiting and self._waiting[0].why.decided_ms != item.event.why.decided_ms:
                yield from self._facts()
            self._waiting.append(item.event)
            return
        yield from self._facts()
        yield item

    def end(self) -> Iterator[Step]:
        self._rerunner.end()
        yield from self._facts()

    def _facts(self) -> Iterator[Fact]:
        """The waiting events, which the rules were run for by now."""
        commands = {each.first_seq: (each.command, each.last_seq) for each in self._rerunner.inputs}
        different = {each.recorded[0].seq: each.recorded[-1].seq for each in self._rerunner.differences}
        events, self._waiting = self._waiting, []
        position = 0
        while position < len(events):
            seq = events[position].seq
            command, last_seq = commands.get(seq, (None, different.get(seq, seq)))
            made = tuple(event for event in events[position:] if event.seq <= last_seq)
            before, self._group = self._group, evolve(self._group, made)
            unexplained = "" if command is not None else DIFFERENT if seq in different else MISSING
            yield Fact(command=command, events=made, before=before, unexplained=unexplained)
            position += len(made)
        self._rerunner.inputs.clear()
        self._rerunner.differences.clear()
