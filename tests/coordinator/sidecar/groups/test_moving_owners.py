"""A working group moves behind the sidecar process by process, is adopted, released, and moves back.

No partition ever has two owners, and no commit is lost.
"""

import asyncio
import threading
from collections.abc import Iterator

import confluent_kafka
import pytest

from muster.coordinator.client.group_admin import GroupAdmin
from muster.coordinator.client.group_moves import move_group
from muster.coordinator.group.configs import MUSTER, UPSTREAM
from muster.coordinator.group.outcomes import GroupMove, MoveState
from tests.brokers.broker import Broker
from tests.clients.probe import described
from tests.coordinator.sidecar.admin_stage import PARTITIONS, Front, front_of, new_name
from tests.coordinator.sidecar.groups.owners import (
    BusyOwner,
    ConfluentOwner,
    CooperativeJavaOwner,
    JavaOwner,
    Owner,
    acknowledged,
    consumed,
    overlaps,
)
from tests.waiting import until_so

pytestmark = [pytest.mark.broker, pytest.mark.clients]

ALL = set(range(PARTITIONS))
SHADOW = "muster"


@pytest.fixture(scope="module")
def front(kafka_broker: Broker) -> Iterator[Front]:
    with front_of(kafka_broker) as front:
        yield front


class Producing:
    """A producer that runs until the end of the block; `produced` has the offsets of each partition."""

    def __init__(self, front: Front) -> None:
        self.produced: dict[int, set[int]] = {}
        self._topic = front.topic
        self._producer = confluent_kafka.Producer({"bootstrap.servers": front.broker.bootstrap})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producing", daemon=True)

    def __enter__(self) -> "Producing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        def arrived(_error: object, message: confluent_kafka.Message) -> None:
            self.produced.setdefault(int(message.partition() or 0), set()).add(int(message.offset() or 0))

        while not self._ending.wait(0.02):
            for partition in ALL:
                self._producer.produce(self._topic, b"order", partition=partition, on_delivery=arrived)
            self._producer.poll(0)
        self._producer.flush(30)


class Application:
    """Processes of one group, connected to the cluster or to the sidecar; `everybody` includes those that ended."""

    def __init__(self, front: Front, bootstrap: str, *kinds: type[Owner]) -> None:
        self.group_id = new_name(kinds[0].__name__.lower())
        self._front = front
        self.running: list[Owner] = []
        self.everybody: list[Owner] = []
        for kind in kinds:
            self.start(kind, bootstrap)
        self.until_shared()

    def start(self, kind: type[Owner], bootstrap: str) -> None:
        name = f"process {len(self.everybody)}"
        process = kind(name, bootstrap, self.group_id, self._front.topic).start()
        self.running.append(process)
        self.everybody.append(process)

    def restart_one_by_one(self, bootstrap: str) -> None:
        """A rolling restart, each process with another bootstrap address."""
        for process in list(self.running):
            self.running.remove(process)
            process.end()
            self.start(type(process), bootstrap)
            self.until_shared()

    def until_shared(self) -> None:
        """Wait until each process has a partition, and each partition an owner."""

        def shared() -> bool:
            assert [each.error for each in self.everybody if each.error] == []
            shares = [each.owned for each in self.running]
            return all(shares) and sum(map(len, shares)) == PARTITIONS and set().union(*shares) == ALL

        until_so(shared, lambda: [(each.name, each.owned) for each in self.running])

    def until_consumed(self, produced: dict[int, set[int]]) -> None:
        def done() -> bool:
            together = consumed(self.everybody)
            return all(produced[partition] <= together.get(partition, set()) for partition in produced)

        until_so(done, lambda: {p: sorted(produced[p] - consumed(self.everybody).get(p, set()))[:5] for p in produced})

    def move(self, to: str) -> GroupMove:
        async def ask() -> GroupMove:
            async with GroupAdmin(self._front.muster.bootstrap) as admin:
                return await move_group(admin, self.group_id, to)

        return asyncio.run(ask())

    @property
    def protocol_type_upstream(self) -> str:
        return str(described(self._front.broker.bootstrap, self.group_id)["protocol_type"])

    def end(self) -> None:
        for process in self.running:
            process.end()


@pytest.mark.parametrize("kind", [ConfluentOwner, JavaOwner, CooperativeJavaOwner])
def test_a_live_group_moves_there_and_back(front: Front, kind: type[Owner]) -> None:
    """Behind the sidecar one by one, adopted, released, and away from it one by one."""
    processes = 3 if kind is ConfluentOwner else 2
    with Producing(front) as producing:
        application = Application(front, front.broker.bootstrap, *[kind] * processes)
        try:
            application.restart_one_by_one(front.muster.bootstrap)
            assert application.protocol_type_upstream == "consumer"
            adopted = application.move(MUSTER)
            assert (adopted.state, adopted.members, adopted.back) == (MoveState.DONE, processes, processes)
            application.until_shared()
            until_so(lambda: application.protocol_type_upstream == SHADOW, lambda: application.protocol_type_upstream)
            released = application.move(UPSTREAM)
            assert (released.state, released.members, released.back) == (MoveState.DONE, processes, processes)
            application.until_shared()
            assert application.protocol_type_upstream == "consumer"
            application.restart_one_by_one(front.broker.bootstrap)
            producing.__exit__()
            application.until_consumed(producing.produced)
        finally:
            application.end()
    assert overlaps(application.everybody) == []
    assert_nothing_committed_is_lost(front, application)


def test_a_process_that_is_busy_is_waited_for(front: Front) -> None:
    """The other one has long revoked its partitions and rejoined; it gets none while the busy one works."""
    with Producing(front):
        application = Application(front, front.muster.bootstrap, ConfluentOwner, BusyOwner)
        try:
            for to in (UPSTREAM, MUSTER, UPSTREAM):
                moved = application.move(to)
                assert moved.state is MoveState.DONE
                application.until_shared()
        finally:
            application.end()
    assert overlaps(application.everybody) == []


def assert_nothing_committed_is_lost(front: Front, application: Application) -> None:
    """The group's offsets are the last commits, which never went backwards."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": front.broker.bootstrap, "group.id": application.group_id})
    positions = [confluent_kafka.TopicPartition(front.topic, partition) for partition in ALL]
    committed = {each.partition: each.offset for each in consumer.committed(positions, 30)}
    consumer.close()
    assert committed == acknowledged(application.everybody)
