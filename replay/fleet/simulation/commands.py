"""Implements `muster fleet simulate`: simulate, write, report. Errors end it with one line and exit code 2."""

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

import msgspec
import typer

from muster.events.kafka.security import BadSecurity, security_given
from muster.events.log.base import LogError
from muster.events.records import EventsError
from muster.replay.commands.opening import CANNOT_READ, fail
from muster.replay.fleet.simulation import spool
from muster.replay.fleet.simulation.fleet import Fleet, SimulatedDays
from muster.replay.fleet.simulation.sinks import ARCHIVE, SQLITE, sink_of
from muster.replay.progress import Watch, watched


class AskedSimulation(msgspec.Struct, frozen=True, kw_only=True):
    """The options. `truth`: None: beside the log; `jobs`: None: one per core."""

    to: str
    groups: int
    days: int
    seed: int
    partitions: int
    begin: datetime
    truth: Path | None
    jobs: int | None
    kafka_config: Sequence[str] | None

    @property
    def fleet(self) -> Fleet:
        began_ms = int(self.begin.replace(tzinfo=UTC).timestamp()) * 1_000
        span = SimulatedDays(began_ms, self.days)
        return Fleet(groups=self.groups, seed=self.seed, partitions=self.partitions, span=span)

    @property
    def truth_file(self) -> Path:
        place = self.to.removeprefix(ARCHIVE).removeprefix(SQLITE).rstrip("/")
        return self.truth or Path(f"{unquote(place.rpartition('/')[2] if '://' in place else place)}.truth.jsonl")


def simulate(asked: AskedSimulation) -> None:
    """Simulate the fleet, and write its log and its ground truth."""
    fleet, truth = asked.fleet, asked.truth_file
    try:
        sink = sink_of(asked.to, fleet, security_given(asked.kafka_config, os.environ))
        truth.parent.mkdir(parents=True, exist_ok=True)
        sink.check()
        with TemporaryDirectory(prefix=".simulation-", dir=truth.parent) as made_in:
            folder, told = Path(made_in), Path(made_in) / "truth.jsonl"
            begun = time.monotonic()
            with watched("playing groups") as watch:
                made = spool.play(fleet, folder, told, jobs=asked.jobs or os.cpu_count() or 1, watch=watch)
            played_s = time.monotonic() - begun
            with watched(f"writing {asked.to}") as watch:
                sink.write(folder, _adding(watch, made.events))
            told.replace(truth)
    except (LogError, EventsError, BadSecurity) as error:
        fail(str(error), CANNOT_READ)
    except OSError as error:
        fail(f"the simulation cannot be written: {error}", CANNOT_READ)
    wrote_s = time.monotonic() - begun - played_s
    typer.echo(
        f"{made.events:,} events of {made.groups:,} groups in {asked.to}, {made.incidents:,} incidents in {truth};"
        f" played in {played_s:.1f} s ({made.events / max(played_s, 0.001):,.0f} events a second), written in"
        f" {wrote_s:.1f} s"
    )


def _adding(watch: Watch, total: int) -> Callable[[int], None]:
    done = 0

    def add(records: int) -> None:
        nonlocal done
        done += records
        watch(done, max(done, total))

    return add
