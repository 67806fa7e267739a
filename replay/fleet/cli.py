"""`muster fleet ...`: a skin, as `replay/cli.py` is. Exit codes: 0 done; 2 something given or needed cannot be used."""

from pathlib import Path
from typing import Annotated

import typer

from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption, LogOption
from muster.replay.fleet import questions_cli
from muster.replay.fleet.archive import cli as archive_cli
from muster.replay.fleet.asked import EngineName
from muster.replay.fleet.simulation import cli as simulation_cli

app = typer.Typer(
    name="fleet",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="The history of every group at once, as tables (pip install '.[fleet]' in the checkout).",
)


@app.callback()
def fleet() -> None:
    """The history of every group at once, as tables (pip install '.[fleet]' in the checkout)."""


@app.command("build")
def build_command(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where the tables are, or will be: Parquet.")],
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    engine: Annotated[EngineName, typer.Option("--engine", help="Which engine folds.")] = EngineName.AUTO,
    master: Annotated[str, typer.Option("--master", envvar="SPARK_MASTER", help="Spark's master.")] = "local[*]",
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build from the log's begin, not from the last build.")
    ] = False,
) -> None:
    """Bring the tables up to date: rebalances, incidents, memberships, and what is made of them.

    Only what the log has told since the last build is read.

    \b
    Example:

        muster fleet build --log sqlite:///muster.db --to fleet
        muster fleet top --tables fleet
    """
    from muster.replay.fleet.commands import build_tables

    build_tables(to, log, kafka_config or [], engine, master, rebuild=rebuild)


questions_cli.add_to(app)
archive_cli.add_to(app)
simulation_cli.add_to(app)
