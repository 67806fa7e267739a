"""The recorded history as commands, in order, each with the events that it led to.

The rerun derives the commands. If the rules do not reproduce the recorded events, or a part is missing, there is no
command, and `unexplained` says why.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from muster.coordinator.group.commands import AnyCommand
from muster.events.causes import Cause
from muster.events.events import AnyEvent, GroupEvent, MemberRejoined, RebalanceStarted
from muster.events.ids import MemberId
from muster.events.state import Group, GroupState, Member
from muster.replay.history.clock import BEGIN, ClockReading, SteadyClock
from muster.replay.history.items import Broken, Coordinated, Gap, Happened, Item
from muster.replay.incidents.episode.acts import topics_of
from muster.replay.rerun.rerun import Rerunner

MISSING = "parts of the history before it are missing"
DIFFERENT = "the rules of this version do not give what was recorded: see `muster replay verify`"
_BY_ITSELF = frozenset({Cause.METADATA_CHANGED, Cause.LEADER_REJOINED})
_SETTLED = (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)


class Fact(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A command and its events. `unexplained`: why there is no command. `is_within`: whether it is in the window."""

    command: AnyCommand | None
    events: tuple[AnyEvent, ...]
    unexplained: str = ""
    is_within: bool = True

    @property
    def at_ms(self) -> int:
        """Wall clock ms of the decision."""
        return self.events[0].why.decided_ms

    @cached_property
    def started(self) -> RebalanceStarted | None:
        """The rebalance that began with this command, if one did."""
        return next((event for event in self.events if isinstance(event, RebalanceStarted)), None)

    @cached_property
    def leaves_settled(self) -> bool | None:
        """True if no rebalance was running afterwards; None if that did not change."""
        states = [event.group.state for event in self.events if isinstance(event, GroupEvent)]
        return states[-1] in _SETTLED if states else None


Step = Fact | Coordinated | Gap | Broken


def is_second_round(fact: Fact, started: RebalanceStarted, members: Mapping[MemberId, Member]) -> bool:
    """Return whether members rejoined on their own for the same topics, with only their owned partitions changed."""
    rejoined = [event.member for event in fact.events if isinstance(event, MemberRejoined)]
    return (
        started.why.cause in _BY_ITSELF
        and bool(rejoined)
        and all(
            (before := members.get(member.member_id)) is not None and topics_of(before) == topics_of(member)
            for member in rejoined
        )
    )


class RecordedFacts:
    """The fold from items to facts; other items pass through. `group`: see `Rerunner`; `clock`: its reading then.

    The times of the events are corrected for jumps of the wall clock, as in `why`.
    """

    def __init__(self, group: Group | None = None, clock: ClockReading = BEGIN) -> None:
        self._rerunner = Rerunner(group)
        self._clock = SteadyClock(clock)
        self._waiting: list[AnyEvent] = []  # not yet in a fact: the events with the latest decision time
        self._is_within = True

    def feed(self, item: Item, *, is_within: bool = True) -> Iterator[Step]:
        """Process the next item; yield the steps that ended before it, and the item itself if it is not an event."""
        self._rerunner.feed(item)
        if isinstance(item, Happened):
            event, _ = self._clock.steadied(item.event)
            if self._waiting and self._waiting[0].why.decided_ms != event.why.decided_ms:
                yield from self._facts()
            self._waiting.append(event)
            self._is_within = is_within
            return
        yield from self._facts()
        yield item

    def end(self) -> Iterator[Step]:
        """End the history; yield the last steps."""
        self._rerunner.end()
        yield from self._facts()

    def _facts(self) -> Iterator[Fact]:
        """Yield facts for the waiting events, which the rerun has processed by now."""
        commands = {each.first_seq: (each.command, each.last_seq) for each in self._rerunner.inputs}
        different = {each.recorded[0].seq: each.recorded[-1].seq for each in self._rerunner.differences}
        events, self._waiting = self._waiting, []
        position = 0
        while position < len(events):
            seq = events[position].seq
            command, last_seq = commands.get(seq, (None, different.get(seq, seq)))
            made = tuple(event for event in events[position:] if event.seq <= last_seq)
            unexplained = "" if command is not None else DIFFERENT if seq in different else MISSING
            yield Fact(command=command, events=made, unexplained=unexplained, is_within=self._is_within)
            position += len(made)
        self._rerunner.inputs.clear()
        self._rerunner.differences.clear()
