"""`python -m tests.conformance.fuzz`: plays seeds one after another.

A seed that differs is shrunk, and the result written to `found/`, from where `test_fuzz.py` replays it. The exit code
is 1 if there was a difference, 2 if the machine was too busy to tell.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console
from rich.progress import Progress

from tests.conformance.fuzz.fuse import Slipped
from tests.conformance.fuzz.generator import generate
from tests.conformance.fuzz.runs import Compared, Runs, Tally
from tests.conformance.fuzz.schedule import to_text
from tests.conformance.fuzz.servers import running_pair
from tests.conformance.fuzz.tally import table

FOUND: Final = Path(__file__).with_name("found")


def main(
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 500,
    first: Annotated[int, typer.Option("--from", help="The first of them.")] = 0,
    steps: Annotated[int, typer.Option(help="Steps of each schedule.", min=1)] = 60,
    sidecar: Annotated[bool, typer.Option(help="Put Muster in front of that Kafka, as a sidecar.")] = False,
) -> None:
    """Play random schedules on a real Kafka and on Muster, and compare every response."""
    console = Console()
    with running_pair(sidecar=sidecar) as pair, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            differing = runner.run(_play(Runs(pair, in_front=sidecar), range(first, first + seeds), steps, console))
        except Slipped as slipped:
            console.print(f"[red]{slipped}")
            raise typer.Exit(2) from None
    if differing:
        console.print(f"[red]{len(differing)} of {seeds} seeds differ: {differing}")
        raise typer.Exit(1)
    console.print(f"[green]{seeds} seeds of {steps} steps, no difference")


async def _play(runs: Runs, seeds: range, steps: int, console: Console) -> list[int]:
    tally: Tally = Counter()
    differing: list[Compared] = []
    with Progress(console=console) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for next_one in asyncio.as_completed([runs.compare(generate(seed, steps=steps)) for seed in seeds]):
            compared = await next_one
            tally += compared.tally
            progress.advance(task)
            if compared.text:
                differing.append(compared)
                console.print(f"[red]seed {compared.schedule.seed} differs in step {compared.step}")
        for compared in differing:
            await _report(runs, compared, console)
    for compared in runs.unsteady:
        console.print(f"[yellow]seed {compared.schedule.seed} differed in step {compared.step} once, and not again")
        console.print(compared.text, markup=False, highlight=False, soft_wrap=True)
    console.print(table(tally))
    console.print(f"{runs.repeated} runs were repeated, since the machine was too slow")
    return sorted(compared.schedule.seed for compared in differing)


async def _report(runs: Runs, compared: Compared, console: Console) -> None:
    short = await runs.shrink(compared)
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"seed-{short.schedule.seed}.json"
    path.write_text(to_text(short.schedule), encoding="utf-8")
    console.print(f"[red]seed {short.schedule.seed}, shrunk to {len(short.schedule.steps)} steps, written to {path}")
    console.print(short.text, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
