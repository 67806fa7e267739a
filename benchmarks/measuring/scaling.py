"""Scaling with real consumers: a group of 8 static members grows to 16, then shrinks to 8, one process after another.

The figure is the number of rebalances, each of which stops all members. On Kafka each member that joins or leaves
causes a rebalance; on Muster the change was announced beforehand (`muster members add`, `muster members retire`).
"""

import asyncio
from collections.abc import Sequence

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.measuring.groups import TOPIC, Failed
from muster.coordinator.client.group_admin import GroupAdmin
from muster.coordinator.group.outcomes import Standing
from tests.clients.consumers import Confluent, RunningConsumer
from tests.clients.probe import described, generation_of, remove_static_members, until_stable
from tests.waiting import until_so

SIZE = 8
PARTITIONS = 16
WAIT_MS = 600_000
WITHIN_S = 120


def rebalances_of_scaling(bootstrap: str, group_id: str, *, announced: bool) -> tuple[int, int]:
    """The number of rebalances while the group grew, and while it shrank."""
    group = _Group(bootstrap, group_id, announced=announced)
    try:
        return group.grow(), group.shrink()
    finally:
        group.end()


def declare_topic(bootstrap: str) -> None:
    """Create the topic on a broker; for Muster it is declared already."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()


class _Group:
    def __init__(self, bootstrap: str, group_id: str, *, announced: bool) -> None:
        self._bootstrap, self._group_id, self._announced = bootstrap, group_id, announced
        self._consumers: list[RunningConsumer] = []

    def grow(self) -> int:
        names = [f"member-{number:02}" for number in range(2 * SIZE)]
        for name in names[:SIZE]:
            self._start(name)
        self._until_shared(SIZE)
        before = self._generation()
        if self._announced:
            self._announce(names[SIZE:])
        for number, name in enumerate(names[SIZE:], start=1):
            self._start(name)
            if self._announced and number < SIZE:
                self._until_waiting(number)
            else:
                self._until_shared(SIZE + number)
        return self._generation() - before

    def shrink(self) -> int:
        before = self._generation()
        going = self._consumers[SIZE:]
        if self._announced:
            self._retire([str(consumer.instance) for consumer in going])
        for number, consumer in enumerate(going, start=1):
            self._consumers.remove(consumer)
            consumer.close()
            remove_static_members(self._bootstrap, self._group_id, str(consumer.instance))
            if not self._announced or number == SIZE:
                self._until_shared(2 * SIZE - number)
        return self._generation() - before

    def end(self) -> None:
        for consumer in self._consumers:
            consumer.end()

    def _start(self, name: str) -> None:
        self._consumers.append(Confluent(self._bootstrap, self._group_id, TOPIC, instance=name).start())

    def _until_shared(self, members: int) -> None:
        """Wait until the group is stable and the partitions are assigned to its current members."""

        def shared() -> bool:
            held = [partition for consumer in self._consumers for partition in consumer.assigned]
            return sorted(held) == list(range(PARTITIONS)) and all(consumer.assigned for consumer in self._consumers)

        until_so(shared, lambda: described(self._bootstrap, self._group_id), within_s=WITHIN_S)
        until_stable(self._bootstrap, self._group_id, members=members, within_s=WITHIN_S)

    def _generation(self) -> int:
        return generation_of(self._bootstrap, self._group_id)

    def _announce(self, names: Sequence[str]) -> None:
        async def announce() -> None:
            async with GroupAdmin(self._bootstrap) as admin:
                results = await admin.add_members_to_group(self._group_id, names, timeout_ms=WAIT_MS)
            if not all(result.done for result in results):
                raise Failed(f"registration of {names}: {results}")

        asyncio.run(announce())

    def _retire(self, names: Sequence[str]) -> None:
        async def retire() -> None:
            async with GroupAdmin(self._bootstrap) as admin:
                await admin.retire_members(self._group_id, names, timeout_ms=WAIT_MS)

        asyncio.run(retire())

    def _until_waiting(self, members: int) -> None:
        until_so(lambda: self._waiting() == members, self._waiting, within_s=WITHIN_S)

    def _waiting(self) -> int:
        async def count() -> int:
            async with GroupAdmin(self._bootstrap) as admin:
                members = await admin.list_members(self._group_id)
            return sum(member.standing is Standing.WAITING for member in members)

        return asyncio.run(count())
