"""The consumers in other languages in groups of a real Kafka: they do what other tests rely on."""

from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.brokers.broker import Broker
from tests.brokers.probes import make_topics
from tests.clients.consumers import Record
from tests.clients.foreign.client import ClientEnded, ForeignClient, Refused, running_client
from tests.clients.foreign.consumers import FOREIGN_LIBRARIES, ForeignConsumer, ForeignError, Kafkajs
from tests.clients.foreign.programs import ToolMissing
from tests.waiting import until_so

PARTITIONS = frozenset(range(4))


@pytest.fixture
def topic(kafka_broker: Broker) -> str:
    """A topic for one test."""
    name = f"foreign-{uuid4().hex[:8]}"
    make_topics({"bootstrap.servers": kafka_broker.bootstrap}, name, partitions=len(PARTITIONS))
    return name


class TestForeignConsumers:
    """kafkajs and franz-go."""

    def test_records_come_back_and_offsets_stay(
        self, kafka_broker: Broker, foreign_library: type[ForeignConsumer], topic: str
    ) -> None:
        """Produced, consumed in a group, committed: the group has the offset, and a wrong partition is refused."""
        with running_client(foreign_library.program, bootstrap=kafka_broker.bootstrap, topic=topic) as producer:
            assert producer.ask("produce", partition=2, value="first") == 0
            assert producer.ask("produce", partition=2, value="second") == 1
        with ExitStack() as stack:
            consumer = foreign_library(kafka_broker.bootstrap, topic, topic)
            consumer.start()
            stack.callback(consumer.end)
            until_so(
                lambda: len(consumer.records) == 2, lambda: (consumer.records, consumer.error, consumer.complaints)
            )
            assert consumer.records == [
                Record(partition=2, offset=0, value="first"),
                Record(partition=2, offset=1, value="second"),
            ]
            assert consumer.assigned == PARTITIONS
            assert consumer.committed(2) is None
            consumer.commit(2, 2)
            assert consumer.committed(2) == 2
            with pytest.raises(Refused):
                consumer.commit(99, 1)
            consumer.close()

    def test_two_share_until_one_leaves(
        self, kafka_broker: Broker, foreign_library: type[ForeignConsumer], topic: str
    ) -> None:
        """Each is assigned half, and the last one everything."""
        with ExitStack() as stack:
            consumers = [foreign_library(kafka_broker.bootstrap, topic, topic) for _ in range(2)]
            for consumer in consumers:
                stack.callback(consumer.start().end)
            first, second = consumers

            def reported() -> object:
                return [(each.assigned, each.error, each.complaints) for each in consumers]

            until_so(lambda: len(first.assigned) == len(second.assigned) == 2, reported)
            assert first.assigned | second.assigned == PARTITIONS
            assert first.member_id != second.member_id
            second.close()
            until_so(lambda: first.assigned == PARTITIONS, reported)
            first.close()


class TestStaticMembers:
    """The libraries that have them."""

    def test_franz_go_rejoins_with_its_member_id(
        self, kafka_broker: Broker, foreign_library: type[ForeignConsumer], topic: str
    ) -> None:
        """With its partitions, in the same generation; kafkajs reports that it cannot."""
        with ExitStack() as stack:
            members = [foreign_library(kafka_broker.bootstrap, topic, topic, instance="one") for _ in range(2)]
            before, after = members
            stack.callback(before.start().end)
            if foreign_library is Kafkajs:
                until_so(lambda: isinstance(before.error, ForeignError), lambda: "it runs")
                return
            until_so(lambda: before.assigned == PARTITIONS, lambda: before.error)
            before.close()
            stack.callback(after.start().end)
            until_so(lambda: after.assigned == PARTITIONS, lambda: after.error)
            after.close()
            assert before.member_id != after.member_id
            assert before.generation_id == after.generation_id == 1


class TestPrograms:
    """How they are built and run."""

    @pytest.mark.parametrize("library", FOREIGN_LIBRARIES)
    def test_a_language_that_is_missing_is_named(
        self, library: type[ForeignConsumer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """With what is not tested without it."""
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ToolMissing, match=f"NOT INSTALLED: NOT TESTED WITH {library.program.library}"):
            library.program.command()

    def test_a_client_that_ends_shows_what_it_complained_of(self, foreign_library: type[ForeignConsumer]) -> None:
        """Its own output is in the error."""
        client = ForeignClient(foreign_library.program, bootstrap=17, topic="none")
        try:
            with pytest.raises(ClientEnded, match="bootstrap"):
                client.wait_for("closed")
        finally:
            client.kill()
