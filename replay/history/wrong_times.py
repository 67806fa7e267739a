"""Finds times in a history that are wrong because later ones are earlier, and the times to look such events up by.

When the wall clock is set back, times in the log go backwards. Users who ask for a time or a window mean correct times.
What can be inferred:

* The events of one owner also have its monotonic clock. If the wall clock jumped and later jumped back, it was wrong in
  between, by the size of the jump.
* If it was only set back, or the next owner has an earlier time, it is not known which of the two clocks was right. The
  earlier events are assumed to be no later than the following ones, since the log's order is certain.
* If a clock jumped ahead and stayed there, it was corrected, or the machine was suspended: times still increase, and
  are used as they are.

These times are only used to find events; results show the times of `clock.py`.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Final

import msgspec

from muster.events.avro.codec import decode_partially, event_type_of
from muster.events.avro.partial import PartialGroupEvent
from muster.events.events import EVENT_TYPES, GroupEvent
from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from muster.events.records import BrokenRecord, StoredRecord
from muster.replay.history.clock import JUMP_MS, has_jumped
from muster.replay.history.items import Coordinated, Happened
from muster.replay.text.times import duration

_ENDS: Final = frozenset(each for each in EVENT_TYPES if issubclass(each, GroupEvent))
"""The events that end transitions."""

RUNS_MAX: Final = 64
"""Maximum runs (one owner, no clock jump) of a history; if there are more, the oldest are merged."""


TEXTS_MAX: Final = 3
"""How many wrong parts are described one by one."""


class WrongTimes(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a group's history, by offset and seq, whose times are ahead by `ahead_ms` (negative: behind).

    `is_known`: the log shows the exact error; otherwise `ahead_ms` is the minimum.
    """

    epoch: int
    first_offset: int
    end_offset: int
    first_seq: int
    last_seq: int
    ahead_ms: int
    is_known: bool

    @property
    def text(self) -> str:
        """The sentence that users see."""
        seqs = f"seq {self.first_seq} to {self.last_seq}"
        if self.is_known:
            way = "ahead" if self.ahead_ms > 0 else "behind"
            by = duration(abs(self.ahead_ms))
            return f"the coordinator's wall clock was {way} by {by} for {seqs}, which are found by the right time"
        return (
            f"the times of the log fall back by {duration(self.ahead_ms)} after {seqs}: which clock was right is not"
            " known, and those are found as if theirs had been ahead"
        )


class Times(msgspec.Struct, frozen=True):
    """Corrections to the times that a group's events are looked up by."""

    wrong: tuple[WrongTimes, ...] = ()

    def ahead_ms(self, offset: int, epoch: int) -> int:
        """Return by how much the time of an event with this offset, of this owner, is ahead."""
        for part in self.wrong:
            if part.first_offset <= offset < part.end_offset and part.epoch == epoch:
                return part.ahead_ms
        return 0

    @property
    def known(self) -> "Times":
        """Only the corrections whose size is known."""
        return Times(tuple(part for part in self.wrong if part.is_known))

    def at_ms(self, item: Happened | Coordinated) -> int:
        """Return the item's corrected time."""
        return item.at_ms - (self.ahead_ms(item.position.offset, item.event.owner_epoch) if self.wrong else 0)

    @property
    def texts(self) -> list[str]:
        """The sentences that users see."""
        more = len(self.wrong) - TEXTS_MAX
        said = [part.text for part in self.wrong[:TEXTS_MAX]]
        return [*said, *([f"the clock was wrong {more} more times"] if more > 0 else [])]


AS_RECORDED: Final = Times()


def times_of_partition(times: Mapping[GroupId, Times], partition: int, partitions: int) -> Times:
    """Return the corrections for the coordinators' own events in a partition: those of all its groups together."""
    here = (found for group_id, found in times.items() if partition_for(group_id, partitions) == partition)
    return Times(tuple(part for found in here for part in found.wrong))


class _Run(msgspec.Struct, kw_only=True):
    """A part of a history with one owner and no clock jump. `clock_ms`: wall clock minus uptime, at its end."""

    epoch: int
    clock_ms: int | None
    uptime_ms: int
    first_offset: int
    end_offset: int
    first_seq: int
    last_seq: int
    first_ms: int
    last_ms: int
    ahead_ms: int = 0
    is_known: bool = True


class ClockSurvey:
    """Follows the transitions of one group, in order, from the first one on, and finds wrong times."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._end_offset = 0
        self._life = (-1, 0)  # the incarnation, and the seq of its last event

    def take(self, records: Iterable[StoredRecord]) -> None:
        """Read the group's next records; unreadable ones are skipped."""
        for record in records:
            if record.value is None or event_type_of(record.value) not in _ENDS:
                continue
            with suppress(BrokenRecord):
                ended = decode_partially(record.value)
                assert isinstance(ended, PartialGroupEvent)
                if ended.incarnation >= self._life[0]:  # else a leftover of an earlier incarnation
                    self.note(record.offset, ended)

    def note(self, offset: int, ended: PartialGroupEvent) -> None:
        """Process the event that ends the next transition, at this offset."""
        why = ended.why
        incarnation, seq = self._life
        first_seq = seq + 1 if ended.incarnation == incarnation else 1
        clock_ms = None if why.uptime_ms is None else why.decided_ms - why.uptime_ms
        run = self._runs[-1] if self._runs else None
        if run is None or not _goes_on(run, ended, clock_ms):
            self._runs.append(
                _Run(
                    epoch=ended.owner_epoch,
                    clock_ms=clock_ms,
                    uptime_ms=why.uptime_ms or 0,
                    first_offset=self._end_offset,
                    end_offset=offset + 1,
                    first_seq=first_seq,
                    last_seq=ended.seq,
                    first_ms=why.decided_ms,
                    last_ms=why.decided_ms,
                )
            )
            if len(self._runs) > RUNS_MAX:
                self._join_oldest()
        else:
            run.clock_ms, run.uptime_ms = clock_ms, why.uptime_ms or 0
            run.end_offset, run.last_seq, run.last_ms = offset + 1, ended.seq, why.decided_ms
        self._end_offset = offset + 1
        self._life = ended.incarnation, ended.seq

    def _join_oldest(self) -> None:
        first, second = self._runs[:2]
        second.first_offset, second.first_seq, second.first_ms = first.first_offset, first.first_seq, first.first_ms
        del self._runs[0]

    def times(self) -> Times:
        """Return the corrections for everything read so far."""
        if len(self._runs) < 2:
            return AS_RECORDED
        runs = [msgspec.structs.replace(run) for run in self._runs]
        for _, life in groupby(runs, key=lambda run: run.epoch):
            _correct_jumps(list(life))
        later: _Run | None = None
        for run in reversed(runs):
            over_ms = 0 if later is None else run.last_ms - run.ahead_ms - (later.first_ms - later.ahead_ms)
            if over_ms > JUMP_MS:
                run.ahead_ms, run.is_known = run.ahead_ms + over_ms, False
            later = run
        return Times(
            tuple(
                WrongTimes(
                    epoch=run.epoch,
                    first_offset=run.first_offset,
                    end_offset=run.end_offset,
                    first_seq=run.first_seq,
                    last_seq=run.last_seq,
                    ahead_ms=run.ahead_ms,
                    is_known=run.is_known,
                )
                for run in runs
                if run.ahead_ms
            )
        )


def _goes_on(run: _Run, ended: PartialGroupEvent, clock_ms: int | None) -> bool:
    """Return whether a transition continues the run: it has the same owner, whose clock has not jumped."""
    if run.epoch != ended.owner_epoch or (run.clock_ms is None) != (clock_ms is None):
        return False
    if run.clock_ms is None or clock_ms is None or ended.why.uptime_ms is None:
        return ended.why.decided_ms >= run.last_ms - JUMP_MS
    return not has_jumped(run.clock_ms, clock_ms, ended.why.uptime_ms - run.uptime_ms)


def _correct_jumps(life: list[_Run]) -> None:
    """Correct the runs between a jump and the jump back: the clock was wrong in between."""
    for place, run in enumerate(life):
        if run.clock_ms is None or run.ahead_ms:
            continue
        back = next(
            (
                number
                for number in range(len(life) - 1, place, -1)
                if (clock_ms := life[number].clock_ms) is not None
                and not has_jumped(run.clock_ms, clock_ms, life[number].uptime_ms - run.uptime_ms)
            ),
            place,
        )
        for wrong in life[place + 1 : back]:
            if wrong.clock_ms is not None and has_jumped(run.clock_ms, wrong.clock_ms, wrong.uptime_ms - run.uptime_ms):
                wrong.ahead_ms = wrong.clock_ms - run.clock_ms
