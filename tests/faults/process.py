"""A coordinator process on a Kafka cluster, fake or real: its runtime, its log, and offsets in a topic beside it."""

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.coordinator.offsets.upstream import UpstreamOffsetStore
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.refused_joins import RefusedJoins
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.runtime import Runtime
from muster.events.ids import GroupId
from muster.events.log.kafka.client.link import Timeouts
from muster.events.log.kafka.log import DEFAULT_TIMEOUTS, KafkaEventLog
from muster.events.partitioner import partition_for
from tests.faults.network import NetworkLoop
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import VirtualClock, simulate

TOPIC = "events"


def groups_in(partition: int, partitions: int) -> Iterator[GroupId]:
    """Groups that live in this partition, as many as one likes."""
    names = (GroupId(f"g{number}") for number in itertools.count())
    return (name for name in names if partition_for(name, partitions) == partition)


class ProcessOnKafka(SimulatedProcess):
    """A SimulatedProcess whose log is a topic of the cluster; `with_offsets`: so are its offsets."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        name: str = "simulated:1",
        topic: str = TOPIC,
        partitions: int = 3,
        with_offsets: bool = False,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        read_only: bool = False,
        answer_lease_ms: int | None = None,
    ) -> None:
        self.clock = VirtualClock()
        settings: dict[str, Any] = {"partitions": partitions, "timeouts": timeouts}
        self.kafka = KafkaEventLog(bootstrap, topic, read_only=read_only, **settings)
        offsets_log = KafkaEventLog(bootstrap, f"{topic}_offsets", audit_window_ms=0, **settings)
        self.offsets: OffsetStore = TopicOffsetStore(lambda: offsets_log) if with_offsets else UpstreamOffsetStore()
        self.lost: list[Exception] = []
        self.group_id = GROUP
        self.client_host = "/127.0.0.1"
        owner = Owner(
            name=name,
            version="test",
            event_log=self.kafka,
            offsets=self.offsets,
            settings=GroupSettings(initial_rebalance_delay_ms=0),
            effective_settings={},
            clock=self.clock,
            retention_clock=RetentionClock(self.clock, kept_ms=0),
            refused_joins=RefusedJoins(GroupSettings(), self.clock.monotonic_ms),
            answer_lease_ms=answer_lease_ms,
            boot_ms=self.clock.monotonic_ms,
        )
        self.runtime = Runtime(owner, give_up=self.lost.append)
        self._groups = self.runtime

    async def start(self) -> "ProcessOnKafka":
        await self.kafka.open()
        await self.offsets.open()
        await self.runtime.start()
        return self

    async def stop(self) -> None:
        """Stop cleanly."""
        await self.runtime.stop()
        await self.offsets.close()
        await self.kafka.close()


def story(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test in virtual time, on the network without sockets."""

    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        simulate(main(), NetworkLoop)

    return run


def seconds() -> float:
    """The time in the simulation."""
    return asyncio.get_running_loop().time()
