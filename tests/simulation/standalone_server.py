"""A whole `muster serve` without upstream in a simulated world; alone it also acts as a Kafka broker.

Assembles coordinator/serve with the world's clocks, ids and sockets. Its group rules are Kafka's, which the conformance
scripts check. So it is the coordinator of the ownership group in the world of others, with its own topics: joins,
syncs, heartbeats, sessions and removals work as in Kafka.
"""

import itertools
from collections.abc import Callable
from contextlib import AsyncExitStack

from muster.coordinator.cluster import new_cluster
from muster.coordinator.observability.status import StatusParts
from muster.coordinator.offsets.offsets_reading import ClaimedOffsets, OffsetsReading
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.coordinator.partition_reading import Standby
from muster.coordinator.runtime.partition.waiting_limit import WaitingLimit, WaitingQuota
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import Cancel, Service
from muster.coordinator.standalone.server import Server, ServerSettings
from muster.coordinator.topics import declare_topic
from muster.coordinator.wire.registry import APIS
from tests.simulation.committed import offsets_in, offsets_of
from tests.simulation.muster_server import CLIENT_PORT, METRICS, TOPIC, TOPIC_PARTITIONS, MusterServer


class _CheckedOffsets(TopicOffsetStore):
    """The offsets, each time compared with the topic when they were taken over by a standby."""

    def __init__(self, server: MusterServer) -> None:
        super().__init__(lambda: server.new_log(server.surroundings.topics.offsets))
        self._server = server

    async def claim_by(self, partition: int, standby: Standby[OffsetsReading] | None) -> ClaimedOffsets:
        claimed = await super().claim_by(partition, standby)
        broker = self._server.surroundings.topics.offsets
        if standby is not None and not standby.is_spent:
            broker.read_on += 1
            reported = offsets_of(broker.storage.between(partition, 0, standby.loading.next_offset))
            if offsets_in(standby.loading.offsets) != reported or set(claimed.groups) != reported.keys():
                self._server.world.failures.append(AssertionError("a standby says other offsets than the topic"))
        return claimed


class StandaloneServer(MusterServer):
    """See the module."""

    async def _start(self, stack: AsyncExitStack) -> None:
        topics = self.surroundings.topics
        event_log = self.new_log(topics.events)
        offsets = _CheckedOffsets(self)
        quota = WaitingQuota(each_max=1_000, metrics=METRICS)
        sharing = self.new_sharing(event_log)
        runtime = self.runtime = self.new_runtime(self.new_owner(event_log, offsets), sharing)
        service = self._service(runtime, quota)
        settings = ServerSettings(host=self.host, port=CLIENT_PORT)
        server = Server(settings=settings, service=service, apis=APIS, metrics=METRICS)
        await server.start()
        stack.push_async_callback(server.close)
        await event_log.open()
        await offsets.open()
        stack.push_async_callback(offsets.close)
        if sharing is None:
            stack.push_async_callback(runtime.stop)
            await runtime.start()
            stack.callback(server.stop_listening)
        else:
            await sharing.begin(
                runtime,
                service,
                stack,
                self.readiness,
                StatusParts(),
                lost=self.give_up,
                stop_listening=server.stop_listening,
            )

    def _service(self, runtime: Runtime, quota: WaitingQuota) -> Service:
        random = self.world.random

        def call_later(delay_ms: int, callback: Callable[[], None]) -> Cancel:
            return self.loop.call_later(delay_ms / 1000, callback).cancel

        return Service(
            groups=WaitingLimit(runtime, quota, runtime.is_member),
            cluster=new_cluster(
                cluster_id="simulated",
                node_id=1 if self.node_id is None else self.node_id,
                host=self.host,
                port=CLIENT_PORT,
                topics=(declare_topic(f"{TOPIC}:{TOPIC_PARTITIONS}"),),
            ),
            monotonic_ms=self.clock.monotonic_ms,
            wall_ms=self.clock.wall_ms,
            new_uuid=lambda: f"{random.getrandbits(64):016x}",
            new_request_id=itertools.count(1).__next__,
            call_later=call_later,
            gone=quota.release,
            slices=runtime.slices,
            turns=runtime.turns,
        )
