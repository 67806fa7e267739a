"""Plays scripts on both servers, many at a time, and reports their differences."""

import asyncio
import warnings
from collections.abc import Mapping, Sequence
from traceback import format_exception
from typing import Final

import msgspec

from tests.conformance.eras import Era
from tests.conformance.script import Script
from tests.conformance.servers import Pair, Server, Setup
from tests.conformance.stage import Stage
from tests.conformance.transcript import Transcript, difference

AT_A_TIME: Final = 24
SERVERS: Final = 2
AGAIN_MAX: Final = 24
AGAIN_TIMES: Final = 3


class Played(msgspec.Struct, frozen=True):
    """A script on one server in one era: its transcript, and the error that ended it."""

    transcript: Transcript
    failure: str


Plays = Mapping[tuple[str, Era], Sequence[Played]]
"""The plays on Kafka, then on Muster, by the script's name and the era."""


async def play_all(scripts: Sequence[Script], pairs: Mapping[Setup, Pair]) -> Plays:
    """Each script in each of its eras; most of them spend most of the time waiting.

    A failed one is repeated alone, at most `AGAIN_TIMES`: sessions of a second expire on an overloaded machine. A real
    difference is reproducible. Each repetition is reported as a warning.
    """
    plays = dict(await _play(scripts, pairs, at_a_time=AT_A_TIME))
    for _ in range(AGAIN_TIMES):
        wrong = [script for script in scripts if differences(script, plays)]
        if not 0 < len(wrong) <= AGAIN_MAX:
            break
        plays |= await _play(wrong, pairs, at_a_time=SERVERS)
        warnings.warn(f"played once more: {', '.join(script.name for script in wrong)}", stacklevel=2)
    return plays


async def _play(scripts: Sequence[Script], pairs: Mapping[Setup, Pair], *, at_a_time: int) -> Plays:
    places = asyncio.Semaphore(at_a_time)

    async def on_both(script: Script, era: Era) -> tuple[tuple[str, Era], Sequence[Played]]:
        servers = pairs[script.setup]
        return (script.name, era), await asyncio.gather(*(_played(script, server, era, places) for server in servers))

    return dict(await asyncio.gather(*(on_both(script, era) for script in scripts for era in script.eras)))


async def _played(script: Script, server: Server, era: Era, places: asyncio.Semaphore) -> Played:
    failure = ""
    async with places:
        stage = Stage(server, era)
        try:
            await stage.ready()
            await script.play(stage)
            stage.end()
        except (AssertionError, OSError) as error:
            where = f"{script.name} on {'Kafka' if server.is_kafka else 'Muster'}, in era {era}"
            text = "\n".join(stage.transcript.lines)
            failure = f"{where}: {''.join(format_exception(error))}\nafter\n{text}"
        finally:
            stage.hang_up()
    return Played(stage.transcript, failure)


def differences(script: Script, played: Plays) -> list[str]:
    """The script's errors, and the differences of the servers' responses; a text for each era."""
    wrong = []
    for era in script.eras:
        kafka, muster = played[script.name, era]
        failures = [each.failure for each in (kafka, muster) if each.failure]
        text = difference(kafka.transcript, muster.transcript)
        if failures:
            wrong += failures
        elif text:
            wrong.append(f"{script.name} ({script.rules}) in era {era}\n{text}")
    return wrong
