"""This process as the owner of partitions: its logs, its settings, and everything that all partitions share."""

from collections.abc import Callable, Mapping

import msgspec

from muster.coordinator.clock import Clock
from muster.coordinator.foreign_records import ForeignRecordsSeen
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.load.slices import Slices
from muster.coordinator.load.turns import Turns
from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.offsets.offsets_reading import FollowedOffsets
from muster.coordinator.runtime.partition.answer_lease import boot_clock_ms
from muster.coordinator.runtime.partition.former_owners import FormerOwners, OldLeases
from muster.coordinator.runtime.partition.group_context import (
    AskAboutSilence,
    GenerationListener,
    ignore_generations,
    members_reachable,
)
from muster.coordinator.runtime.partition.refused_joins import RefusedJoins
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.partition.waiting import RequestBacklog
from muster.events.log.base import EventLog


def ignore_partition(_number: int) -> None:
    """Do nothing: the default, where nothing else depends on the partition."""


class Owner(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """This process as the owner of partitions: its name, its logs, its settings; the same for all partitions."""

    name: str
    """`host:pid`, the owner's name in events and log lines."""
    version: str
    event_log: EventLog
    offsets: OffsetStore
    settings: GroupSettings
    effective_settings: Mapping[str, str]
    """The settings by Kafka's names, for the fence record."""
    clock: Clock
    retention_clock: RetentionClock
    refused_joins: RefusedJoins
    log_url: str = "URL"
    """The value of --log, used in commands that log lines recommend, like `bootstrap`, the address for clients."""
    bootstrap: str = "ADDRESS"
    answer_lease_ms: int | None = None
    """The answer lease, for logs that other processes can take over; otherwise None."""
    boot_ms: Callable[[], int] = boot_clock_ms
    """The leases' clock."""
    on_generation: GenerationListener = ignore_generations
    on_given_up: Callable[[int], None] = ignore_partition
    """Called with each partition that another process owns from now on."""
    ask_about_silence: AskAboutSilence = members_reachable
    foreign_records: ForeignRecordsSeen = msgspec.field(default_factory=ForeignRecordsSeen)
    old_leases: OldLeases = msgspec.field(default_factory=OldLeases)
    former_owners: FormerOwners = msgspec.field(default_factory=FormerOwners)
    slices: Slices = msgspec.field(default_factory=Slices)
    backlog: RequestBacklog = msgspec.field(default_factory=RequestBacklog)
    turns: Turns = msgspec.field(default_factory=Turns)
    """The process's turns, shared with its connections."""

    async def give_up_offsets(self, number: int) -> None:
        """Make the offset store forget a partition that this process does not own."""
        if isinstance(self.offsets, FollowedOffsets):
            await self.offsets.give_up(number)
