"""The options of `muster fleet simulate`; no logic of its own."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from muster.events.log.options import KafkaConfigOption

MONDAY: Final = datetime(2026, 1, 5)  # noqa: DTZ001 -- a day, as typer reads one


def simulate_command(
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="LOG", help="A log without events: archive:DIR, sqlite:///FILE, kafka://HOST:PORT/TOPIC."
        ),
    ],
    groups: Annotated[int, typer.Option("--groups", min=1, max=1_000_000, help="Number of groups.")] = 100,
    days: Annotated[int, typer.Option("--days", min=1, max=400, help="Number of days.")] = 7,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same events, on any machine.")] = 1,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, max=10_000, help="Number of partitions of the log.")
    ] = 8,
    begin: Annotated[datetime, typer.Option("--begin", formats=["%Y-%m-%d"], help="The first day, UTC.")] = MONDAY,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            metavar="FILE",
            help="Where to write the truth, a line of JSON for each group. [default: LOG.truth.jsonl]",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Number of processes. [default: one for each core]")
    ] = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Simulate a fleet for days: groups are deployed and scaled, and lose processes and coordinators.

    For load tests, demos and benchmarks. A file beside the log has the truth of each incident.

    \b
    Example:

        muster fleet simulate --groups 10000 --days 7 --seed 1 --to archive:/archive
        muster fleet build --log archive:/archive --to fleet
    """
    from muster.replay.fleet.choice import check_needs

    check_needs()
    from muster.replay.fleet.simulation.commands import AskedSimulation, simulate

    asked = AskedSimulation(
        to=to,
        groups=groups,
        days=days,
        seed=seed,
        partitions=partitions,
        begin=begin,
        truth=truth,
        jobs=jobs,
        kafka_config=kafka_config,
    )
    simulate(asked)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate_command)
