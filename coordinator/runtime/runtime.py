"""The runtime: all partitions of this process, taken over, looked up by group, and given up.

The handlers of `wire/` know `Runtime` as `Groups`. A partition whose log is lost is closed at once. While the log is
unavailable (LogUnavailable) the takeover is retried, also at the start. If another process has claimed it (Deposed), if
it is another log (LogMismatch), or if a newer version wrote it, `give_up` is called, and the process ends. A partition
with an owner's record that cannot be read stays closed; the others are served. Claims are renewed as often as the log
requires.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, Heartbeat, JoinGroup, SyncGroup
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.load.slices import Slices
from muster.coordinator.load.turns import Turns
from muster.coordinator.not_served import loading_reply, way_out
from muster.coordinator.observability.metrics import GroupFigures
from muster.coordinator.runtime.group_context import Ticket
from muster.coordinator.runtime.log_outage import LogOutage
from muster.coordinator.runtime.owner import Owner
from muster.coordinator.runtime.ownership import OwnedPartition, take_over
from muster.coordinator.runtime.signs_of_life import SignsOfLife
from muster.coordinator.runtime.slow_appends import SlowAppends
from muster.coordinator.runtime.successor_watch import SuccessorWatch
from muster.coordinator.service import CommittedOffset, ListedGroup, ReplyTo
from muster.coordinator.tasks import on_failure
from muster.events.ids import GroupId
from muster.events.log.base import Deposed, LogDenied, LogError, LogUnavailable
from muster.events.partitioner import partition_for
from muster.events.records import BrokenRecord, EventsError
from muster.events.state import NOT_CONFIGURED, Group, GroupConfig, GroupState
from muster.events.steps import Each

log = structlog.get_logger(__name__)

LOST_REPORT_DELAY_S = 1.0
"""The delay of the log line about lost partitions, which names all that are lost within it."""

STOP_TIMEOUT_S = 10.0
"""The timeout for stopping all partitions; cutting it short is as safe as a crash."""


class Runtime:
    """See the module. `give_up` is called with the error when the process cannot go on; the caller ends it.

    The log is open when `start` is called; requests before are answered COORDINATOR_LOAD_IN_PROGRESS.
    """

    def __init__(self, owner: Owner, *, give_up: Callable[[Exception], None]) -> None:
        self._owner = owner
        self._log = owner.event_log
        self._offsets = owner.offsets
        self._give_up = give_up
        self._owned: dict[int, OwnedPartition] = {}
        self._retaking: dict[int, asyncio.Task[None]] = {}
        self._given_up: list[OwnedPartition] = []
        """Partitions that were lost for good: their tasks end with the process."""
        self._signs = SignsOfLife(owner.event_log, owner.name, owner.clock, serves=lambda: bool(self._owned))
        self._slow = SlowAppends(owner.event_log, lambda: self._owned)
        self._successors = SuccessorWatch(owner.event_log, lambda: self._owned, self._lost)
        self._background: list[asyncio.Task[None]] = []
        self._read: set[int] = set()
        self._unreadable: dict[int, str] = {}
        """The reason for each partition that is not served, since an owner's record in it cannot be read."""
        self._outage = LogOutage(owner.event_log.location, owner.clock.monotonic_ms)
        self._finding_successor: asyncio.Task[None] | None = None
        """Finds out who has deposed this process, for the log and for people."""
        self._lost_now: dict[int, str] = {}
        """The partitions that were lost, and why, until the next log line."""
        self._stopping = False

    @property
    def slices(self) -> Slices:
        """The process's slices of long work."""
        return self._owner.slices

    @property
    def turns(self) -> Turns:
        """The process's turns of connections."""
        return self._owner.turns

    # ---- ownership -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take all partitions over; those whose log is unavailable are retried in the background (`all_owned`).

        Raises Deposed, LogMismatch, LogDenied and EventsError.
        """
        for number in range(self._log.partitions):
            if self._retaking:
                self._retake_later(number)  # one after another they would wait for each other's timeouts
                continue
            began_ms = self._owner.clock.monotonic_ms()
            try:
                await self._take_over(number)
            except LogDenied:
                raise
            except LogUnavailable as error:
                self._outage.failed(number, error, began_ms=began_ms)
                self._retake_later(number)
        if self._log.claim_renewal_ms is not None:
            self._run_in_background(self._renew(self._log.claim_renewal_ms), "renew-claims")
        self._signs.begin()
        self._run_in_background(self._slow.watch(), "slow-appends")
        if self._log.can_be_taken_over:
            self._run_in_background(self._successors.watch(), "successor-watch")

    def _run_in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(on_failure(self._give_up))
        self._background.append(task)

    async def all_owned(self) -> None:
        """Wait until every partition that is retried is owned, or given up."""
        while self._retaking:
            await asyncio.wait(self._retaking.values())

    async def stop(self) -> None:
        """Give all partitions up in good order; parked requests are answered NOT_COORDINATOR."""
        self._stopping = True
        await self._signs.stop()
        owned, self._owned = self._owned, {}  # what is lost from here on is not taken over again
        tasks = [*self._retaking.values(), *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        owned |= self._owned
        self._owned = {}
        for ownership in owned.values():
            ownership.partition.close(ErrorCode.not_coordinator)
        abandoning = [asyncio.create_task(each.abandon(), name="abandon") for each in self._given_up]
        stopping = [asyncio.create_task(_stop(*item), name=f"stop-{item[0]}") for item in owned.items()]
        if abandoning or stopping:
            _, late = await asyncio.wait([*abandoning, *stopping], timeout=STOP_TIMEOUT_S)
            _log_not_stopped(dict(filter(None, (each.result() for each in stopping if each not in late))))
            for each in late:
                each.cancel()
            if cut_short := late.intersection(stopping):
                log.warning("stopped before everything was said in the event log", partitions=len(cut_short))
        if self._finding_successor is not None:
            await asyncio.wait([self._finding_successor])  # it has a timeout of its own

    def figures(self) -> GroupFigures:
        """The figures for the metrics. Thread-safe: each collection is copied before it is iterated."""
        states = Counter({state.value: 0 for state in GroupState})
        members = quarantined = 0
        owned = list(self._owned.values())
        for ownership in owned:
            groups = ownership.partition.groups()
            states.update(group.image.state.value for group in groups)
            members += sum(len(group.members) for group in groups)
            quarantined += ownership.partition.quarantined
        return GroupFigures(groups=states, members=members, quarantined=quarantined, partitions=len(owned))

    @property
    def ready(self) -> bool:
        """Whether every partition is served."""
        return bool(self._owned) and len(self._owned) == self._log.partitions and not self._stopping

    @property
    def not_ready(self) -> str | None:
        """The reason why the process is not ready, for people; None when it is."""
        if self._log.trouble is not None:
            return self._log.trouble
        if self.ready:
            return self._slow.reason
        if self._stopping:
            return "stopping"
        return "; ".join(self._unreadable.values()) or self._outage.reason or "partitions are being read"

    def has_read(self, group_id: GroupId) -> bool:
        """Whether this process has read the group's partition, and the listener was called for its groups."""
        return bool(self._read) and partition_for(group_id, self._log.partitions) in self._read

    def would_refuse(self, command: JoinGroup) -> bool:
        """Whether this join would now be answered with an error at once, without any change."""
        ownership = self._ownership_of(command.group_id)
        return ownership is None or ownership.partition.would_refuse(command)

    def is_member(self, command: JoinGroup | SyncGroup) -> bool:
        """Whether a member of the group sent it, or a static one that has restarted."""
        ownership = self._ownership_of(command.group_id)
        return ownership is not None and ownership.partition.is_member(command)

    def has_group(self, group_id: GroupId) -> bool:
        """Whether the group exists in the log."""
        ownership = self._ownership_of(group_id)
        return ownership is not None and ownership.partition.has_group(group_id)

    def config_of(self, group_id: GroupId) -> GroupConfig:
        """The group's configs; none for a group that does not exist, or was not read."""
        ownership = self._ownership_of(group_id)
        return NOT_CONFIGURED if ownership is None else ownership.partition.config_of(group_id)

    def _ownership_of(self, group_id: GroupId) -> OwnedPartition | None:
        """The group's partition; None while it is not served, as before the log is open."""
        return self._owned.get(partition_for(group_id, self._log.partitions)) if self._owned else None

    async def _take_over(self, number: int) -> None:
        try:
            self._owned[number] = await take_over(
                self._owner, number, last_sign_of=self._signs.last_of, lost=lambda error: self._lost(number, error)
            )
        except BrokenRecord as broken:
            helps = way_out(broken, self._owner.log_url)
            why = f"partition {number} of {self._log.location} is not served: {broken}; what helps: {helps}"
            self._unreadable[number] = why
            log.error(
                "partition not served: a record in the event log cannot be read",
                log=self._log.location,
                partition=number,
                offset=broken.offset,
                reason=broken.reason,
                way_out=helps,
            )
        else:
            self._read.add(number)

    async def _renew(self, every_ms: int) -> None:
        while True:
            await asyncio.sleep(every_ms / 1000)
            for ownership in self._owned.values():
                ownership.renew()  # in the background

    def _lost(self, number: int, error: Exception) -> None:
        ownership = self._owned.pop(number, None)
        if ownership is None:
            return  # it was given up already
        ownership.partition.close(ErrorCode.not_coordinator)
        if isinstance(error, LogUnavailable):
            _, waited_s = ownership.waits or (None, 0.0)
            began_ms = self._owner.clock.monotonic_ms() - int(waited_s * 1000)
            self._outage.failed(number, error, began_ms=began_ms)
            if not self._lost_now:
                asyncio.get_running_loop().call_later(LOST_REPORT_DELAY_S, self._log_lost)
            self._lost_now[number] = str(error)
            self._retake_later(number, ownership)
            return
        self._given_up.append(ownership)
        if isinstance(error, Deposed):
            if self._finding_successor is None:  # the others are lost to the same one
                self._finding_successor = asyncio.create_task(ownership.report_successor(error), name="name-successor")
                self._finding_successor.add_done_callback(on_failure(self._give_up))
                self._give_up(error)
        else:
            log.error("partition lost", partition=number, error=str(error))
            self._give_up(error)

    def _log_lost(self) -> None:
        lost, self._lost_now = self._lost_now, {}
        log.warning(
            "partitions lost, they are taken over again", partitions=sorted(lost), error=next(iter(lost.values()))
        )

    def _retake_later(self, number: int, lost: OwnedPartition | None = None) -> None:
        retaking = asyncio.create_task(self._retake(number, lost), name=f"retake-{number}")
        retaking.add_done_callback(on_failure(self._give_up))
        retaking.add_done_callback(partial(self._retook, number))
        self._retaking[number] = retaking

    def _retook(self, number: int, retaking: asyncio.Task[None]) -> None:
        if self._retaking.get(number) is retaking:
            del self._retaking[number]

    async def _retake(self, number: int, lost: OwnedPartition | None) -> None:
        if lost is not None:
            await lost.abandon()

        try:
            await self._outage.retry_until_available(
                partial(self._take_over, number), number, was_served=lost is not None
            )
        except (Deposed, LogError, EventsError) as error:
            self._give_up(error)

    # ---- the Groups of the handlers ------------------------------------------------------------------

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        """Queue the command in the partition of its group."""
        ownership = self._ownership_of(command.group_id)
        if ownership is None:
            stopping = self._stopping
            (answer,) = (
                error_replies(command, ErrorCode.coordinator_not_available) if stopping else loading_reply(command)
            )
            reply(answer.outcome)
        else:
            ownership.partition.submit(command, reply)

    def heartbeat_ticket(self, command: Heartbeat) -> Ticket | None:
        """Return a ticket for the fast path if this heartbeat would now be answered with NONE."""
        ownership = self._ownership_of(command.group_id)
        return ownership.partition.ticket(command) if ownership else None

    def list_groups(self) -> Collection[ListedGroup] | ErrorCode:
        """List the durable groups; COORDINATOR_LOAD_IN_PROGRESS while any partition is loading (G22)."""
        if not self.ready:
            return self._not_ready()
        return Each(_listed, [group for ownership in self._owned.values() for group in ownership.partition.groups()])

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        """The durable offsets of a group."""
        if self._ownership_of(group_id) is None:
            return self._not_ready()
        return dict(self._offsets.committed(group_id))

    def _not_ready(self) -> ErrorCode:
        stopping = self._stopping
        return ErrorCode.coordinator_not_available if stopping else ErrorCode.coordinator_load_in_progress


def _listed(group: Group) -> ListedGroup:
    image = group.image
    return ListedGroup(group_id=group.group_id, protocol_type=image.protocol_type or "", state=image.state)


async def _stop(number: int, ownership: OwnedPartition) -> tuple[int, str] | None:
    """Stop the partition; returns its number and the error if CoordinatorStopped could not be written."""
    try:
        await ownership.stop()
    except Deposed:
        return None  # its last word is another one's
    except LogError as error:
        return number, str(error)
    return None


def _log_not_stopped(failed: Mapping[int, str]) -> None:
    if failed:
        error = next(iter(failed.values()))
        log.warning("could not say goodbye in the event log", partitions=sorted(failed), error=error)
