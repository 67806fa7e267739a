"""Checks one group of a log event by event: its numbering, its transitions, its invariants, and the rules.

Compaction leaves gaps in the offsets, so an event that is missing without such a gap was lost for another reason. After
a gap the state of the group is not known for certain until it is created again, so its events are only checked on their
own.

Events before a window are checked, too, since those in it depend on them; they are counted separately, and their
findings are not reported.
"""

from collections.abc import Iterator, Sequence

import msgspec

from muster.events.events import AnyEvent
from muster.events.evolve import is_gone
from muster.events.ids import GroupId
from muster.replay.history.items import Broken, Coordinated, Gap, Happened
from muster.replay.history.transitions import Transition, Transitions
from muster.replay.history.window import WHOLE, Cut, Place, Window
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.rerun.rerun import Difference, Rerunner, comparable
from muster.replay.verify.finding import Check, Compacted, LogFinding
from muster.replay.verify.invariants import broken_invariants, broken_move, invariants_broken_by

VALUE_LENGTH_MAX = 120


class GroupCheck:
    """The checks of one group. `events`, `decided_again`: those of the window; `folded`: the events before it."""

    def __init__(self, group_id: GroupId, partition: int, window: Window = WHOLE, times: Times = AS_RECORDED) -> None:
        self.events = self.folded = 0
        self.decided_again = 0
        self._cut = Cut(window, times=times)
        self._is_over = False  # the window
        self._is_well = False  # every invariant holds as of the last transition
        self._group_id = group_id
        self._partition = partition
        self._incarnation, self._seq = -1, 0
        self._missing = 0
        self._unreadable = 0
        self._is_certain = True
        self._transitions = Transitions(group_id)
        self._rerunner = Rerunner()
        self._unfinished: Happened | None = None  # the last event, if it did not end a transition
        self._moment_ms: int | None = None
        self._places: dict[int, Happened] = {}  # of the last time; not rerun yet

    @property
    def members(self) -> int:
        """The number of members, as of the last transition."""
        group = self._transitions.group
        return 0 if group is None else len(group.members)

    @property
    def compacted(self) -> Compacted | None:
        """The part that compaction removed; None if it removed nothing."""
        if not self._missing:
            return None
        return Compacted(
            group_id=self._group_id,
            partition=self._partition,
            missing=self._missing,
            unchecked=self._rerunner.skipped,
        )

    def feed(self, item: Happened | Coordinated | Broken, *, is_compacted: bool) -> Iterator[LogFinding]:
        """Process an item that concerns the group. `is_compacted`: offsets are missing since its last event."""
        place = self._cut.place(item)
        if place is Place.AFTER:
            if not self._is_over:
                self._is_over = True
                self._rerunner.end()  # this event was decided later, so the decision before it is complete
                yield from self._by_the_rules()
            return
        found = tuple(self._checked(item, is_compacted=is_compacted))
        if place is Place.WITHIN:
            self.events += isinstance(item, Happened)
            yield from found
        else:
            self.folded += isinstance(item, Happened)
        self._rerunner.feed(item)
        yield from self._by_the_rules()
        if isinstance(item, Happened):
            if item.event.why.decided_ms != self._moment_ms:
                self._moment_ms = item.event.why.decided_ms
                self._places.clear()
            self._places[item.event.seq] = item

    def end(self, *, is_cut: bool = False) -> Iterator[LogFinding]:
        """Finish at the end of the log. `is_cut`: what follows could not be read, so the last decision may be
        incomplete.
        """
        is_cut = is_cut or self._is_over
        if self._unfinished is not None and not is_cut and self._cut.has(self._unfinished):
            expected = "the event on the group's own key that ends a decision"
            yield self._finding(Check.TRANSITION, self._unfinished, expected=expected, found="the end of the log")
        self._rerunner.end(is_cut=is_cut)
        yield from self._by_the_rules()

    def _checked(self, item: Happened | Coordinated | Broken, *, is_compacted: bool) -> Iterator[LogFinding]:
        if isinstance(item, Happened):
            yield from self._number(item, is_compacted=is_compacted)
            yield from self._transition(item)
        elif isinstance(item, Broken):
            self._is_certain = self._is_well = False
            self._unreadable += 1

    def _number(self, item: Happened, *, is_compacted: bool) -> Iterator[LogFinding]:
        event = item.event
        if event.incarnation < self._incarnation:
            expected = f"an event of incarnation {self._incarnation} or a later one"
            yield self._finding(Check.SEQ, item, expected=expected, found=f"incarnation {event.incarnation}")
            return
        if event.incarnation > self._incarnation:
            self._incarnation, self._seq = event.incarnation, 0
            self._is_certain = True
        expected_seq, missing = self._seq + 1, event.seq - self._seq - 1
        if missing:
            self._is_certain = self._is_well = False
        if missing > 0 and is_compacted:
            self._missing += missing
        elif missing < 0 or missing > self._unreadable:
            yield self._finding(Check.SEQ, item, expected=f"seq {expected_seq}", found=f"seq {event.seq}")
        if missing:
            gap = Gap(
                position=item.position, incarnation=event.incarnation, first_seq=expected_seq, last_seq=event.seq - 1
            )
            self._rerunner.feed(gap)
        self._seq, self._unreadable = event.seq, 0

    def _transition(self, item: Happened) -> Iterator[LogFinding]:
        self._unfinished = item
        step = self._transitions.feed(item)
        if not isinstance(step, Transition):
            return
        self._unfinished = None
        if not self._is_certain:
            return
        if not step.begins_life:
            for broken in broken_move(step.before.image, step.event):
                yield self._finding(Check.TRANSITION, item, expected="a legal transition", found=broken)
        if not is_gone(step.after):
            for broken in self._broken_invariants(step):
                yield self._finding(Check.INVARIANT, item, expected="every invariant holds", found=broken)

    def _broken_invariants(self, step: Transition) -> Sequence[str]:
        if self._is_well and not step.begins_life:
            broken = tuple(invariants_broken_by(step.before, step.parts, step.after))
        else:
            broken = tuple(broken_invariants(step.after))
        self._is_well = not broken
        return broken

    def _by_the_rules(self) -> Iterator[LogFinding]:
        rerunner = self._rerunner
        if not (rerunner.inputs or rerunner.differences):
            return
        within = (each for each in rerunner.inputs if self._is_within(each.last_seq, each.now.wall_ms))
        self.decided_again += sum(each.last_seq - each.first_seq + 1 for each in within)
        for difference in rerunner.differences:
            recorded = difference.recorded[0]
            if self._is_within(recorded.seq, recorded.why.decided_ms):
                yield self._difference(difference)
        rerunner.inputs.clear()
        rerunner.differences.clear()

    def _is_within(self, seq: int, decided_ms: int) -> bool:
        """Return whether the event, decided at this time by its owner's clock, is in the window."""
        item = self._places.get(seq)
        return self._cut.is_within(decided_ms) if item is None else self._cut.has(item)

    def _difference(self, difference: Difference) -> LogFinding:
        recorded = difference.recorded[0]
        place = self._places[recorded.seq].position
        expected, found = first_difference(difference)
        return LogFinding(
            check=Check.RULES,
            partition=place.partition,
            offset=place.offset,
            group_id=self._group_id,
            seq=recorded.seq,
            expected=expected,
            found=found,
        )

    def _finding(self, check: Check, item: Happened, *, expected: str, found: str) -> LogFinding:
        return LogFinding(
            check=check,
            partition=item.position.partition,
            offset=item.position.offset,
            group_id=self._group_id,
            seq=item.event.seq,
            expected=expected,
            found=found,
        )


def first_difference(difference: Difference) -> tuple[str, str]:
    """Describe the first difference: the text of what the rules decide, and the text of what was recorded."""
    recorded, decided = comparable(difference.recorded), comparable(difference.decided)
    if difference.command is None:
        return "a request or a deadline that leads to these events", _types(recorded)
    for one, other in zip(decided, recorded, strict=False):
        if one == other:
            continue
        if type(one) is not type(other):
            break
        return _fields(one, other)
    return _types(decided), _types(recorded)


def _types(events: Sequence[AnyEvent]) -> str:
    names = [f"{type(event).__name__} ({event.why.cause.value})" for event in events]
    return _short(", ".join(names)) if names else "no event"


def _fields(decided: msgspec.Struct, recorded: msgspec.Struct, path: str = "") -> tuple[str, str]:
    """Return the first field in which two events of one type differ."""
    path = path or type(decided).__name__
    for field in decided.__struct_fields__:
        one, other = getattr(decided, field), getattr(recorded, field)
        if one == other:
            continue
        if isinstance(one, msgspec.Struct) and type(one) is type(other):
            return _fields(one, other, f"{path}.{field}")
        return _short(f"{path}.{field} = {one!r}"), _short(f"{path}.{field} = {other!r}")
    return path, path


def _short(text: str) -> str:
    return text if len(text) <= VALUE_LENGTH_MAX else text[: VALUE_LENGTH_MAX - 3] + "..."
