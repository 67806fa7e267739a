"""All partitions of this process: taking them over, finding the one of a group, giving them up.

`Runtime` is what the handlers of `wire/` know as `Groups`. A partition whose log is lost is closed at once; if the log
may come back (LogUnavailable) it is taken over anew, with back-off; if another process has it (Deposed), or its
history cannot be served, `give_up` is told, and the process ends. Claims are renewed as often as the log wants it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import structlog
from kio.schema.errors import ErrorCode
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from coordinator.group.commands import AnyRequest, Heartbeat, JoinGroup
from coordinator.group.decide import failed
from coordinator.metrics import GroupFigures
from coordinator.not_served import loading_reply
from coordinator.ownership import Owner, Ownership, take_over
from coordinator.service import CommittedOffset, ListedGroup
from coordinator.slot import ReplyTo, Ticket
from coordinator.tasks import on_failure
from events.ids import GroupId
from events.log.base import Deposed, LogError, LogUnavailable
from events.partitioner import partition_for
from events.records import EventsError
from events.state import NOT_CONFIGURED, GroupConfig, GroupState

log = structlog.get_logger(__name__)

STOPS_WITHIN_S = 10.0
"""For all partitions together; what is cut short is as safe as after a crash."""


class Runtime:
    """`give_up` is called when the process cannot go on; the caller ends it with the error's message."""

    def __init__(self, owner: Owner, *, give_up: Callable[[Exception], None]) -> None:
        self._owner = owner
        self._log = owner.event_log
        self._offsets = owner.offsets
        self._give_up = give_up
        self._owned: dict[int, Ownership] = {}
        self._retaking: dict[int, asyncio.Task[None]] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._read: set[int] = set()
        self._stopping = False

    # ---- ownership -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take all partitions over. Raises LogError and EventsError."""
        for number in range(self._log.partitions):
            self._owned[number] = await self._take_over(number)
        if self._log.claim_renewal_ms is not None:
            self._renewing = asyncio.create_task(self._renew(self._log.claim_renewal_ms), name="renew-claims")
            self._renewing.add_done_callback(on_failure(self._give_up))

    async def stop(self) -> None:
        """Give everything up in good order; parked requests are answered NOT_COORDINATOR and come back elsewhere."""
        self._stopping = True
        tasks = [*self._retaking.values(), *([self._renewing] if self._renewing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        owned, self._owned = self._owned, {}
        for ownership in owned.values():
            ownership.partition.close(ErrorCode.not_coordinator)
        goodbyes = [asyncio.create_task(_say_goodbye(*item), name=f"stop-{item[0]}") for item in owned.items()]
        if goodbyes:
            _, late = await asyncio.wait(goodbyes, timeout=STOPS_WITHIN_S)
            for goodbye in late:
                goodbye.cancel()
            if late:
                log.warning("stopped before everything was said in the event log", partitions=len(late))

    def figures(self) -> GroupFigures:
        """For the metrics: asked for in another thread, so that each collection is copied before it is gone through."""
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
        return len(self._owned) == self._log.partitions and not self._stopping

    @property
    def not_ready(self) -> str | None:
        """Why not, for people; None when it is."""
        if self.ready:
            return None
        return "stopping" if self._stopping else "partitions are being read"

    def has_read(self, group_id: GroupId) -> bool:
        """Whether the group's partition was read by this process, so that the watch was told which groups there are."""
        return partition_for(group_id, self._log.partitions) in self._read

    def would_refuse(self, command: JoinGroup) -> bool:
        """Whether this join would now be answered with an error at once, and change nothing."""
        ownership = self._owned.get(partition_for(command.group_id, self._log.partitions))
        return ownership is None or ownership.partition.would_refuse(command)

    def has_group(self, group_id: GroupId) -> bool:
        """Whether there is such a group in the log."""
        ownership = self._owned.get(partition_for(group_id, self._log.partitions))
        return ownership is not None and ownership.partition.has_group(group_id)

    def config_of(self, group_id: GroupId) -> GroupConfig:
        """What is set for the group; nothing for one that is not there, or not read."""
        ownership = self._owned.get(partition_for(group_id, self._log.partitions))
        return NOT_CONFIGURED if ownership is None else ownership.partition.config_of(group_id)

    async def _take_over(self, number: int) -> Ownership:
        ownership = await take_over(self._owner, number, lost=lambda error: self._lost(number, error))
        self._read.add(number)
        return ownership

    async def _renew(self, every_ms: int) -> None:
        while True:
            await asyncio.sleep(every_ms / 1000)
            for ownership in self._owned.values():
                ownership.renew()  # awaits nothing

    def _lost(self, number: int, error: Exception) -> None:
        ownership = self._owned.pop(number, None)
        if ownership is None:
            return  # it was given up already
        ownership.partition.close(ErrorCode.not_coordinator)
        if isinstance(error, LogUnavailable):
            retaking = asyncio.create_task(self._retake(number, ownership), name=f"retake-{number}")
            retaking.add_done_callback(on_failure(self._give_up))
            self._retaking[number] = retaking
        else:
            self._give_up(error)
        log.error("partition lost", partition=number, error=repr(error))

    async def _retake(self, number: int, lost: Ownership) -> None:
        await lost.abandon()

        def report(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            log.warning("event log unavailable, trying again", partition=number, error=str(error))

        attempts = AsyncRetrying(
            retry=retry_if_exception_type(LogUnavailable),
            wait=wait_exponential_jitter(multiplier=0.1, max=5),
            before_sleep=report,
        )
        try:
            self._owned[number] = await attempts(self._take_over, number)
        except (Deposed, LogError, EventsError) as error:
            self._give_up(error)
        finally:
            self._retaking.pop(number, None)

    # ---- the Groups of the handlers ------------------------------------------------------------------

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        """Have the command decided by the owner of its group."""
        ownership = self._owned.get(partition_for(command.group_id, self._log.partitions))
        if ownership is None:
            stopping = self._stopping
            (answer,) = failed(command, ErrorCode.coordinator_not_available) if stopping else loading_reply(command)
            reply(answer.outcome)
        else:
            ownership.partition.submit(command, reply)

    def heartbeat_ticket(self, command: Heartbeat) -> Ticket | None:
        """A ticket for the fast path, if this heartbeat would now be answered with NONE."""
        ownership = self._owned.get(partition_for(command.group_id, self._log.partitions))
        return ownership.partition.ticket(command) if ownership else None

    def list_groups(self) -> Sequence[ListedGroup] | ErrorCode:
        """Every durable group; loading as long as one partition is (G22)."""
        if not self.ready:
            return self._not_ready()
        return [
            ListedGroup(group_id=group.group_id, protocol_type=group.image.protocol_type or "", state=group.image.state)
            for ownership in self._owned.values()
            for group in ownership.partition.groups()
        ]

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        """The durable offsets of a group."""
        if partition_for(group_id, self._log.partitions) not in self._owned:
            return self._not_ready()
        return {
            partition: CommittedOffset(offset=stored.offset, leader_epoch=stored.leader_epoch, metadata=stored.metadata)
            for partition, stored in self._offsets.committed(group_id).items()
        }

    def _not_ready(self) -> ErrorCode:
        stopping = self._stopping
        return ErrorCode.coordinator_not_available if stopping else ErrorCode.coordinator_load_in_progress


async def _say_goodbye(number: int, ownership: Ownership) -> None:
    try:
        await ownership.stop()
    except LogError as error:
        log.warning("could not say goodbye in the event log", partition=number, error=str(error))
