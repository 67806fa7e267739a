"""The phases of each partition's takeover, from the events that its owners wrote.

    fault ─► handing over ─► detection ─► claim ─► reading ─► answering
             CoordinatorStopped           CoordinatorElected  CoordinatorReady  the first answer to a member

A process that does not stop cleanly writes no CoordinatorStopped, so there is no handing over. `CoordinatorReady`
records how long the takeover took; its beginning is the end of the detection. The claim ends with the fence record
(CoordinatorElected), and the reading with CoordinatorReady.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from muster.events.events import CoordinatorElected, CoordinatorReady, CoordinatorStopped, PartitionEvent


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """A takeover of one partition, with its phases in ms, in order. `since_ms`: the time of the fault that it followed.

    None: there was no such phase (`handing_over_ms`), no request of the drill (`answering_ms`), or no known
    `former_owner`.
    """

    partition: int
    epoch: int
    former_owner: str | None
    owner: str
    since_ms: int
    handing_over_ms: int | None
    detection_ms: int
    claim_ms: int
    reading_ms: int
    answering_ms: int | None
    events_read: int
    groups: int

    @property
    def ready_at_ms(self) -> int:
        """The time at which the new owner had read the log."""
        return self.since_ms + (self.handing_over_ms or 0) + self.detection_ms + self.claim_ms + self.reading_ms

    @property
    def total_ms(self) -> int:
        return self.ready_at_ms - self.since_ms + (self.answering_ms or 0)


Answers = Mapping[int, Sequence[int]]
"""For each partition, the times at which requests of its groups succeeded, in order (wall clock ms)."""


def takeovers(events: Iterable[PartitionEvent], faults: Sequence[int], answers: Answers) -> tuple[Takeover, ...]:
    """Return the takeovers since the first fault. `events`: in log order; `faults`: in order, wall clock ms."""
    of_partition: dict[int, list[PartitionEvent]] = {}
    for event in events:
        of_partition.setdefault(event.partition, []).append(event)
    found: list[Takeover] = []
    for partition, its in sorted(of_partition.items()):
        found += _of_one(its, faults, answers.get(partition, ()))
    return tuple(sorted(found, key=lambda each: (each.since_ms, each.partition)))


def _of_one(events: Sequence[PartitionEvent], faults: Sequence[int], answered: Sequence[int]) -> Iterable[Takeover]:
    elected: CoordinatorElected | None = None
    stopped: CoordinatorStopped | None = None
    for event in events:
        if isinstance(event, CoordinatorElected):
            elected = event
        elif isinstance(event, CoordinatorStopped):
            stopped = event
        elif isinstance(event, CoordinatorReady):
            if elected is not None and elected.owner_epoch == event.owner_epoch:
                takeover = _takeover(elected, event, stopped, faults, answered)
                if takeover is not None:
                    yield takeover
            stopped = None


def _takeover(
    elected: CoordinatorElected,
    ready: CoordinatorReady,
    stopped: CoordinatorStopped | None,
    faults: Sequence[int],
    answered: Sequence[int],
) -> Takeover | None:
    since_ms = max((each for each in faults if each <= ready.ready_ms), default=None)
    if since_ms is None:
        return None  # it was before the faults
    # The times come from different processes, and a takeover may have begun just before the fault was noted.
    begun_ms = max(since_ms, ready.ready_ms - ready.took_ms)
    let_go_ms = None if stopped is None or stopped.stopped_ms < since_ms else min(stopped.stopped_ms, begun_ms)
    elected_ms = min(max(begun_ms, elected.elected_ms), ready.ready_ms)
    first_ms = next((each for each in answered if each >= ready.ready_ms), None)
    return Takeover(
        partition=ready.partition,
        epoch=ready.owner_epoch,
        former_owner=ready.owner_before,
        owner=ready.owner,
        since_ms=since_ms,
        handing_over_ms=None if let_go_ms is None else let_go_ms - since_ms,
        detection_ms=begun_ms - (since_ms if let_go_ms is None else let_go_ms),
        claim_ms=elected_ms - begun_ms,
        reading_ms=ready.ready_ms - elected_ms,
        answering_ms=None if first_ms is None else first_ms - ready.ready_ms,
        events_read=ready.events_read,
        groups=ready.groups,
    )
