"""`python -m tests.simulation`: many schedules of several processes, over all processors."""

import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

import typer

from tests.simulation.run import never_happened, play_all

CHUNK = 20


def simulate(
    seeds: Annotated[int, typer.Option(help="How many schedules are played.")] = 1_000,
    first: Annotated[int, typer.Option("--from", help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(help="How many processes play them.")] = 2,
) -> None:
    """Play schedules of several Musters with crashes, pauses, cuts and late appends; each failing seed is named."""
    began_s, bad, counts = time.monotonic(), 0, Counter[str]()
    chunks = [range(at, min(at + CHUNK, first + seeds)) for at in range(first, first + seeds, CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for failed, counted in pool.map(play_all, chunks):
            counts += counted
            for result in failed:
                bad += 1
                typer.echo(f"seed {result.seed}: {len(result.violations)} violations, the first ones:")
                for text in result.violations[:3]:
                    typer.echo(f"    {text}")
    took_s = time.monotonic() - began_s
    typer.echo(f"{seeds} schedules in {took_s:.0f} s ({seeds / took_s * 60:.0f} a minute), {bad} with violations")
    for name, count in sorted(counts.items()):
        typer.echo(f"    {name}: {count}")
    untried = never_happened(counts)
    if untried:
        typer.echo(f"never happened, so nothing is proven: {', '.join(untried)}")
    raise typer.Exit(1 if bad or untried else 0)


if __name__ == "__main__":
    typer.run(simulate)
