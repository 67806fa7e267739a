"""The items of a group's history, in the order of the log: events, and markers for missing parts.

A history has the group's events, the events of its partition (which process coordinated it, and since when), and
markers for missing parts: a *gap* in `seq` (compacted away, or before the log begins) and a *broken* record. The parts
before and after a marker are still used.

`logs/` reads them from a log, `rebalances/` interprets them.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum, unique
from itertools import chain
from typing import Final

import msgspec

from muster.events.events import (
    AnyEvent,
    AnyMemberEvent,
    AnyPartitionEvent,
    AnyRegistrationEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    GroupConfigured,
)

UNREADABLE_NAMED: Final = 20
"""How many consecutive unreadable records a history lists one by one; the last of them counts those that follow it."""

Part = AnyMemberEvent | AnyRegistrationEvent | GroupConfigured
"""An event within a transition, before the event on the group's own key that ends it."""


class LogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A record's position in the log. `timestamp_ms` is the wall clock time of its append."""

    partition: int
    offset: int
    timestamp_ms: int


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the group."""

    position: LogPosition
    event: AnyEvent

    @property
    def at_ms(self) -> int:
        """Wall clock ms of the decision that wrote the event."""
        return self.event.why.decided_ms


class Coordinated(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the group's partition."""

    position: LogPosition
    event: AnyPartitionEvent

    @property
    def at_ms(self) -> int:
        """Wall clock ms, from the event itself."""
        event = self.event
        if isinstance(event, CoordinatorElected):
            return event.elected_ms
        if isinstance(event, CoordinatorReady):
            return event.ready_ms
        if isinstance(event, CoordinatorPaused):
            return event.paused_ms
        return event.stopped_ms


@unique
class Unreadable(StrEnum):
    """Why a record cannot be read."""

    BROKEN = "broken"
    UNKNOWN_TYPE = "unknown-type"
    UNDECODABLE_KEY = "undecodable-key"
    COORDINATOR = "coordinator"
    """An event of the partition."""

    @property
    def quarantines(self) -> bool:
        """True if the record certainly belongs to this group, so that a coordinator would refuse to serve the group."""
        return self in (Unreadable.BROKEN, Unreadable.UNKNOWN_TYPE)


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """An unreadable record. If its key cannot be decoded, it may belong to any group of the partition.

    `key`: set if `muster log repair` can skip the record. `more`: how many consecutive unreadable records this value
    also covers, up to the one at `last`.
    """

    position: LogPosition
    kind: Unreadable
    reason: str
    key: bytes = b""
    more: int = 0
    last: LogPosition | None = None

    @property
    def end(self) -> LogPosition:
        """The position of the last record that it covers."""
        return self.last or self.position

    def joined(self, following: "Broken") -> "Broken":
        """Return one value that covers this and the following records."""
        return msgspec.structs.replace(self, more=self.more + 1 + following.more, last=following.end)


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A tombstone of `muster log repair`: the broken record with this key no longer stops the partition."""

    position: LogPosition
    key: bytes


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Events that are not in the log, from `first_seq` to `last_seq`; `incarnation` is that of the event after it."""

    position: LogPosition
    incarnation: int
    first_seq: int
    last_seq: int

    @property
    def missing(self) -> int:
        return self.last_seq - self.first_seq + 1


class MissingParts(msgspec.Struct, frozen=True, kw_only=True):
    """The latest missing parts since a group's last rebalance.

    `is_assigned_since`: whether a later event has the complete assignment again.
    """

    parts: tuple[Gap | Broken, ...] = ()
    is_assigned_since: bool = True


NOTHING_MISSING = MissingParts()

Told = Happened | Coordinated | Broken
"""A part of a group's history."""

Read = Told | PassedOver
"""A part that a log yields."""

Item = Told | Gap
"""A part of a history with its gaps marked."""


class SeqGaps:
    """Finds gaps in `seq` in one group's records.

    A broken record explains one missing number, so it is not reported twice, and a new incarnation begins at 1.
    `incarnation` and `seq` are those of the last event before the first record.
    """

    def __init__(self, *, incarnation: int = -1, seq: int = 0) -> None:
        self._incarnation = incarnation
        self._seq = seq
        self._unreadable = 0

    def follows(self, event: AnyEvent) -> bool:
        """Accept an event if its seq follows the last one's; return False, and do not accept it, if not."""
        if event.seq != self._seq + 1 or event.incarnation != self._incarnation or self._unreadable:
            return False
        self._seq = event.seq
        return True

    def before(self, read: Told) -> Gap | None:
        """Return the gap that ends with this record, None if there is none."""
        if isinstance(read, Broken):
            self._unreadable += read.kind.quarantines
        if not isinstance(read, Happened):
            return None
        event = read.event
        if event.incarnation != self._incarnation:
            self._incarnation, self._seq = event.incarnation, 0
        first_seq, last_seq = self._seq + 1, event.seq - 1
        explained = last_seq - first_seq + 1 <= self._unreadable
        self._seq, self._unreadable = event.seq, 0
        if explained:
            return None
        return Gap(position=read.position, incarnation=event.incarnation, first_seq=first_seq, last_seq=last_seq)


class Prelude:
    """The partition's records before a group's first event that concern the group: its owner's, and unreadable ones.

    The owner's records are its election, which has the settings, and its last event.
    """

    def __init__(self) -> None:
        self._election: Coordinated | None = None
        self._coordinator: Coordinated | None = None
        self._broken: dict[tuple[int, bytes], list[Broken]] = {}
        self._reads: tuple[Told, ...] | None = None

    def note(self, read: Read) -> None:
        """Note a record that concerns the whole partition."""
        self._reads = None
        if isinstance(read, Coordinated):
            self._coordinator = read
            if isinstance(read.event, CoordinatorElected):
                self._election = read
        elif isinstance(read, Broken) and read.kind is Unreadable.UNDECODABLE_KEY:
            self._broken.setdefault(place_of(read), []).append(read)
        elif isinstance(read, PassedOver):
            self._broken.pop(place_of(read), None)

    @property
    def broken(self) -> list[Broken]:
        """The records whose group is not known, in the order of the log."""
        return sorted(chain.from_iterable(self._broken.values()), key=lambda each: each.position.offset)

    @property
    def owner(self) -> tuple[Coordinated, ...]:
        """The owner's election and its last event."""
        election = () if self._election is self._coordinator else (self._election,)
        return tuple(each for each in (*election, self._coordinator) if each is not None)

    @property
    def reads(self) -> tuple[Told, ...]:
        """All records of the prelude: the broken ones in log order, then the owner's."""
        if self._reads is None:
            self._reads = (*self.broken, *self.owner)
        return self._reads


def place_of(read: Broken | PassedOver) -> tuple[int, bytes]:
    """Return the partition and the key: broken records of two partitions may have the same key."""
    return read.position.partition, read.key


def still_broken(broken: Iterable[Broken], passed_over: PassedOver) -> list[Broken]:
    """Drop the broken record that was repaired."""
    return [each for each in broken if place_of(each) != place_of(passed_over)]


def with_gaps(reads: Iterable[Told]) -> Iterator[Item]:
    """Yield the records of one group, with a marker wherever `seq` jumps."""
    gaps = SeqGaps()
    for read in reads:
        gap = gaps.before(read)
        if gap is not None:
            yield gap
        yield read
