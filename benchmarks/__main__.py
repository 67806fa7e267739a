"""`python -m benchmarks`: everything, or only the parts that are named. Give it a machine that does nothing else."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import (
    cold_start,
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

RESULTS = Path(__file__).parent / "results"


class Part(StrEnum):
    STANDALONE = "standalone"
    SIDECAR = "sidecar"
    CROWDS = "crowds"
    HOSTILE = "hostile"
    REPLAY = "replay"
    FLEET = "fleet"
    TAKEOVER = "takeover"
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
    cold_events: Annotated[int, typer.Option(help="Events of the log on which a process starts.")] = 1_000_000,
    out: Annotated[Path, typer.Option(help="The directory for JSON and Markdown.")] = RESULTS,
) -> None:
    """Measure Muster beside a real Kafka, in one run."""
    console = Console()
    if not parts or Part.STANDALONE in parts:
        load = standalone.Load(
            seconds=seconds, rounds=rounds, groups=groups, loaded_groups=loaded_groups, kafka_log=kafka_log
        )
        results = standalone.measure(load, console)
        results.show(console)
        results.write(out, Part.STANDALONE)
    if not parts or Part.SIDECAR in parts:
        through = sidecar.Load(
            seconds=seconds,
            rounds=rounds,
            groups=groups,
            turns=turns,
            records=records,
            members=members,
            connections=connections,
        )
        results = sidecar.measure(through, console)
        results.show(console)
        results.write(out, Part.SIDECAR)
    if not parts or Part.CROWDS in parts:
        results = crowds.measure(crowds.Load(restarts=restarts, kafka_log=kafka_log), console)
        results.show(console)
        results.write(out, Part.CROWDS)
    if not parts or Part.HOSTILE in parts:
        results = hostile.measure(sends, console)
        results.show(console)
        results.write(out, Part.HOSTILE)
    if not parts or Part.REPLAY in parts:
        results = replaying.measure(replaying.Load(events=events, kafka_log=kafka_log), console)
        results.show(console)
        results.write(out, Part.REPLAY)
    if not parts or Part.FLEET in parts:
        results = fleet.measure(events, console, archives)
        results.show(console)
        results.write(out, Part.FLEET)
    if not parts or Part.TAKEOVER in parts:
        results = takeover.measure(killed_groups, console)
        results.show(console)
        results.write(out, Part.TAKEOVER)
    if not parts or Part.COLD_START in parts:
        results = cold_start.measure(groups=loaded_groups, events=cold_events, console=console)
        results.show(console)
        results.write(out, Part.COLD_START)
    if not parts or Part.FORWARDING in parts:
        results = forwarding.measure(groups=groups, seconds=seconds, turns=turns, console=console)
        results.show(console)
        results.write(out, Part.FORWARDING)
    if not parts or Part.PROCESSES in parts:
        results = processes.measure(seconds=seconds, turns=turns, console=console)
        results.show(console)
        results.write(out, Part.PROCESSES)
    console.print(f"[dim]written to {out}[/]")


if __name__ == "__main__":
    typer.run(main)
