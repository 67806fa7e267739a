"""Several processes share the partitions of one event log in Kafka: clients find the owner, and survive its end."""

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from uuid import uuid4

import pytest

from tests import sharing_processes
from tests.brokers.broker import Broker
from tests.clients.conftest import PARTITIONS, TOPIC
from tests.clients.consumers import RunningConsumer
from tests.clients.crew import Crew, crew
from tests.clients.probe import coordinator_of, described
from tests.muster_process import MusterProcess, running_muster
from tests.sharing_processes import sharing_process
from tests.waiting import until_so

pytestmark = [
    pytest.mark.clients,
    pytest.mark.broker,
    pytest.mark.skipif(os.environ.get("MUSTER_TEST_NO_KAFKA") == "1", reason="no Kafka is wanted"),
]

LOG_PARTITIONS = 4


@pytest.fixture
def log(kafka_broker: Broker) -> str:
    return f"kafka://{kafka_broker.bootstrap}/shared-{uuid4().hex[:8]}"


def node(log: str, node_id: int) -> AbstractContextManager[MusterProcess]:
    return sharing_process(log, node_id, partitions=LOG_PARTITIONS, topics=[f"{TOPIC}:{PARTITIONS}"])


until_shared = partial(sharing_processes.until_shared, partitions=LOG_PARTITIONS)


@contextmanager
def crews_of_all(processes: list[MusterProcess], library: type[RunningConsumer]) -> Iterator[list[Crew]]:
    """A stable group of two consumers at each process, although all of them only know the first process."""
    requested = processes[0]
    with ExitStack() as stack:
        groups: dict[str, Crew] = {}
        while len(groups) < len(processes):
            group = stack.enter_context(crew(requested, library))
            coordinator = coordinator_of(requested.bootstrap, group.group_id)
            assert {coordinator_of(each.bootstrap, group.group_id) for each in processes} == {coordinator}
            groups.setdefault(coordinator, group)
        assert set(groups) == {each.bootstrap for each in processes}
        for group in groups.values():
            group.add("a")
            group.add("b")
        for group in groups.values():
            group.until_shared()
        yield list(groups.values())


def states(groups: list[Crew], requested: MusterProcess) -> list[object]:
    """Everything that must not change for clients: the state, the members and their shares."""
    seen = [described(requested.bootstrap, group.group_id) for group in groups]
    return [
        (each["group_state"], sorted((member["member_id"], member["member_assignment"]) for member in each["members"]))
        for each in seen
    ]


def test_no_consumer_notices_which_process_coordinates_its_group(log: str, library: type[RunningConsumer]) -> None:
    """Another process joins, one is killed, comes back, and one stops cleanly: no group rebalances."""
    with node(log, 1) as first, node(log, 2) as second:
        until_shared(first, second)
        with crews_of_all([first, second], library) as groups:
            before, assigned = states(groups, first), [group.assignments for group in groups]
            triggers = [group.triggers for group in groups]
            first.kill()
            until_shared(second)
            assert [each["then"] for each in second.events("peer process ended")] == [
                "removed from the ownership group"
            ]
            until_so(lambda: states(groups, second) == before, lambda: states(groups, second))
            first.start()
            until_shared(first, second)
            second.stop()
            until_shared(first)
            assert first.events("peer process ended") == []  # it stopped cleanly
            until_so(lambda: states(groups, first) == before, lambda: states(groups, first))
            for group in groups:
                group.consumers[0].commit(0, 7)
                assert group.consumers[1].committed(0) == 7
            assert [group.assignments for group in groups] == assigned
            assert [group.triggers for group in groups] == triggers


def test_a_process_stopped_for_longer_than_its_session_rejoins(log: str) -> None:
    """It finds that others own its partitions, disturbs nothing of theirs, and gets its share again."""
    with node(log, 1) as first, node(log, 2) as second:
        until_shared(first, second)
        os.kill(first.pid, signal.SIGSTOP)
        try:
            until_shared(second)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        until_so(lambda: len(first.events("partitions shared")) > 1, lambda: first.events("partitions shared"))
        until_shared(first, second)
        assert coordinator_of(first.bootstrap, "g") == coordinator_of(second.bootstrap, "g")
        assert (first.stop(), second.stop()) == (0, 0)


def test_a_second_process_of_one_node_id_ends_the_first(log: str) -> None:
    """It logs the reason, and must not be restarted, or each would end the other; the second one continues."""
    with node(log, 1) as first, node(log, 1) as second:
        assert first.wait() == 2
        assert "give each process of a log its own --node-id" in first.output
        until_shared(second)
        assert coordinator_of(second.bootstrap, "g") == second.bootstrap


def test_a_sharing_process_takes_the_partitions_from_a_lone_one(log: str) -> None:
    """A process without --share-partitions ends when it is deposed, as before."""
    options = ["--log-partitions", str(LOG_PARTITIONS)]
    with running_muster(log=log, topics=[TOPIC], options=options) as alone, node(log, 1) as sharing:
        until_shared(sharing)
        assert alone.wait() == 1
        assert coordinator_of(sharing.bootstrap, "g") == sharing.bootstrap
