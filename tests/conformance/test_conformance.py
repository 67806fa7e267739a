"""Each script on a real Kafka and on Muster: the transcripts are equal."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from traceback import format_exception

import msgspec
import pytest

from tests.brokers import Broker
from tests.conformance import (  # noqa: F401 -- each registers its scripts
    scripts_admin,
    scripts_joining,
    scripts_leaving,
    scripts_offsets,
    scripts_static,
)
from tests.conformance.eras import Era
from tests.conformance.member import TOPICS
from tests.conformance.script import SCRIPTS, Script
from tests.conformance.stage import CONDITION_WITHIN_S, LOOK_EVERY_S, Server, Stage
from tests.conformance.transcript import Transcript, difference
from tests.conformance.wire import Connection, ms
from tests.muster_process import MusterProcess, running_muster

pytestmark = pytest.mark.broker

AT_A_TIME = 24


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


class Played(msgspec.Struct, frozen=True):
    """A script on one server in one era: what was said, and why it could not go on."""

    transcript: Transcript
    failure: str


async def _play(script: Script, server: Server, era: Era, places: asyncio.Semaphore) -> Played:
    failure = ""
    async with places:
        stage = Stage(server, era)
        try:
            await stage.ready()
            await script.play(stage)
            stage.end()
        except (AssertionError, OSError) as error:
            where = f"{script.name} on {'Kafka' if server.is_kafka else 'Muster'}, in era {era}"
            told = "\n".join(stage.transcript.lines)
            failure = f"{where}: {''.join(format_exception(error))}\nafter\n{told}"
        finally:
            stage.hang_up()
    return Played(stage.transcript, failure)


async def _play_all(scripts: Sequence[Script], servers: Sequence[Server]) -> dict[tuple[str, Era], Sequence[Played]]:
    places = asyncio.Semaphore(AT_A_TIME)

    async def on_both(script: Script, era: Era) -> tuple[tuple[str, Era], Sequence[Played]]:
        return (script.name, era), await asyncio.gather(*(_play(script, server, era, places) for server in servers))

    return dict(await asyncio.gather(*(on_both(script, era) for script in scripts for era in script.eras)))


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, kafka_server: Server, muster_server: Server
) -> dict[tuple[str, Era], Sequence[Played]]:
    """All scripts that were asked for, many at a time: most of them wait for something, most of the time."""
    asked_for = {item.name for item in request.session.items}
    scripts = [script for script in SCRIPTS if f"{TEST}[{script.name}]" in asked_for]
    return asyncio.run(_play_all(scripts, (kafka_server, muster_server)))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_both_servers_give_the_same_answers(
    script: Script, played: dict[tuple[str, Era], Sequence[Played]]
) -> None:
    """In each era of the script."""
    wrong = []
    for era in script.eras:
        kafka, muster = played[script.name, era]
        failures = [each.failure for each in (kafka, muster) if each.failure]
        text = difference(kafka.transcript, muster.transcript)
        if failures:
            wrong += failures
        elif text:
            wrong.append(f"{script.name} ({script.rules}) in era {era}\n{text}")
    if wrong:
        pytest.fail("\n\n".join(wrong), pytrace=False)


def test_scripts_declare_topics_that_both_servers_have(kafka_server: Server, muster_server: Server) -> None:
    """What a script declares is there."""
    declared = {topic for script in SCRIPTS for topic in script.topics}
    assert declared <= set(kafka_server.topic_ids)
    assert declared <= set(muster_server.topic_ids)


TEST = test_both_servers_give_the_same_answers.__name__
