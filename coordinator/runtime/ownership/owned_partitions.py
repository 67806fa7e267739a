"""The partitions that this process owns: assigned, taken over, lost, given up, each by itself.

What belongs here: when a partition is taken over, and what its loss means. What it must not know: requests.

    assigned -> being taken over -> owned -> released, in good order     (`release`)
                      ^              |
                      +--------------+------ log unavailable: closed at once, taken over again
                                     +------ deposed: closed at once; `deposed`, or the end of the process
                                     +------ anything else: the end of the process

A partition with an owner's record that cannot be read stays assigned, and is served by nobody.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.not_served import way_out
from muster.coordinator.observability.metrics import PARTITIONS_LOST
from muster.coordinator.offsets.reading import FollowedOffsets
from muster.coordinator.runtime.ownership.hot_standbys import HotStandbys, ReadBefore
from muster.coordinator.runtime.ownership.lease_keeper import LeaseKeeper
from muster.coordinator.runtime.ownership.log_outage import LogOutage
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.ownership_end import EndOf
from muster.coordinator.runtime.ownership.ready_log import ReadyLog
from muster.coordinator.runtime.ownership.snapshots import Snapshots
from muster.coordinator.runtime.ownership.takeover import LastSignOf, take_over
from muster.coordinator.runtime.partition.outbox import kind_of
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.tasks import on_failure
from muster.events.log.base import Deposed, FollowedLog, LogDenied, LogError, LogUnavailable
from muster.events.records import BrokenRecord

log = structlog.get_logger(__name__)

LOST_REPORT_DELAY_S: Final = 1.0
"""The delay of the log line about lost partitions, which names all that are lost within it."""

STOP_TIMEOUT_S: Final = 10.0
"""The timeout for stopping partitions; cutting it short is as safe as a crash."""


class OwnedPartitions:
    """See the module. `give_up` is called with the error when the process cannot go on.

    `deposed` is called with a partition that another process has claimed, where processes share the log: it is not
    assigned here any more. Without it nobody else may claim any, and `give_up` is called.
    """

    def __init__(
        self,
        owner: Owner,
        *,
        last_sign_of: LastSignOf,
        give_up: Callable[[Exception], None],
        deposed: Callable[[int], None] | None,
        keeper: LeaseKeeper | None,
        end_of: EndOf,
        standby_log: FollowedLog | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        """`standby_log`: the owner's log, if this process is to follow the partitions that are not assigned to it."""
        self._end_of = end_of
        self._snapshots = snapshots
        self._owner = owner
        self._last_sign_of = last_sign_of
        self._give_up = give_up
        self._deposed = deposed
        self._keeper = keeper
        self.assigned: set[int] = set()
        """The partitions that this process is to serve."""
        self.owned: dict[int, OwnedPartition] = {}
        """The assigned partitions that it serves."""
        self.read: set[int] = set()
        self.unreadable: dict[int, str] = {}
        """The reason for each partition that is not served, since an owner's record in it cannot be read."""
        self.outage = LogOutage(owner.event_log.location, owner.clock.monotonic_ms)
        self._taking: dict[int, asyncio.Task[None]] = {}
        self._closing: dict[int, asyncio.Task[None]] = {}
        """The ends of partitions that were lost or released; they are claimed again only after that."""
        self._given_up: list[OwnedPartition] = []
        """Partitions that were lost for good: their tasks end with the process."""
        self._finding_successor: asyncio.Task[None] | None = None
        """Finds the process that has deposed this one, for the log line and for the error."""
        self._lost_now: dict[int, str] = {}
        """The partitions that were lost, and why, until the next log line."""
        self._ready = ReadyLog()
        self.standbys: HotStandbys | None = None
        if standby_log is not None:
            self.standbys = HotStandbys(
                owner,
                standby_log,
                is_ours=lambda number: number in self.assigned or number in self._closing,
                is_taking_over=lambda: bool(self._taking),
                load=None if snapshots is None else snapshots.load,
            )

    async def assign(self, numbers: Iterable[int]) -> None:
        """Take partitions over, side by side; those whose log is unavailable are retried in the background.

        Returns after the first attempt for each. Raises Deposed, LogMismatch, LogDenied and EventsError.
        """
        given = sorted(set(numbers) - self.assigned)
        self.assigned.update(given)
        for number in given:
            self._take(number, self._take_over_first(number))
        taking = [self._taking[number] for number in given]
        try:
            if taking:
                await asyncio.wait(taking, return_when=asyncio.FIRST_EXCEPTION)
            for each in taking:
                if each.done() and not each.cancelled():
                    each.result()
        except BaseException:
            await _cancelled(taking)
            raise
        finally:
            self._ready.write()  # those that are tried again have a line later

    async def release(self, numbers: Iterable[int]) -> None:
        """Give partitions up in good order, as they are assigned to other processes; the others are served on.

        Their parked requests are answered NOT_COORDINATOR. Returns when their CoordinatorStopped is in the log.
        """
        released = self.assigned & set(numbers)
        self.assigned -= released
        await _cancelled([self._taking[number] for number in released if number in self._taking])
        for number in released:
            self.outage.available_again(number)
            self.unreadable.pop(number, None)
        await self._stop(released, ())
        for number in released:
            await self._give_up_offsets(number)
            self._is_not_ours(number)

    async def release_all(self) -> None:
        """Give all partitions up in good order, as the process stops; those that were lost for good end here."""
        self.assigned.clear()
        await _cancelled(self._taking.values())
        await self._stop(set(self.owned), self._given_up)
        if self._finding_successor is not None:
            await asyncio.wait([self._finding_successor])  # it has a timeout of its own

    async def all_owned(self) -> None:
        """Wait until every partition that is retried is owned, or given up."""
        while self._taking:
            await asyncio.wait(self._taking.values())

    def lost(self, number: int, error: Exception) -> None:
        """Close a partition that is lost to this process; by the error, retake it, leave it, or end the process."""
        ownership = self._given_up_now(number)
        if ownership is None:
            return  # it was closed already
        PARTITIONS_LOST.labels(kind_of(error).value).inc()
        ownership.partition.close(ErrorCode.not_coordinator)
        if isinstance(error, LogUnavailable):
            self._lost_for_now(number, ownership, error)
        elif isinstance(error, Deposed) and self._deposed is not None:
            self._close(number, self._end_deposed(number, ownership, error))
            self._overtaken(number)
        else:
            self._lost_for_good(number, ownership, error)

    # ---- taking over ---------------------------------------------------------------------------------

    def _take(self, number: int, attempts: Coroutine[Any, Any, None]) -> None:
        taking = self._taking[number] = asyncio.create_task(attempts, name=f"take-{number}")
        taking.add_done_callback(partial(self._took, number))

    def _took(self, number: int, taking: asyncio.Task[None]) -> None:
        if self._taking.get(number) is taking:
            del self._taking[number]
            if not self._taking:
                self._ready.write()

    async def _take_over_first(self, number: int) -> None:
        began_ms = self._owner.clock.monotonic_ms()
        try:
            await self._take_over(number)
        except Deposed:
            if self._deposed is None:
                raise
            self._overtaken(number)
        except LogDenied:
            raise
        except LogUnavailable as error:
            self.outage.failed(number, error, began_ms=began_ms)
            self._take(number, self._retake(number, was_served=False))

    async def _retake(self, number: int, *, was_served: bool) -> None:
        try:
            await self.outage.retry_until_available(partial(self._take_over, number), number, was_served=was_served)
        except Exception as error:  # noqa: BLE001 -- a bug of ours, too: nothing awaits this task
            if isinstance(error, Deposed) and self._deposed is not None:
                self._overtaken(number)
            else:
                self._give_up(error)

    async def _take_over(self, number: int) -> None:
        if closing := self._closing.get(number):
            await asyncio.wait([closing])
        read_before = ReadBefore() if self.standbys is None else await self.standbys.take(number)
        if read_before.events is None and self._snapshots is not None:
            read_before.events = await self._snapshots.load(number)
        try:
            ownership = self.owned[number] = await take_over(
                self._owner,
                number,
                last_sign_of=self._last_sign_of,
                end_of=self._end_of,
                lost=lambda error: self.lost(number, error),
                ready_log=self._ready,
                read_before=read_before,
            )
        except BrokenRecord as broken:
            self._cannot_read(number, broken)
        else:
            self.read.add(number)
            if self._keeper is not None and ownership.kept is not None:
                self._keeper.add(number, ownership.kept)
        finally:
            if number not in self.owned:
                await self._give_up_offsets(number)
                if self.standbys is not None:
                    self.standbys.put_back(number, read_before)

    def _cannot_read(self, number: int, broken: BrokenRecord) -> None:
        location = self._owner.event_log.location
        helps = way_out(broken, self._owner.log_url)
        self.unreadable[number] = f"partition {number} of {location} is not served: {broken}; what helps: {helps}"
        log.error(
            "partition not served: a record in the event log cannot be read",
            log=location,
            partition=number,
            offset=broken.offset,
            reason=broken.reason,
            way_out=helps,
        )

    def _overtaken(self, number: int) -> None:
        """Serve the partition no more, as another process has claimed it."""
        assert self._deposed is not None
        self.assigned.discard(number)
        self._is_not_ours(number)
        self.outage.available_again(number)
        self._deposed(number)

    def _is_not_ours(self, number: int) -> None:
        self.read.discard(number)
        self._owner.on_given_up(number)

    # ---- losing, and giving up -----------------------------------------------------------------------

    def _given_up_now(self, number: int) -> OwnedPartition | None:
        if self._keeper is not None:
            self._keeper.remove(number)
        return self.owned.pop(number, None)

    def _close(self, number: int, ending: Coroutine[Any, Any, None]) -> None:
        closing = self._closing[number] = asyncio.create_task(ending, name=f"close-{number}")
        closing.add_done_callback(on_failure(self._give_up))
        closing.add_done_callback(partial(self._closed, number))

    def _closed(self, number: int, closing: asyncio.Task[None]) -> None:
        if self._closing.get(number) is closing:
            del self._closing[number]

    def _lost_for_now(self, number: int, ownership: OwnedPartition, error: LogUnavailable) -> None:
        _, waited_s = ownership.waits or (None, 0.0)
        began_ms = self._owner.clock.monotonic_ms() - int(waited_s * 1000)
        self.outage.failed(number, error, began_ms=began_ms)
        if not self._lost_now:
            asyncio.get_running_loop().call_later(LOST_REPORT_DELAY_S, self._log_lost)
        self._lost_now[number] = str(error)
        self._close(number, self._abandon(number, ownership))
        self._take(number, self._retake(number, was_served=True))

    def _log_lost(self) -> None:
        lost, self._lost_now = self._lost_now, {}
        log.warning("partitions lost, taking them over again", partitions=sorted(lost), error=next(iter(lost.values())))

    def _lost_for_good(self, number: int, ownership: OwnedPartition, error: Exception) -> None:
        self._given_up.append(ownership)
        if not isinstance(error, Deposed):
            log.error("partition lost", partition=number, error=str(error))
            self._give_up(error)
        elif self._finding_successor is None:  # the others are lost to the same one
            self._finding_successor = asyncio.create_task(
                ownership.report_successor(error, shares=False), name="name-successor"
            )
            self._finding_successor.add_done_callback(on_failure(self._give_up))
            self._give_up(error)

    async def _end_deposed(self, number: int, ownership: OwnedPartition, error: Deposed) -> None:
        await self._abandon(number, ownership)
        await ownership.report_successor(error, shares=True)

    async def _abandon(self, number: int, ownership: OwnedPartition) -> None:
        await ownership.abandon()
        await self._give_up_offsets(number)

    async def _give_up_offsets(self, number: int) -> None:
        """Have the store forget the offsets of a partition, which this process does not own."""
        offsets = self._owner.offsets
        if isinstance(offsets, FollowedOffsets):
            await offsets.give_up(number)

    async def _stop(self, numbers: set[int], lost: Collection[OwnedPartition]) -> None:
        """Stop those that are owned, and end what was lost, all within one timeout."""
        owned = {number: ownership for number in sorted(numbers) if (ownership := self._given_up_now(number))}
        for ownership in owned.values():
            ownership.partition.close(ErrorCode.not_coordinator)
        ending = [asyncio.create_task(each.abandon(), name="abandon") for each in lost]
        ending += self._closing.values() if not self.assigned else ()
        stopping = [asyncio.create_task(_stop(*item), name=f"stop-{item[0]}") for item in owned.items()]
        if not ending and not stopping:
            return
        _, late = await asyncio.wait([*ending, *stopping], timeout=STOP_TIMEOUT_S)
        _log_not_stopped(dict(filter(None, (each.result() for each in stopping if each not in late))))
        for each in late:
            each.cancel()
        if cut_short := late.intersection(stopping):
            log.warning("stopped before CoordinatorStopped was written", partitions=len(cut_short))


async def _cancelled(tasks: Iterable["asyncio.Task[None]"]) -> None:
    """Cancel tasks, and wait for their ends."""
    ending = list(tasks)
    for each in ending:
        each.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def _stop(number: int, ownership: OwnedPartition) -> tuple[int, str] | None:
    """Stop the partition; returns its number and the error if could not write CoordinatorStopped."""
    try:
        await ownership.stop()
    except Deposed:
        return None  # another owner writes there now
    except LogError as error:
        return number, str(error)
    return None


def _log_not_stopped(failed: Mapping[int, str]) -> None:
    if failed:
        error = next(iter(failed.values()))
        log.warning("could not write CoordinatorStopped", partitions=sorted(failed), error=error)
