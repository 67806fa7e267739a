"""The takeover of a partition: claim it, write the fence record, read up to that record, serve.

The fence record comes first because the log accepts the old owner's appends until the new owner's first one (see the
event log's contract); only a reading up to the fence record is complete. A process that has followed the partition
continues from there (followed_topic.py). While the old owner may still respond from memory, the new one responds too,
but defers every change (`CommandProcessor`).

Runs the steps in order and handles failures; owned_partitions.py decides when a partition is taken over.
"""

from collections.abc import Callable

from muster.coordinator.observability.metrics import TAKEOVER_PHASE_SECONDS, TAKEOVER_SECONDS, TakeoverPhase
from muster.coordinator.runtime.ownership.hot_standbys import HotStandbys, ReadBefore
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.partition_lines import ReadyLog
from muster.coordinator.runtime.ownership.snapshots import Snapshots
from muster.coordinator.runtime.ownership.takeover.claim_offsets import claim_offsets
from muster.coordinator.runtime.ownership.takeover.claim_partition import claim_partition
from muster.coordinator.runtime.ownership.takeover.ownership_end import (
    EndOf,
    LastSignOf,
    note_former_owner,
    warn_unless_stopped,
)
from muster.coordinator.runtime.ownership.takeover.read_groups import read_groups
from muster.coordinator.runtime.ownership.takeover.resume_groups import resume_groups, survey_damages
from muster.coordinator.runtime.ownership.takeover.write_ready import write_ready
from muster.coordinator.runtime.partition.outbox import OnLost
from muster.coordinator.runtime.partition.owner import Owner


class Takeovers:
    """The takeovers of this process. `standbys` and `snapshots` have what was read before."""

    def __init__(
        self,
        owner: Owner,
        ready_log: ReadyLog,
        *,
        last_sign_of: LastSignOf,
        end_of: EndOf,
        standbys: HotStandbys | None,
        snapshots: Snapshots | None,
    ) -> None:
        self._owner = owner
        self._ready_log = ready_log
        self._last_sign_of = last_sign_of
        self._end_of = end_of
        self._standbys = standbys
        self._snapshots = snapshots

    async def take_over(self, number: int, lost: OnLost) -> OwnedPartition:
        """Take over the partition. Raises LogError, and EventsError for a history that cannot be served.

        A failed takeover leaves what was read before to the next one, unless it turned out to be unusable.
        """
        read_before = await self._read_before(number)
        try:
            return await self._take_over(number, lost, read_before)
        except BaseException:
            await self._owner.give_up_offsets(number)
            if self._standbys is not None:
                self._standbys.put_back(number, read_before)
            raise

    async def _read_before(self, number: int) -> ReadBefore:
        read_before = ReadBefore() if self._standbys is None else await self._standbys.take(number)
        if read_before.events is None and self._snapshots is not None:
            read_before.events = await self._snapshots.load(number)
        return read_before

    async def _take_over(self, number: int, lost: OnLost, read_before: ReadBefore) -> OwnedPartition:
        owner, phases = self._owner, PhaseTimer(self._owner.clock.monotonic_ms)
        claim = await claim_partition(owner, number)
        phases.end(TakeoverPhase.CLAIM)
        read = await read_groups(owner, claim.writer, read_before.events)
        phases.end(TakeoverPhase.READ)
        warn_unless_stopped(owner, number, read.projector.before_election)
        offsets = await claim_offsets(owner, claim, read.projector, read_before)
        former = await note_former_owner(owner, claim, read.projector, self._last_sign_of, self._end_of)
        phases.end(TakeoverPhase.OFFSETS)
        ready = await write_ready(owner, claim, read, former, began_ms=phases.began_ms)
        self._ready_log.note(ready, offsets_read=offsets.records_read)
        phases.end(TakeoverPhase.READY)
        damages = await survey_damages(owner, number, read.projector)
        read_before.spend()
        ownership = await resume_groups(owner, claim, read, damages, lost, groups_recreated=offsets.groups_recreated)
        phases.end(TakeoverPhase.RESUME)
        return ownership


class PhaseTimer:
    """Times the phases of one takeover; each starts where the last one ended."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self.began_ms = self._since_ms = monotonic_ms()

    def end(self, phase: TakeoverPhase) -> None:
        """Note the end of a phase; the last one ends the takeover."""
        now_ms = self._monotonic_ms()
        TAKEOVER_PHASE_SECONDS.labels(phase.value).observe((now_ms - self._since_ms) / 1000)
        self._since_ms = now_ms
        if phase is TakeoverPhase.RESUME:
            TAKEOVER_SECONDS.observe((now_ms - self.began_ms) / 1000)
