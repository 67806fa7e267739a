"""The partitions of this process. Each is taken over, served, lost and released independently.

Decides when a partition changes its state (`partition_state.py`), and acts on it. Takeovers themselves are in
`takeover/`. What happens on an error:

    the log is not available       closed at once, and taken over again when it is
    deposed                        closed at once, and `deposed` is called, or the process exits
    any other error                the process exits
    an owner's record unreadable   the partition stays assigned, but no process serves it
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.observability.metrics import PARTITIONS_LOST
from muster.coordinator.runtime.ownership.hot_standbys import HotStandbys
from muster.coordinator.runtime.ownership.lease_keeper import LeaseKeeper
from muster.coordinator.runtime.ownership.log_outage import LogOutage
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.partition_lines import LostLog, ReadyLog, StopLog, log_unreadable
from muster.coordinator.runtime.ownership.partition_state import (
    NOT_ASSIGNED,
    Assigned,
    Closing,
    Failed,
    NotAssigned,
    NotReadable,
    PartitionState,
    Serving,
    TakingOver,
)
from muster.coordinator.runtime.ownership.snapshots import Snapshots
from muster.coordinator.runtime.ownership.takeover.ownership_end import EndOf, LastSignOf
from muster.coordinator.runtime.ownership.takeover.partition_takeover import Takeovers
from muster.coordinator.runtime.partition.outbox import kind_of
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.tasks import on_failure
from muster.events.log.base import Deposed, FollowedLog, LogDenied, LogError, LogUnavailable
from muster.events.records import BrokenRecord

log = structlog.get_logger(__name__)

STOP_TIMEOUT_S: Final = 10.0
"""Timeout for stopping partitions; exceeding it is as safe as a crash."""


class OwnedPartitions:
    """See the module. `give_up` is called with the error when the process cannot continue.

    `deposed` is called with a partition that another process has claimed, if processes share the log: the partition is
    no longer assigned here. Without it no other process may claim any, and `give_up` is called.
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
        """`standby_log`: the event log, if this process follows the partitions of other owners; else None."""
        self._owner = owner
        self._give_up = give_up
        self._deposed = deposed
        self._keeper = keeper
        self.states: dict[int, PartitionState] = {}
        """The state of each partition, except those that are NotAssigned."""
        self.outage = LogOutage(owner.event_log.location, owner.clock.monotonic_ms)
        self._finding_successor: asyncio.Task[None] | None = None
        """Finds the process that has deposed this one, for the log line and for the error."""
        self._ready, self._lost = ReadyLog(), LostLog()
        self.standbys: HotStandbys | None = None
        if standby_log is not None:
            self.standbys = HotStandbys(
                owner,
                standby_log,
                is_ours=self.states.__contains__,
                is_taking_over=self._is_taking_over,
                load=None if snapshots is None else snapshots.load,
            )
        self._takeovers = Takeovers(
            owner,
            self._ready,
            last_sign_of=last_sign_of,
            end_of=end_of,
            standbys=self.standbys,
            snapshots=snapshots,
        )

    # ---- states --------------------------------------------------------------------------------------

    def serving(self, number: int) -> OwnedPartition | None:
        """The partition, if this process serves it."""
        state = self.states.get(number)
        return state.ownership if isinstance(state, Serving) else None

    @property
    def owned(self) -> dict[int, OwnedPartition]:
        """The partitions that this process serves. Thread-safe."""
        return {number: each.ownership for number, each in self.states.copy().items() if isinstance(each, Serving)}

    @property
    def unreadable(self) -> list[str]:
        """Human-readable reasons, one for each partition that no process can serve. Thread-safe."""
        return [state.reason for state in self.states.copy().values() if isinstance(state, NotReadable)]

    @property
    def is_all_served(self) -> bool:
        """Return whether all assigned partitions are served. Thread-safe."""
        return not any(isinstance(each, Assigned) and not isinstance(each, Serving) for each in [*self.states.values()])

    def _enter(self, number: int, state: PartitionState) -> None:
        before = self.states.get(number)
        if isinstance(state, NotAssigned):
            self.states.pop(number, None)
        else:
            self.states[number] = state
        if isinstance(before, TakingOver) and not self._is_taking_over():
            self._ready.write()

    def _is_taking_over(self) -> bool:
        return any(isinstance(state, TakingOver) for state in self.states.values())

    def _taking_over(self, number: int) -> TakingOver:
        """The state of a partition during its own attempt: any other state change cancels the attempt first."""
        state = self.states[number]
        assert isinstance(state, TakingOver)
        return state

    # ---- assigned, and released ----------------------------------------------------------------------

    async def assign(self, numbers: Iterable[int]) -> None:
        """Take over partitions concurrently; those whose log is unavailable are retried in the background.

        Returns after the first attempt for each. Raises Deposed, LogMismatch, LogDenied and EventsError.
        """
        attempts: dict[int, asyncio.Task[None]] = {}
        for number in sorted(set(numbers)):
            state = self.states.get(number, NOT_ASSIGNED)
            if not isinstance(state, Assigned):
                attempts[number] = _attempt(number, self._take_over_first(number))
                self._enter(number, state.assigned(attempts[number]))
        try:
            if attempts:
                await asyncio.wait(attempts.values(), return_when=asyncio.FIRST_EXCEPTION)
            for each in attempts.values():
                if each.done() and not each.cancelled():
                    each.result()
        except BaseException as error:
            await self._try_no_more(attempts, str(error) or "its assignment was cancelled")
            raise
        finally:
            self._ready.write()  # the retried ones are logged later

    async def _try_no_more(self, attempts: Mapping[int, asyncio.Task[None]], reason: str) -> None:
        for number, attempt in attempts.items():
            state = self.states.get(number)
            if isinstance(state, TakingOver) and state.attempt is attempt:
                attempt.cancel()
                self._enter(number, state.failed(reason))
        await asyncio.gather(*attempts.values(), return_exceptions=True)

    async def release(self, numbers: Iterable[int]) -> None:
        """Release partitions that are now assigned to other processes; the others are still served.

        Their parked requests are answered NOT_COORDINATOR. Returns when their CoordinatorStopped is in the log.
        """
        await self._release(numbers, self._hand_over)

    async def release_all(self) -> None:
        """Stop all partitions because the process stops, without the calls that follow a handover."""
        closing = [state.closing for state in self.states.values() if isinstance(state, Closing)]
        await self._release(self.states, self._stop)
        if closing:
            _, late = await asyncio.wait(closing, timeout=STOP_TIMEOUT_S)
            for each in late:
                each.cancel()
        if self._finding_successor is not None:
            await asyncio.wait([self._finding_successor])  # it has its own timeout

    async def _release(
        self, numbers: Iterable[int], end: Callable[[int, Assigned, StopLog], Coroutine[Any, Any, None]]
    ) -> None:
        lines, closing = StopLog(), list[asyncio.Task[None]]()
        for number in sorted(set(numbers)):
            state = self.states.get(number)
            if not isinstance(state, Assigned):
                continue
            closing.append(self._closing(number, end(number, state, lines)))
            self._enter(number, state.released(closing[-1]))
            if isinstance(state, TakingOver):
                state.attempt.cancel()
            elif isinstance(state, Serving):
                self._serve_no_more(number, state.ownership)
        if closing:
            await asyncio.wait(closing)
        lines.write()

    async def _hand_over(self, number: int, state: Assigned, lines: StopLog) -> None:
        await self._stop(number, state, lines)
        self.outage.available_again(number)
        await self._owner.give_up_offsets(number)
        self._owner.on_given_up(number)

    async def _stop(self, number: int, state: Assigned, lines: StopLog) -> None:
        """Stop whatever runs for a partition, within a timeout."""
        stopping = asyncio.create_task(_stopped(number, state, lines), name=f"stop-{number}")
        _, late = await asyncio.wait([stopping], timeout=STOP_TIMEOUT_S)
        if not late:
            stopping.result()
            return
        stopping.cancel()
        if isinstance(state, Serving):
            lines.cut_short += 1

    async def all_owned(self) -> None:
        """Wait until every partition that is being retried is owned or released."""
        while attempts := [state.attempt for state in self.states.values() if isinstance(state, TakingOver)]:
            await asyncio.wait(attempts)
            await asyncio.sleep(0)

    # ---- taking over ---------------------------------------------------------------------------------

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
            attempts = _attempt(number, self._retake(number))
            self._enter(number, self._taking_over(number).not_available(attempts))

    async def _retake(self, number: int) -> None:
        was_served = self._taking_over(number).is_read
        try:
            await self.outage.retry_until_available(partial(self._take_over, number), number, was_served=was_served)
        except Exception as error:  # noqa: BLE001 -- also bugs of ours, since nothing awaits this task
            if isinstance(error, Deposed) and self._deposed is not None:
                self._overtaken(number)
            else:
                self._enter(number, self._taking_over(number).failed(str(error)))
                self._give_up(error)

    async def _take_over(self, number: int) -> None:
        if closing := self._taking_over(number).closing:
            await asyncio.wait([closing])
        try:
            ownership = await self._takeovers.take_over(number, lambda error: self.lost(number, error))
        except BrokenRecord as broken:
            reason = log_unreadable(self._owner, number, broken)
            self._enter(number, self._taking_over(number).unreadable(reason))
        else:
            self._enter(number, self._taking_over(number).served(ownership))
            if self._keeper is not None and ownership.kept is not None:
                self._keeper.add(number, ownership.kept)

    def _overtaken(self, number: int) -> None:
        self._enter(number, self._taking_over(number).overtaken())
        self._is_anothers(number)

    def _is_anothers(self, number: int) -> None:
        """Report that another process has claimed a partition."""
        assert self._deposed is not None
        self._owner.on_given_up(number)
        self.outage.available_again(number)
        self._deposed(number)

    # ---- losing --------------------------------------------------------------------------------------

    def lost(self, number: int, error: Exception) -> None:
        """Close a partition that was lost. Depending on the error, take it over again, leave it, or end the process."""
        state = self.states.get(number)
        if not isinstance(state, Serving):
            return  # it was closed already
        ownership = state.ownership
        PARTITIONS_LOST.labels(kind_of(error).value).inc()
        if isinstance(error, LogUnavailable):
            self._note_outage(number, ownership, error)
            closing = self._closing(number, self._abandon(number, ownership))
            self._enter(number, state.lost_for_now(_attempt(number, self._retake(number)), closing))
            self._serve_no_more(number, ownership)
        elif isinstance(error, Deposed) and self._deposed is not None:
            self._enter(number, state.deposed(self._closing(number, self._end_deposed(number, ownership, error))))
            self._serve_no_more(number, ownership)
            self._is_anothers(number)
        else:
            self._enter(number, state.failed(str(error)))
            self._serve_no_more(number, ownership)
            self._end_process(number, ownership, error)

    def _serve_no_more(self, number: int, ownership: OwnedPartition) -> None:
        if self._keeper is not None:
            self._keeper.remove(number)
        ownership.partition.close(ErrorCode.not_coordinator)

    def _closing(self, number: int, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        closing = asyncio.create_task(ending, name=f"close-{number}")
        closing.add_done_callback(on_failure(self._give_up))
        closing.add_done_callback(partial(self._closed, number))
        return closing

    def _closed(self, number: int, closing: asyncio.Task[None]) -> None:
        state = self.states.get(number)
        if isinstance(state, Closing) and state.closing is closing:
            self._enter(number, state.closed())

    def _note_outage(self, number: int, ownership: OwnedPartition, error: LogUnavailable) -> None:
        _, waited_s = ownership.waits or (None, 0.0)
        began_ms = self._owner.clock.monotonic_ms() - int(waited_s * 1000)
        self.outage.failed(number, error, began_ms=began_ms)
        self._lost.note(number, error)

    def _end_process(self, number: int, ownership: OwnedPartition, error: Exception) -> None:
        if not isinstance(error, Deposed):
            log.error("partition lost", partition=number, error=str(error))
            self._give_up(error)
        elif self._finding_successor is None:  # the others are lost to the same process
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
        await self._owner.give_up_offsets(number)


def _attempt(number: int, steps: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(steps, name=f"take-{number}")


async def _stopped(number: int, state: Assigned, lines: StopLog) -> None:
    """Stop whatever runs for a partition: if it is served, write CoordinatorStopped. Attempts were cancelled before."""
    match state:
        case Serving(ownership=ownership):
            try:
                await ownership.stop()
            except Deposed:
                pass  # another owner writes there now
            except LogError as error:
                lines.failed[number] = str(error)
        case TakingOver(attempt=attempt, closing=closing):
            await asyncio.gather(attempt, *filter(None, [closing]), return_exceptions=True)
        case Failed(ownership=ownership) if ownership is not None:
            await ownership.abandon()
