"""Whole histories, and the results of the folds over one: the product streams items, and has no history as a value."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from muster.events.ids import GroupId
from muster.events.log.base import EventLog
from muster.replay.history.items import Happened, Item, PassedOver, Prelude, Told, with_gaps
from muster.replay.history.transitions import Transitions
from muster.replay.history.window import At
from muster.replay.incidents import telling
from muster.replay.incidents.incident import Incident
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import from_the_beginning, items, read_record
from muster.replay.rebalances.rebalance import Rebalance
from muster.replay.rebalances.timeline import Timeline
from muster.replay.rerun.rerun import Rerunner
from muster.replay.results.state import StateAt, StateFold
from muster.replay.results.story import Line, StoryLines
from muster.replay.whatif.addresses import SharedAddresses
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.answer import Counted
from muster.replay.whatif.verdict import WhatIf
from muster.replay.whatif.whatif import WhatIfFold


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one group in a log. `log` is the log's location."""

    group_id: GroupId
    log: str
    items: tuple[Item, ...]

    @property
    def events(self) -> Iterator[Happened]:
        """The group's own events."""
        return (item for item in self.items if isinstance(item, Happened))


async def read_histories(log: EventLog, *, group: GroupId | None = None, **given: Any) -> dict[GroupId, History]:
    """Return the group's history as the commands read it, or that of each group wherever it is, if any.

    `given`: arguments for the reading.
    """
    reading = Reading(log=log, **given)
    if group is None:
        reported = {each: tuple(with_gaps(reads)) for each, reads in (await _reads(reading)).items()}
    else:
        reported = {group: tuple([item async for item in items(reading, from_the_beginning(group))])}
    return {each: History(group_id=each, log=log.location, items=whole) for each, whole in reported.items() if whole}


async def _reads(reading: Reading) -> dict[GroupId, list[Told]]:
    reads: dict[GroupId, list[Told]] = {}
    for partition in range(reading.log.partitions):
        prelude, here = Prelude(), set[GroupId]()
        async for chunk in reading.chunks([partition]):
            for group_id, read in filter(None, map(read_record, chunk)):
                if group_id is None:
                    prelude.note(read)
                elif group_id not in here:
                    here.add(group_id)
                    reads[group_id] = [*prelude.reads]
                if not isinstance(read, PassedOver):
                    for each in here if group_id is None else (group_id,):
                        reads[each].append(read)
    return reads


def incidents(history: History) -> list[Incident]:
    """Return all incidents, in the order in which they began."""
    return list(telling.told(history.group_id, history.items))


def rebalances(group_id: GroupId, items: Iterable[Item]) -> list[Rebalance]:
    """Return all rebalances, in order; the last one may be running."""
    timeline = Timeline()
    reported = [timeline.feed(step) for step in Transitions(group_id).steps(items)]
    return [each for each in (*reported, timeline.running()) if each is not None]


def lines(history: History) -> list[Line]:
    """Return a line for each item."""
    return list(map(StoryLines().feed, history.items))


def state_at(history: History, at: At) -> StateAt | None:
    """Return the group at this time; None if the log has no event of it until then, or not (yet) this seq."""
    fold = StateFold(history.group_id, history.log, at)
    for item in history.items:
        if not fold.feed(item):
            break
    return fold.result()


def rerun(history: History) -> Rerunner:
    """Derive and decide every transition again."""
    again = Rerunner()
    for item in history.items:
        again.feed(item)
    again.end()
    return again


def what_if(history: History, alterations: Alterations) -> WhatIf:
    """Return the verdict on each recorded rebalance, and the additional rebalances."""
    shared = SharedAddresses()
    for item in history.items:
        shared.feed(item)
    shared.end()
    fold, counted = WhatIfFold(history.group_id, alterations, shared=shared), Counted()
    for item in history.items:
        for verdict in fold.feed(item):
            counted.take(verdict)
    for verdict in fold.end():
        counted.take(verdict)
    return counted.result(history.group_id, history.log, alterations, fold.notes)
