"""Each script on a real Kafka and on Muster: the transcripts are equal."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from traceback import format_exception

import msgspec
import pytest

from tests.brokers import Broker, running_broker
from tests.conformance import (  # noqa: F401 -- each registers its scripts
    scripts_admin,
    scripts_initial_delay,
    scripts_joining,
    scripts_leaving,
    scripts_max_size,
    scripts_offsets,
    scripts_rebalancing,
    scripts_static,
)
from tests.conformance.eras import Era
from tests.conformance.script import SCRIPTS, Script
from tests.conformance.servers import NARROW, Pair, Server, Setup, pair_with
from tests.conformance.stage import Stage
from tests.conformance.transcript import Transcript, difference

# The first test waits for all scripts: a minute, on a machine that does nothing else.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

AT_A_TIME = 24

Plays = Mapping[tuple[str, Era], Sequence["Played"]]
"""By the script's name and the era: on Kafka, then on Muster."""


class Played(msgspec.Struct, frozen=True):
    """A script on one server in one era: what was said, and why it could not go on."""

    transcript: Transcript
    failure: str


@pytest.fixture(scope="module")
def usual(kafka_broker: Broker) -> Iterator[Pair]:
    """The broker that all tests share."""
    with pair_with(kafka_broker, {}) as pair:
        yield pair


@pytest.fixture(scope="module")
def narrow(kafka_broker: Broker) -> Iterator[Pair]:
    """A broker of our own, since these settings are not for everybody."""
    with running_broker(how="process", settings=NARROW) as broker, pair_with(broker, NARROW) as pair:
        yield pair


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> Plays:
    """All scripts that were asked for, many at a time: most of them wait for something, most of the time."""
    asked_for = {item.name for item in request.session.items}
    scripts = [script for script in SCRIPTS if f"{TEST}[{script.name}]" in asked_for]
    setups = sorted({script.setup for script in scripts})
    return asyncio.run(_play_all(scripts, {setup: request.getfixturevalue(setup) for setup in setups}))


async def _play_all(scripts: Sequence[Script], pairs: Mapping[Setup, Pair]) -> Plays:
    places = asyncio.Semaphore(AT_A_TIME)

    async def on_both(script: Script, era: Era) -> tuple[tuple[str, Era], Sequence[Played]]:
        servers = pairs[script.setup]
        return (script.name, era), await asyncio.gather(*(_play(script, server, era, places) for server in servers))

    return dict(await asyncio.gather(*(on_both(script, era) for script in scripts for era in script.eras)))


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


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_both_servers_give_the_same_answers(script: Script, played: Plays) -> None:
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


TEST = test_both_servers_give_the_same_answers.__name__
