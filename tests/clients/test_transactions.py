"""Consuming, transforming and producing in transactions, on a real Kafka: the results that an application sees."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.brokers.broker import Broker
from tests.brokers.java_tools import JavaTool, run_tool
from tests.brokers.probes import WITHIN_S, make_topics
from tests.clients.transactions import copying, values
from tests.waiting import until_so


class Story:
    """Two topics with one partition each, three records in the first, and a group for one test."""

    def __init__(self, bootstrap: str) -> None:
        self.properties: Mapping[str, Any] = {"bootstrap.servers": bootstrap}
        name = uuid4().hex[:8]
        self.settings = {"group_id": f"copiers-{name}", "source": f"source-{name}", "target": f"target-{name}"}
        make_topics(self.properties, self.settings["source"], self.settings["target"])
        producer = Producer(dict(self.properties))
        for value in (b"a", b"b", b"c"):
            producer.produce(self.settings["source"], value)
        assert producer.flush(WITHIN_S) == 0

    def copied(self, isolation_level: str = "read_committed") -> list[bytes]:
        return values(self.properties, self.settings["target"], isolation_level=isolation_level)


@pytest.fixture
def story(kafka_broker: Broker) -> Story:
    return Story(kafka_broker.bootstrap)


class TestCopier:
    """confluent-kafka's."""

    def test_records_and_offsets_count_at_once(self, story: Story) -> None:
        """Neither is visible before the commit, all are afterwards."""
        with copying(story.properties, transactional_id=uuid4().hex, **story.settings) as app:
            assert app.transform(2) == [b"a", b"b"]
            assert app.assigned == {0}
            app.send_offsets()
            assert story.copied() == []
            app.commit()
            assert story.copied() == [b"A", b"B"]
            assert app.committed(0) == 2
        with copying(story.properties, transactional_id=uuid4().hex, **story.settings) as app:
            assert app.transform(1) == [b"c"]

    def test_an_aborted_transaction_was_nothing(self, story: Story) -> None:
        """Its records are skipped, its offsets dropped, and its input is consumed again."""
        with copying(story.properties, transactional_id=uuid4().hex, **story.settings) as app:
            assert app.transform(2) == [b"a", b"b"]
            app.send_offsets()
            app.abort()
            assert app.committed(0) is None
            assert app.transform(3) == [b"a", b"b", b"c"]
            app.send_offsets()
            app.commit()
            assert app.committed(0) == 3
        assert story.copied() == [b"A", b"B", b"C"]
        assert story.copied("read_uncommitted")[-3:] == [b"A", b"B", b"C"]

    def test_offsets_of_an_old_generation_are_refused(self, story: Story) -> None:
        """They do not belong to the current generation; the application aborts, and continues."""
        with copying(story.properties, transactional_id=uuid4().hex, **story.settings) as app:
            app.transform(1)
            before = app.metadata()
            with copying(story.properties, transactional_id=uuid4().hex, **story.settings) as other:

                def both_polled() -> bool:
                    app.poll()
                    other.poll()
                    return {*app.assigned, *other.assigned} == {0} and app.metadata() != before

                until_so(both_polled, lambda: (app.assigned, other.assigned))
                with pytest.raises(KafkaException) as refused:
                    app.send_offsets(metadata=before)
                error: KafkaError = refused.value.args[0]
                assert error.code() == KafkaError.ILLEGAL_GENERATION
                assert error.txn_requires_abort()


class TestJava:
    """Kafka's own tool for this."""

    def test_the_java_client_copies_in_transactions(self, story: Story) -> None:
        """All records once, and the group's offset with them."""
        names = {"input-topic": "source", "output-topic": "target", "consumer-group": "group_id"}
        options = [part for option, name in names.items() for part in (f"--{option}", story.settings[name])]
        server = ("--broker-list", story.properties["bootstrap.servers"], "--transactional-id", uuid4().hex)
        counts = ("--input-partition", "0", "--max-messages", "3", "--transaction-size", "2")
        done = run_tool(
            JavaTool.TRANSACTIONAL_MESSAGE_COPIER, *server, *options, *counts, "--group-mode", "--enable-random-aborts"
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["consumed"] >= 3
        assert story.copied() == [b"a", b"b", b"c"]
