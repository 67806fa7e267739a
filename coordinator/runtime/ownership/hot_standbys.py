"""The hot standbys of both topics: of events, and of committed offsets if they have a topic of their own.

A takeover needs both, so a partition's lag is the larger of the two topics' lags. `followed_topic.py` follows one
topic.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import msgspec

from muster.coordinator.observability.standby_metrics import StandbyFigures
from muster.coordinator.observability.status import StandbyStatus
from muster.coordinator.offsets.offsets_reading import FollowedOffsets, OffsetsReading
from muster.coordinator.partition_reading import Standby
from muster.coordinator.runtime.ownership.followed_topic import Standbys
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.loading import Loading
from muster.events.log.base import FollowedLog


class ReadBefore(msgspec.Struct, kw_only=True, eq=False):
    """The part of a partition that was read before its takeover; None: nothing usable."""

    events: Standby[Loading] | None = None
    offsets: Standby[OffsetsReading] | None = None

    def spend(self) -> None:
        """Mark it as used: from now on it belongs to the partition, which changes it."""
        for each in (self.events, self.offsets):
            if each is not None:
                each.is_spent = True


class HotStandbys:
    """The standbys of both topics. The parameters are those of Standbys."""

    def __init__(
        self,
        owner: Owner,
        event_log: FollowedLog,
        *,
        is_ours: Callable[[int], bool],
        is_taking_over: Callable[[], bool],
        load: Callable[[int], Awaitable[Standby[Loading] | None]] | None = None,
    ) -> None:
        self._owner = owner
        self._is_ours = is_ours
        self._is_taking_over = is_taking_over
        self.events: Standbys[Loading] = Standbys(
            owner,
            event_log,
            new_reading=lambda number: Loading(owner.foreign_records.reading(number)),
            is_ours=is_ours,
            is_taking_over=is_taking_over,
            load=load,
        )
        self.offsets: Standbys[OffsetsReading] | None = None
        """Standbys of the offsets topic, once it is open."""

    def following(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield coroutines that follow each topic and keep its claims prepared, forever. The logs must be open."""
        yield from (self.events.follow(), self.events.prepare_claims())
        offsets = self._owner.offsets
        own_log: object = offsets.own_log
        if isinstance(offsets, FollowedOffsets) and isinstance(own_log, FollowedLog):
            self.offsets = Standbys(
                self._owner,
                own_log,
                new_reading=offsets.new_reading,
                is_ours=self._is_ours,
                is_taking_over=self._is_taking_over,
            )
            yield from (self.offsets.follow(), self.offsets.prepare_claims())

    @property
    def figures(self) -> StandbyFigures:
        """See StandbyFigures. Thread-safe."""
        followed = self.status()
        return StandbyFigures(
            followed=len(followed),
            ready=sum(each.lag_ms is not None for each in followed),
            behind_max=max((each.lag_records or 0 for each in followed), default=0),
            oldest_ms=max((each.lag_ms or 0 for each in followed), default=0),
        )

    def status(self) -> list[StandbyStatus]:
        """Lag of each partition, in the topic that is further behind. Thread-safe."""
        of_events = self.events.status()
        if self.offsets is None:
            return of_events
        of_offsets = {each.partition: each for each in self.offsets.status()}
        return [_further_behind(each, of_offsets.get(each.partition)) for each in of_events]

    async def take(self, number: int) -> ReadBefore:
        """Hand what was read of a partition to its takeover."""
        return ReadBefore(
            events=await self.events.take(number),
            offsets=None if self.offsets is None else await self.offsets.take(number),
        )

    def put_back(self, number: int, read: ReadBefore) -> None:
        """Take back what was read after a failed takeover, for the next attempt or to continue following."""
        if read.events is not None:
            self.events.put_back(number, read.events)
        if read.offsets is not None and self.offsets is not None:
            self.offsets.put_back(number, read.offsets)


def _further_behind(events: StandbyStatus, offsets: StandbyStatus | None) -> StandbyStatus:
    """The larger lag of both; None (unknown) is larger than any."""
    return StandbyStatus(
        partition=events.partition,
        lag_records=None if offsets is None else _larger(events.lag_records, offsets.lag_records),
        lag_ms=None if offsets is None else _larger(events.lag_ms, offsets.lag_ms),
    )


def _larger(of_events: int | None, of_offsets: int | None) -> int | None:
    return None if of_events is None or of_offsets is None else max(of_events, of_offsets)
