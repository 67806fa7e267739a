"""Brokers are killed and restarted, and the sidecar itself: clients continue, and no group is affected.

Offsets of groups without members expire after a minute here; the last test waits for that.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, Final
from uuid import uuid4

import aiokafka.errors
import confluent_kafka
import kafka.errors
import pytest

from tests.brokers.cluster import Cluster, running_cluster
from tests.clients.conftest import PARTITIONS
from tests.clients.consumers import Aiokafka, Confluent, KafkaPython, RunningConsumer
from tests.clients.probe import coordinator_of, described, generation_of, until_stable
from tests.clients.through_sidecar.sidecar import (
    assert_is_owned,
    new_topic,
    offsets_at,
    produce,
    running_sidecar,
)
from tests.conformance.servers import EXPIRING
from tests.muster_process import MusterProcess
from tests.waiting import until_so

# A broker's restart takes a while on a busy machine.
pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

WITHIN_S: Final = 120
LIBRARY_ERRORS: Final = (confluent_kafka.KafkaException, kafka.errors.KafkaError, aiokafka.errors.KafkaError)


class PatientKafkaPython(KafkaPython):
    """Its `poll` raises when no known address responds; an application polls again."""

    unreached = 0
    """The number of such errors."""

    def _poll(self) -> None:
        try:
            super()._poll()
        except kafka.errors.KafkaConnectionError:
            self.unreached += 1


LIBRARIES: Final[tuple[type[RunningConsumer], ...]] = (Confluent, Aiokafka, PatientKafkaPython)


class Group:
    """A group of two static members of one library, which keep their partitions, whatever happens."""

    def __init__(self, bootstrap: str, library: type[RunningConsumer], group_id: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self.group_id = group_id
        self.consumers = [library(bootstrap, group_id, topic, instance=name) for name in ("one", "two")]
        self._at_first: list[Any] = []

    def start(self) -> None:
        """Return when each has its half."""
        for consumer in self.consumers:
            consumer.start()
        until_so(lambda: [len(each.assigned) for each in self.consumers] == [PARTITIONS // 2] * 2, self.errors)
        until_stable(self._bootstrap, self.group_id, members=2)
        self._at_first = self._standing()

    def errors(self) -> list[BaseException | None]:
        return [consumer.error for consumer in self.consumers]

    def assert_nothing_happened(self) -> None:
        """Same generation, same members, and none of them got another assignment."""
        assert self.errors() == [None, None]
        assert self._standing() == self._at_first

    def consume_and_commit(self, value: str, offset: int) -> None:
        """Wait until each partition's record with this value is consumed, and commit."""

        def consumed() -> set[int]:
            assert self.errors() == [None, None]
            return {each.partition for one in self.consumers for each in one.records if each.value == value}

        until_so(lambda: len(consumed()) == PARTITIONS, consumed, within_s=WITHIN_S)
        for consumer in self.consumers:
            for partition in consumer.assigned:
                until_so(*attempts(consumer, partition, offset), within_s=WITHIN_S)

    def end(self) -> None:
        for consumer in self.consumers:
            consumer.end()

    def _standing(self) -> list[Any]:
        members = sorted(each["member_id"] for each in described(self._bootstrap, self.group_id)["members"])
        generation = generation_of(self._bootstrap, self.group_id)
        return [generation, members, [consumer.assignments for consumer in self.consumers]]


def attempts(consumer: RunningConsumer, partition: int, offset: int) -> tuple[Callable[[], bool], Callable[[], object]]:
    """Commit like an application, which retries until the new coordinator is found."""
    refused: list[Exception] = []

    def attempt() -> bool:
        try:
            consumer.commit(partition, offset)
        except LIBRARY_ERRORS as error:
            refused.append(error)
            return False
        return True

    return attempt, lambda: refused[-1:]


class Front:
    """A sidecar in front of the module's own cluster: each broker coordinates a group."""

    def __init__(self, cluster: Cluster, muster: MusterProcess) -> None:
        self.cluster, self.muster = cluster, muster
        self.topic = new_topic(muster.bootstrap)
        self.coordinators = {coordinator: group_id for group_id, coordinator in self._found().items()}
        self.groups = [
            Group(muster.bootstrap, library, group_id, self.topic)
            for library, group_id in zip(LIBRARIES, self.coordinators.values(), strict=True)
        ]
        self._rounds = count(1)

    def _found(self) -> dict[str, str]:
        """Group ids, one for each coordinator."""
        first = self.cluster.address(self.cluster.nodes[0])
        found: dict[str, str] = {}
        while set(found) != {self.cluster.address(node) for node in self.cluster.nodes}:
            group_id = uuid4().hex
            found[coordinator_of(first, group_id)] = group_id
        return {group_id: coordinator for coordinator, group_id in found.items()}

    def goes_on(self) -> None:
        """Committed offsets are there, new records are consumed and committed, and no group was affected."""
        offset = next(self._rounds)
        if offset > 1:
            self.has_offsets(offset - 1)
        produce(self.muster.bootstrap, self.topic, f"round {offset}")
        for group in self.groups:
            group.consume_and_commit(f"round {offset}", offset)
        self.has_offsets(offset)
        for group in self.groups:
            group.assert_nothing_happened()
            assert_is_owned(self.cluster.bootstrap, group.group_id)

    def has_offsets(self, offset: int) -> None:
        """The offsets of all groups are in the cluster itself."""
        for group in self.groups:
            offsets = offsets_at(self.cluster.bootstrap, group.group_id, self.topic)
            assert offsets == dict.fromkeys(range(PARTITIONS), offset)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """They log each attempt to reach a broker that is down, a thousand lines."""
    loggers = [logging.getLogger(name) for name in ("kafka", "aiokafka")]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for each in loggers:
            each.setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    """Three groups, one of each library, each with another coordinator, all consuming."""
    with quiet_libraries(), ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(settings=EXPIRING))
        muster = stack.enter_context(running_sidecar(cluster.bootstrap, nodes=cluster.nodes))
        front = Front(cluster, muster)
        for group in front.groups:
            stack.callback(group.end)
            group.start()
        front.goes_on()
        yield front


@pytest.fixture(scope="module")
def idle(front: Front) -> Iterator[Group]:
    """A group that commits once, before anything else happens."""
    group = Group(front.muster.bootstrap, Confluent, uuid4().hex, front.topic)
    group.start()
    yield group
    group.end()


@pytest.fixture(scope="module")
def expiring(front: Front, idle: Group) -> str:
    """A group without members that has committed after the idle one, bypassing the sidecar."""
    idle.consumers[0].commit(min(idle.consumers[0].assigned), 1)
    group_id = uuid4().hex
    nobody = confluent_kafka.Consumer({"bootstrap.servers": front.cluster.bootstrap, "group.id": group_id})
    nobody.commit(offsets=[confluent_kafka.TopicPartition(front.topic, 0, 1)], asynchronous=False)
    nobody.close()
    assert offsets_at(front.cluster.bootstrap, group_id, front.topic) == {0: 1}
    return group_id


@pytest.mark.usefixtures("expiring")
class TestFailures:
    """Each test leaves everything unchanged."""

    def test_a_coordinator_is_killed(self, front: Front) -> None:
        """Another broker takes over; its groups, and those whose connections broke, continue."""
        coordinator = next(iter(front.coordinators))
        (victim,) = (node for node in front.cluster.nodes if front.cluster.address(node) == coordinator)
        front.cluster.kill(victim)
        front.cluster.wait_until_brokers_are(front.cluster.serving)
        front.goes_on()
        front.cluster.start(victim)
        front.goes_on()

    def test_a_rolling_restart(self, front: Front) -> None:
        """One broker after the other."""
        for node in front.cluster.nodes:
            front.cluster.stop(node)
            front.cluster.start(node)
            front.goes_on()

    def test_the_sidecar_is_killed(self, front: Front) -> None:
        """It comes back with unchanged groups."""
        front.muster.kill()
        front.muster.start()
        front.goes_on()


def test_offsets_of_an_owned_group_do_not_expire(front: Front, idle: Group, expiring: str) -> None:
    """When younger offsets of a group without members have expired, those of an owned group are still there."""
    bootstrap = front.cluster.bootstrap
    until_so(lambda: not offsets_at(bootstrap, expiring, front.topic), lambda: "they stay", within_s=WITHIN_S)
    assert list(offsets_at(bootstrap, idle.group_id, front.topic).values()) == [1]
