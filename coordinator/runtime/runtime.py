"""The runtime: routes requests to the partition of their group, and starts the background tasks.

The handlers in `wire/` know `Runtime` as `Groups`. `owned_partitions.py` takes partitions over, loses and releases
them. One of the background tasks renews claims at the interval of the log.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, Heartbeat, JoinGroup, RebalanceUnassigned, SyncGroup
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.load.slices import Slices
from muster.coordinator.load.turns import Turns
from muster.coordinator.not_served import loading_reply
from muster.coordinator.observability.group_metrics import (
    HERE,
    NAMED_GROUPS,
    UPSTREAM,
    GroupFigures,
    NamedGroup,
    in_slices,
)
from muster.coordinator.observability.standby_metrics import StandbyFigures
from muster.coordinator.observability.status import OwnershipStatus
from muster.coordinator.runtime.ownership.lease_keeper import LeaseKeeper
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.owned_partitions import OwnedPartitions
from muster.coordinator.runtime.ownership.owned_status import ownership_status
from muster.coordinator.runtime.ownership.partition_state import Assigned, Serving
from muster.coordinator.runtime.ownership.signs_of_life import SignsOfLife
from muster.coordinator.runtime.ownership.slow_appends import SlowAppends
from muster.coordinator.runtime.ownership.snapshots import SnapshotFolder, Snapshots
from muster.coordinator.runtime.ownership.takeover.ownership_end import EndOf, end_unknown
from muster.coordinator.runtime.partition.group_context import Ticket
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.service import CommittedOffset, ListedGroup, ReplyTo
from muster.coordinator.tasks import BackgroundTasks
from muster.events.ids import GroupId
from muster.events.log.base import FollowedLog
from muster.events.partitioner import partition_for
from muster.events.state import NOT_CONFIGURED, Group, GroupConfig, GroupState
from muster.events.steps import Each

LOADED_SOON_MS: Final = 1_000
"""The upper limit of a normal takeover. A takeover takes longer only if the log is large or its brokers are
unreachable.
"""


class Runtime:
    """All groups that this process serves. `give_up` receives the error with which the caller ends the process.

    Until `start` is called (the log must be open by then), requests are answered COORDINATOR_LOAD_IN_PROGRESS. For
    `deposed` see OwnedPartitions.
    """

    def __init__(
        self,
        owner: Owner,
        *,
        give_up: Callable[[Exception], None],
        deposed: Callable[[int], None] | None = None,
        end_of: EndOf = end_unknown,
        stands_by: bool = False,
        snapshots: SnapshotFolder | None = None,
    ) -> None:
        """`stands_by`: follow the partitions assigned to other processes, which makes takeovers short.

        `end_of` finds out how a former owner ended. `snapshots`: the folder in which all partitions are saved, which
        makes starts short.
        """
        self._owner = owner
        self._log = owner.event_log
        self._offsets = owner.offsets
        self._signs = SignsOfLife(owner.event_log, owner.name, owner.clock, serves=lambda: bool(self._owned))
        lease_ms = owner.answer_lease_ms
        self._keeper = (
            None if lease_ms is None else LeaseKeeper(owner.event_log, lease_ms, owner.boot_ms, failed=give_up)
        )
        followed_log = owner.event_log if isinstance(owner.event_log, FollowedLog) else None
        self._snapshots: Snapshots | None = None
        if snapshots is not None and followed_log is not None:
            self._snapshots = Snapshots(owner, followed_log, snapshots, owned=lambda: self._owned)
        self._partitions = OwnedPartitions(
            owner,
            last_sign_of=self._signs.last_of,
            give_up=give_up,
            deposed=deposed,
            end_of=end_of,
            keeper=self._keeper,
            standby_log=followed_log if stands_by else None,
            snapshots=self._snapshots,
        )
        self._slow = SlowAppends(owner.event_log, lambda: self._owned)
        self._background = BackgroundTasks(give_up)
        self._is_assigned = False
        self._assigned_ms = 0
        """Time of the last assignment."""
        self._stopping = False

    @property
    def _owned(self) -> dict[int, OwnedPartition]:
        return self._partitions.owned

    @property
    def owner_name(self) -> str:
        """This process's name in events, `host:pid`."""
        return self._owner.name

    @property
    def slices(self) -> Slices:
        """The process's slices of long work."""
        return self._owner.slices

    @property
    def turns(self) -> Turns:
        """The process's turns of connections."""
        return self._owner.turns

    # ---- ownership -----------------------------------------------------------------------------------

    async def start(self, assigned: Iterable[int] | None = None) -> None:
        """Take over these partitions (default: all; see `assign`) and start the background tasks.

        Partitions can be assigned and released from then on.
        """
        if self._keeper is not None:
            self._background.start(self._keeper.keep(), "answer-leases")
        await self.assign(range(self._log.partitions) if assigned is None else assigned)
        if self._log.claim_renewal_ms is not None:
            self._background.start(self._renew(self._log.claim_renewal_ms), "renew-claims")
        self._signs.begin()
        self._background.start(self._slow.watch(), "slow-appends")
        if (standbys := self._partitions.standbys) is not None:
            for following in standbys.following():
                self._background.start(following, "standbys")
        if self._snapshots is not None:
            self._snapshots.standbys = None if standbys is None else standbys.events
            self._background.start(self._snapshots.keep(), "snapshots")

    async def assign(self, numbers: Iterable[int]) -> None:
        """Take over partitions concurrently; those whose log is unavailable are retried in the background.

        Raises Deposed, LogMismatch, LogDenied and EventsError.
        """
        self._is_assigned = True  # so the log is open
        self._assigned_ms = self._owner.clock.monotonic_ms()
        self._signs.read_ahead()
        await self._partitions.assign(numbers)

    async def release(self, numbers: Iterable[int]) -> None:
        """Release partitions for another process to take over; the others are still served."""
        await self._partitions.release(numbers)

    def claims(self) -> Mapping[int, int]:
        """The epoch of the claim on each assigned partition; 0 while the partition is not being served."""
        return {
            number: state.ownership.partition.epoch if isinstance(state, Serving) else 0
            for number, state in self._partitions.states.items()
            if isinstance(state, Assigned)
        }

    def leases(self) -> dict[int, int]:
        """How long responses from memory may be sent, in ms, by served partition; empty if there are no leases."""
        kept = {number: ownership.kept for number, ownership in self._owned.items()}
        return {number: each.lease.left_ms for number, each in kept.items() if each is not None}

    async def all_owned(self) -> None:
        """Wait until every partition that is being retried is owned or released."""
        await self._partitions.all_owned()

    async def stop(self) -> None:
        """Release all partitions; parked requests are answered NOT_COORDINATOR."""
        self._stopping = True
        await self._signs.stop()
        await self._background.close()
        await self._partitions.release_all()

    def figures(self) -> GroupFigures:
        """Figures for the metrics. Thread-safe: each collection is copied before it is iterated."""
        groups = Counter({(state.value, HERE): 0 for state in GroupState})
        members = Counter(dict.fromkeys(groups, 0))
        owned = [ownership.partition for ownership in list(self._owned.values())]
        named = []
        for partition in owned:
            for group in in_slices(partition.groups()):
                key = group.image.state.value, HERE if group.config.coordinator is None else UPSTREAM
                groups[key] += 1
                members[key] += len(group.members)
                if group.group_id in NAMED_GROUPS:
                    named.append(_named(group))
        joins, syncs, oldest = _parked(partition.parked() for partition in owned)
        return GroupFigures(
            groups=groups,
            members=members,
            quarantined=sum(partition.quarantined for partition in owned),
            partitions=len(owned),
            log_partitions=self._log.partitions if self._is_assigned else 0,
            parked={"JoinGroup": joins, "SyncGroup": syncs},
            oldest_parked_ms=0 if oldest is None else self._owner.clock.monotonic_ms() - oldest[0],
            oldest_parked_group="" if oldest is None else oldest[1],
            named=tuple(named),
        )

    def status(self) -> OwnershipStatus:
        """Return the partitions and groups that this process owns, for its status. Thread-safe."""
        if not self._is_assigned:  # the log is not open
            return OwnershipStatus(owner=self._owner.name)
        return ownership_status(self._owner, self._partitions, self.figures())

    def standby_figures(self) -> StandbyFigures | None:
        """The figures of the standbys; None where this process has none. Thread-safe."""
        standbys = self._partitions.standbys
        return None if standbys is None else standbys.figures

    @property
    def ready(self) -> bool:
        """Return whether all partitions assigned to this process are served."""
        return self._is_assigned and not self._stopping and self._partitions.is_all_served

    @property
    def not_ready(self) -> str | None:
        """Human-readable reason why the process is not ready; None if it is."""
        if self._log.trouble is not None:
            return self._log.trouble
        if self.ready:
            return self._slow.reason
        if self._stopping:
            return "stopping"
        partitions = self._partitions
        return "; ".join(partitions.unreadable) or partitions.outage.reason or "partitions are being read"

    def is_assigned(self, group_id: GroupId) -> bool:
        """Return whether the group's partition is assigned to this process, even if it is not served yet."""
        return isinstance(self._partitions.states.get(partition_for(group_id, self._log.partitions)), Assigned)

    def is_loading(self, group_id: GroupId) -> bool:
        """Return whether the group's partition is assigned to this process but not served yet."""
        return self.is_assigned(group_id) and self._ownership_of(group_id) is None

    def is_loaded_soon(self, group_id: GroupId) -> bool:
        """Return whether the group's partition was assigned to this process just now and is not served yet."""
        since_ms = self._owner.clock.monotonic_ms() - self._assigned_ms
        return since_ms < LOADED_SOON_MS and self.is_loading(group_id)

    def has_read(self, group_id: GroupId) -> bool:
        """Return whether this process has read the group's partition and called the listener for its groups."""
        states = self._partitions.states
        state = states.get(partition_for(group_id, self._log.partitions)) if states else None
        return state is not None and state.is_read

    def would_refuse(self, command: JoinGroup) -> bool:
        """Return whether this join would be answered with an error immediately, without changing anything."""
        ownership = self._ownership_of(command.group_id)
        return ownership is None or ownership.partition.would_refuse(command)

    def is_member(self, command: JoinGroup | SyncGroup) -> bool:
        """Return whether the sender is a member of the group, or a static member that has restarted."""
        ownership = self._ownership_of(command.group_id)
        return ownership is not None and ownership.partition.is_member(command)

    def has_group(self, group_id: GroupId) -> bool:
        """Return whether the group exists in the log."""
        ownership = self._ownership_of(group_id)
        return ownership is not None and ownership.partition.has_group(group_id)

    def config_of(self, group_id: GroupId) -> GroupConfig:
        """The group's configs; empty if the group does not exist or has not been read."""
        ownership = self._ownership_of(group_id)
        return NOT_CONFIGURED if ownership is None else ownership.partition.config_of(group_id)

    def _ownership_of(self, group_id: GroupId) -> OwnedPartition | None:
        """The group's partition; None if it is not served, or if the log is not open."""
        partitions = self._partitions
        return partitions.serving(partition_for(group_id, self._log.partitions)) if partitions.states else None

    async def _renew(self, every_ms: int) -> None:
        while True:
            await asyncio.sleep(every_ms / 1000)
            for ownership in self._owned.values():
                ownership.renew()  # in the background

    # ---- the Groups of the handlers ------------------------------------------------------------------

    def groups(self) -> Iterator[Group]:
        """The durable groups, partition by partition. Partitions may be added or removed during the iteration."""
        for ownership in list(self._owned.values()):
            yield from ownership.partition.groups()

    def rebalance_unassigned(self, command: RebalanceUnassigned) -> None:
        """Queue this command in the group's partition, if the partition is still served here."""
        ownership = self._ownership_of(command.group_id)
        if ownership is not None:
            ownership.partition.rebalance_unassigned(command)

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        """Queue the command in the partition of its group."""
        ownership = self._ownership_of(command.group_id)
        if ownership is None:
            error = self._not_served(command.group_id)
            is_loading = error is ErrorCode.coordinator_load_in_progress
            (answer,) = loading_reply(command) if is_loading else error_replies(command, error)
            reply(answer.outcome)
        else:
            ownership.partition.submit(command, reply)

    def heartbeat_ticket(self, command: Heartbeat) -> Ticket | None:
        """Return a ticket for the fast path if this heartbeat would be answered with NONE now."""
        ownership = self._ownership_of(command.group_id)
        return ownership.partition.ticket(command) if ownership else None

    def list_groups(self) -> Collection[ListedGroup] | ErrorCode:
        """List the durable groups; COORDINATOR_LOAD_IN_PROGRESS while any partition is loading (G22)."""
        if not self.ready:
            return self._not_served()
        if not all(ownership.partition.may_answer for ownership in self._owned.values()):
            return ErrorCode.coordinator_not_available
        return Each(_listed, [group for ownership in self._owned.values() for group in ownership.partition.groups()])

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        """The durable offsets of a group."""
        ownership = self._ownership_of(group_id)
        if ownership is None:
            return self._not_served(group_id)
        if not ownership.partition.may_answer:
            return ErrorCode.coordinator_not_available
        return dict(self._offsets.committed(group_id))

    def _not_served(self, group_id: GroupId | None = None) -> ErrorCode:
        """The error for a group whose partition is not served here, or for requests about all groups."""
        if self._stopping:
            return ErrorCode.coordinator_not_available
        if group_id is not None and self._is_assigned and not self.is_assigned(group_id):
            return ErrorCode.not_coordinator
        return ErrorCode.coordinator_load_in_progress


def _named(group: Group) -> NamedGroup:
    image = group.image
    return NamedGroup(
        group_id=group.group_id,
        state=image.state.value,
        members=len(group.members),
        generation_id=image.generation_id,
    )


_Parked = tuple[int, int, tuple[int, GroupId] | None]


def _parked(each: Iterable[_Parked]) -> _Parked:
    joins = syncs = 0
    oldest: list[tuple[int, GroupId]] = []
    for of_joins, of_syncs, of_oldest in each:
        joins, syncs = joins + of_joins, syncs + of_syncs
        if of_oldest is not None:
            oldest.append(of_oldest)
    return joins, syncs, min(oldest, default=None)


def _listed(group: Group) -> ListedGroup:
    image = group.image
    return ListedGroup(group_id=group.group_id, protocol_type=image.protocol_type or "", state=image.state)
