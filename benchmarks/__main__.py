"""`python -m benchmarks`: all benchmarks, or only the named ones. The machine should be otherwise idle."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import (
    cold_start,
    committed,
    crowds,
    fleet,
    forwarding,
    hostile,
    processes,
    replaying,
    sidecar,
    standalone,
    takeover,
)
from benchmarks.results import Results

RESULTS = Path(__file__).parent / "results"


class Part(StrEnum):
    STANDALONE = "standalone"
    SIDECAR = "sidecar"
    CROWDS = "crowds"
    HOSTILE = "hostile"
    REPLAY = "replay"
    FLEET = "fleet"
    TAKEOVER = "takeover"
    COMMITTED = "committed"
    COLD_START = "cold-start"
    FORWARDING = "forwarding"
    PROCESSES = "processes"


def main(
    parts: Annotated[list[Part] | None, typer.Argument(help="What is measured; everything if none is named.")] = None,
    *,
    seconds: Annotated[float, typer.Option(help="How long each flood of heartbeats lasts.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="How often the 11th member joins.")] = 50,
    groups: Annotated[int, typer.Option(help="Groups of 10 for the floods.")] = 100,
    loaded_groups: Annotated[int, typer.Option(help="Groups of 10 in the log that is restarted on.")] = 10_000,
    kafka_log: Annotated[bool, typer.Option(help="Measure Muster on a Kafka log, too.")] = True,
    turns: Annotated[int, typer.Option(help="Through the sidecar: turns of each way, of which the median counts.")] = 5,
    records: Annotated[int, typer.Option(help="Records of 1 KB in a flood through the sidecar.")] = 1_000_000,
    restarts: Annotated[int, typer.Option(help="Restarts of static members in a large group.")] = 200,
    members: Annotated[int, typer.Option(help="Members whose memory is measured, in groups of 100.")] = 100_000,
    connections: Annotated[int, typer.Option(help="Idle connections whose memory is measured.")] = 2_000,
    sends: Annotated[int, typer.Option(help="How often each hostile request is sent; the longest wait counts.")] = 3,
    events: Annotated[int, typer.Option(help="Events that replay and the fleet read.")] = 1_000_000,
    archives: Annotated[Path | None, typer.Option(help="A directory in which the fleet's archives are kept.")] = None,
    killed_groups: Annotated[int, typer.Option(help="Groups of 10 whose coordinator is killed.")] = 1_000,
    committed_offsets: Annotated[int, typer.Option(help="Committed offsets, whose owner is killed.")] = 1_000_000,
    cold_events: Annotated[int, typer.Option(help="Events of the log on which a process starts.")] = 1_000_000,
    out: Annotated[Path, typer.Option(help="The directory for JSON and Markdown.")] = RESULTS,
) -> None:
    """Measure Muster beside a real Kafka, in one run."""
    console = Console()
    measure: dict[Part, Callable[[], Results]] = {
        Part.STANDALONE: lambda: standalone.measure(
            standalone.Load(
                seconds=seconds, rounds=rounds, groups=groups, loaded_groups=loaded_groups, kafka_log=kafka_log
            ),
            console,
        ),
        Part.SIDECAR: lambda: sidecar.measure(
            sidecar.Load(
                seconds=seconds,
                rounds=rounds,
                groups=groups,
                turns=turns,
                records=records,
                members=members,
                connections=connections,
            ),
            console,
        ),
        Part.CROWDS: lambda: crowds.measure(crowds.Load(restarts=restarts, kafka_log=kafka_log), console),
        Part.HOSTILE: lambda: hostile.measure(sends, console),
        Part.REPLAY: lambda: replaying.measure(replaying.Load(events=events, kafka_log=kafka_log), console),
        Part.FLEET: lambda: fleet.measure(events, console, archives),
        Part.TAKEOVER: lambda: takeover.measure(killed_groups, console),
        Part.COMMITTED: lambda: committed.measure(committed_offsets, console),
        Part.COLD_START: lambda: cold_start.measure(groups=loaded_groups, events=cold_events, console=console),
        Part.FORWARDING: lambda: forwarding.measure(groups=groups, seconds=seconds, turns=turns, console=console),
        Part.PROCESSES: lambda: processes.measure(seconds=seconds, turns=turns, console=console),
    }
    for part in Part:
        if not parts or part in parts:
            results = measure[part]()
            results.show(console)
            results.write(out, part)
    console.print(f"[dim]written to {out}[/]")


if __name__ == "__main__":
    typer.run(main)
