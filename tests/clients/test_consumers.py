"""Consumers of each library against Muster: they join, share a topic, commit, leave, restart, and survive its crash."""

from contextlib import ExitStack

import pytest

from tests.clients.consumers import LIBRARIES, Confluent, RunningConsumer
from tests.clients.crew import ALL, crew
from tests.clients.probe import described, remove_static_members
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients


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


def test_committed_offsets_are_there_for_the_next_consumer(
    muster: MusterProcess, library: type[RunningConsumer]
) -> None:
    """A group's offsets survive its members, and a restart of the coordinator."""
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


def test_a_static_restart_does_not_disturb_other_members(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """Same generation, same share, same offsets, no assignment of the others; with any leader."""
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
    """Groups of each library, static and dynamic: same generation, same shares, and they continue to commit."""
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
    """Commit like an application, which retries while the coordinator cannot be reached."""
    refused: list[BaseException] = []

    def committed() -> bool:
        try:
            consumer.commit(partition, offset)
        except Exception as error:  # noqa: BLE001 -- each library has its own, and some are retried
            refused.append(error)
            return False
        return True

    until_so(committed, lambda: refused[-1])


def test_two_processes_with_one_instance_id_and_the_older_is_fenced(muster: MusterProcess) -> None:
    """librdkafka reports it to the older one as a fatal error."""
    with crew(muster, Confluent) as group:
        older = group.add("a")
        group.until_shared()
        newer = group.add("a")
        until_so(lambda: older.error is not None, lambda: "the older one goes on")
        assert "fenced" in str(older.error).lower()
        group.consumers.remove(older)
        group.until_shared()
        assert newer.assigned == ALL
