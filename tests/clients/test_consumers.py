"""Consumers of each library against Muster: they join, share a topic, commit, leave, restart, and outlive its crash."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from uuid import uuid4

import pytest

from tests.clients.conftest import PARTITIONS, TOPIC
from tests.clients.consumers import LIBRARIES, Confluent, RunningConsumer
from tests.clients.probe import described, generation_of, remove_static_members, until, until_stable
from tests.muster_process import MusterProcess

pytestmark = pytest.mark.clients

ALL = frozenset(range(PARTITIONS))


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.__name__)
def library(request: pytest.FixtureRequest) -> type[RunningConsumer]:
    """The class of a library's consumer."""
    chosen: type[RunningConsumer] = request.param
    return chosen


class Crew:
    """The consumers of one group."""

    def __init__(self, muster: MusterProcess, library: type[RunningConsumer]) -> None:
        self.group_id = f"{library.__name__.lower()}-{uuid4().hex[:8]}"
        self.bootstrap = muster.bootstrap
        self.consumers: list[RunningConsumer] = []
        self._library = library

    def add(self, instance: str | None = None) -> RunningConsumer:
        """A process more; not yet a member."""
        consumer = self._library(self.bootstrap, self.group_id, TOPIC, instance=instance).start()
        self.consumers.append(consumer)
        return consumer

    def close(self, consumer: RunningConsumer) -> None:
        """Close one in good order."""
        self.consumers.remove(consumer)
        consumer.close()

    def shares(self) -> list[list[int]]:
        return [sorted(consumer.assigned) for consumer in self.consumers]

    def until_shared(self) -> None:
        """Wait until each partition belongs to one of them, and each of them has as many as the others."""

        def shared() -> bool:
            assert [consumer.error for consumer in self.consumers if consumer.error] == []
            even = {len(consumer.assigned) for consumer in self.consumers} == {PARTITIONS // len(self.consumers)}
            return even and sorted(partition for share in self.shares() for partition in share) == sorted(ALL)

        until(shared, lambda: (self.shares(), described(self.bootstrap, self.group_id)))
        until_stable(self.bootstrap, self.group_id, members=len(self.consumers))

    def end(self) -> None:
        """Close whoever is left, whatever has become of them."""
        for consumer in self.consumers:
            consumer.end()

    def until_empty(self) -> None:
        """Wait until nobody is a member."""
        until(lambda: not described(self.bootstrap, self.group_id)["members"], lambda: "there are members left")

    @property
    def generation(self) -> int:
        return generation_of(self.bootstrap, self.group_id)

    @property
    def assignments(self) -> Sequence[int]:
        return [consumer.assignments for consumer in self.consumers]


@contextmanager
def crew(muster: MusterProcess, library: type[RunningConsumer]) -> Iterator[Crew]:
    """Consumers of one library in a new group; whoever is left at the end is closed."""
    running = Crew(muster, library)
    with ExitStack() as stack:
        stack.callback(running.end)
        yield running
        for consumer in list(running.consumers):
            running.close(consumer)


def test_dynamic_members_share_a_topic(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """One alone, three together, two after one has left, three again."""
    with crew(muster, library) as group:
        first = group.add()
        group.until_shared()
        assert first.assigned == ALL
        group.add()
        third = group.add()
        group.until_shared()
        before = group.generation
        group.close(third)
        group.until_shared()
        assert group.generation > before
        group.add()
        group.until_shared()
    group.until_empty()


def test_committed_offsets_are_there_for_who_comes_after(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """A group's offsets outlive its members, and a restart of the coordinator."""
    with crew(muster, library) as group:
        first, second = group.add(), group.add()
        group.until_shared()
        for consumer in (first, second):
            for partition in consumer.assigned:
                consumer.commit(partition, 100 + partition)
        assert first.committed(min(second.assigned)) == 100 + min(second.assigned)
        group.close(first)
        group.close(second)
        group.until_empty()
        muster.restart()
        third = group.add()
        group.until_shared()
        assert [third.committed(partition) for partition in sorted(ALL)] == [100 + each for each in sorted(ALL)]


def test_a_static_restart_is_noticed_by_nobody_else(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """Same generation, same share, same offsets, no assignment of the others; whoever leads."""
    with crew(muster, library) as group:
        names = ("a", "b", "c")
        for name in names:
            group.add(name)
        group.until_shared()
        generation = group.generation
        for name in names:
            old = next(consumer for consumer in group.consumers if consumer.instance == name)
            share, others = old.assigned, [c for c in group.consumers if c is not old]
            noticed = [consumer.assignments for consumer in others]
            old.commit(min(share), 7)
            group.close(old)
            assert len(described(muster.bootstrap, group.group_id)["members"]) == 3
            new = group.add(name)
            group.until_shared()
            assert new.assigned == share
            assert new.committed(min(share)) == 7
            assert [consumer.assignments for consumer in others] == noticed
        assert group.generation == generation
        gone = group.consumers[0]
        group.close(gone)
        assert remove_static_members(muster.bootstrap, group.group_id, str(gone.instance)) == [0]
        group.until_shared()
        assert group.generation > generation


def test_the_coordinator_is_killed_and_no_group_rebalances(muster: MusterProcess) -> None:
    """Groups of each library, static and dynamic: same generation, same shares, and they go on committing."""
    with ExitStack() as stack:
        groups = []
        for library in LIBRARIES:
            group = stack.enter_context(crew(muster, library))
            for instance in ("a", "b", None):
                group.add(instance)
            groups.append(group)
        for group in groups:
            group.until_shared()
        before = [(group.generation, group.shares(), group.assignments) for group in groups]
        muster.kill()
        muster.start()
        for number, group in enumerate(groups):
            for consumer in group.consumers:
                partition = min(consumer.assigned)
                until_committed(consumer, partition, 1_000 + number)
                assert consumer.committed(partition) == 1_000 + number
        assert [(group.generation, group.shares(), group.assignments) for group in groups] == before
        assert [consumer.error for group in groups for consumer in group.consumers] == [None] * 9


def until_committed(consumer: RunningConsumer, partition: int, offset: int) -> None:
    """Commit as an application does: again, while the coordinator cannot be reached."""
    refused: list[BaseException] = []

    def committed() -> bool:
        try:
            consumer.commit(partition, offset)
        except Exception as error:  # noqa: BLE001 -- each library has its own, and some are retried
            refused.append(error)
            return False
        return True

    until(committed, lambda: refused[-1])


def test_two_processes_with_one_instance_id_and_the_older_is_fenced(muster: MusterProcess) -> None:
    """librdkafka tells the older one so, for good."""
    with crew(muster, Confluent) as group:
        older = group.add("a")
        group.until_shared()
        newer = group.add("a")
        until(lambda: older.error is not None, lambda: "the older one goes on")
        assert "fenced" in str(older.error).lower()
        group.consumers.remove(older)
        group.until_shared()
        assert newer.assigned == ALL
