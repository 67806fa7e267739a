"""Each script on a real Kafka and on Muster: the transcripts are equal."""

import asyncio
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.brokers import Broker
from tests.conformance import scripts_joining  # noqa: F401 -- registers its scripts
from tests.conformance.eras import Era
from tests.conformance.member import TOPICS
from tests.conformance.script import SCRIPTS, Script
from tests.conformance.stage import CONDITION_WITHIN_S, LOOK_EVERY_S, Server, Stage
from tests.conformance.transcript import Transcript, difference
from tests.conformance.wire import Connection, ms
from tests.muster_process import MusterProcess, running_muster

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def muster() -> Iterator[MusterProcess]:
    """Muster, with the topics that the scripts declare."""
    with running_muster(log="memory:", topics=[f"{topic}:{partitions}" for topic, partitions in TOPICS.items()]) as it:
        yield it


@pytest.fixture(scope="module")
def kafka_server(kafka_broker: Broker) -> Server:
    """A real Kafka that has the topics."""
    return asyncio.run(_server(kafka_broker.bootstrap, is_kafka=True))


@pytest.fixture(scope="module")
def muster_server(muster: MusterProcess) -> Server:
    """Muster, at its address."""
    return asyncio.run(_server(muster.bootstrap, is_kafka=False))


async def _server(bootstrap: str, *, is_kafka: bool) -> Server:
    connection = await Connection.open(bootstrap)
    if is_kafka:
        topics = [
            {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}
            for name, partitions in TOPICS.items()
        ]
        created = await connection.ask("CreateTopics", 5, topics=topics, timeout=ms(20_000), validate_only=False)
        assert {topic["error_code"] for topic in created["topics"]} <= {0, 36}, created
    topic_ids = await _topic_ids(connection)
    connection.close()
    return Server(is_kafka=is_kafka, bootstrap=bootstrap, topic_ids=topic_ids)


async def _topic_ids(connection: Connection) -> dict[str, str]:
    deadline = time.monotonic() + CONDITION_WITHIN_S
    while True:
        answer = await connection.ask(
            "Metadata",
            12,
            topics=[{"topic_id": None, "name": name} for name in TOPICS],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        if all(len(topic["partitions"]) == TOPICS[topic["name"]] for topic in answer["topics"]):
            return {topic["name"]: topic["topic_id"] for topic in answer["topics"]}
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(LOOK_EVERY_S)


async def _played(script: Script, server: Server, era: Era) -> Transcript:
    stage = Stage(server, era)
    try:
        await stage.ready()
        await script.play(stage)
    except Exception as error:
        error.add_note(f"on {'Kafka' if server.is_kafka else 'Muster'}, era {era}, after\n" + "\n".join(stage.transcript.lines))
        raise
    finally:
        stage.end()
    return stage.transcript


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_both_servers_give_the_same_answers(script: Script, kafka_server: Server, muster_server: Server) -> None:
    """In each era of the script."""
    assert set(script.topics) <= set(TOPICS)
    servers: Sequence[Server] = (kafka_server, muster_server)
    async with asyncio.TaskGroup() as group:
        runs = {
            era: [group.create_task(_played(script, server, era)) for server in servers] for era in script.eras
        }
    differences = []
    for era, (kafka, muster) in runs.items():
        text = difference(kafka.result(), muster.result())
        if text:
            differences.append(f"{script.name} ({script.rules}) in era {era}\n{text}")
    if differences:
        pytest.fail("\n\n".join(differences), pytrace=False)
