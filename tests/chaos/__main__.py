"""`python -m tests.chaos`: faults done to real processes and real brokers, one after another; for `make chaos`.

Exit code 0 when every invariant held, else 1; what did not hold is named with the seed and the log's place.
"""

import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer

from tests.brokers.broker import BrokerFailed, NoBroker
from tests.chaos.report import print_report
from tests.chaos.run import Outcome, run
from tests.chaos.schedule import Kind, schedule
from tests.chaos.service import Mode


def chaos(  # noqa: PLR0917 -- options
    seed: Annotated[int, typer.Option(help="Which faults come in which order.")] = 1,
    faults: Annotated[int, typer.Option(help="How many.")] = 100,
    mode: Annotated[Mode, typer.Option(help="What the processes are.")] = Mode.SIDECAR,
    minutes: Annotated[float, typer.Option(help="No fault begins later than that.")] = 600.0,
    kind: Annotated[list[Kind] | None, typer.Option(help="Of these kinds alone.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where ledger, outcomes and logs are kept.")] = None,
) -> None:
    """Kill, stop, cut off and slow down real processes and brokers under load, and compare the responses with the
    log.
    """
    folder = out or Path(mkdtemp(prefix="muster-chaos-"))
    planned = schedule(seed, faults, mode, frozenset(kind or Kind))
    typer.echo(f"seed {seed}, {len(planned)} faults, {mode}; in {folder}")
    outcomes: list[Outcome] = []
    try:
        outcomes = run(planned, seed=seed, mode=mode, folder=folder, begin_within_s=minutes * 60, say=_say)
    except (BrokerFailed, NoBroker) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    print_report(outcomes, seed=seed, mode=mode)
    is_whole = bool(outcomes) and not any(each.violations for each in outcomes)
    raise typer.Exit(0 if is_whole else 1)


def _say(text: str) -> None:
    print(text, flush=True, file=sys.stderr)


if __name__ == "__main__":
    typer.run(chaos)
