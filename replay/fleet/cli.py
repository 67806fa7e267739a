"""`muster fleet ...`: a skin, as `replay/cli.py` is. Exit codes: 0 done; 2 something given or needed cannot be used."""

from pathlib import Path
from typing import Annotated

import typer

from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption, LogOption
from muster.replay.fleet import archive_cli

app = typer.Typer(
    name="fleet",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="The history of every group at once, with Spark (pip install '.[fleet]' in the checkout, and Java 17 or 21).",
)


@app.callback()
def fleet() -> None:
    """The history of every group at once, with Spark (pip install '.[fleet]' in the checkout, and Java 17 or 21)."""


@app.command("build")
def build_command(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where the table goes: DIR/rebalances, Parquet.")],
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    master: Annotated[str, typer.Option("--master", envvar="SPARK_MASTER", help="Spark's master.")] = "local[*]",
) -> None:
    """Fold the events of all groups into the table `rebalances`: a row each, with the cause and the whole story.

    \b
    Example:

        muster fleet build --log sqlite:///muster.db --to fleet
        duckdb -c "select cause, count(*) from 'fleet/rebalances/*.parquet' group by all order by 2 desc"
    """
    from muster.replay.fleet.commands import build_table

    build_table(to, log, kafka_config or [], master)


archive_cli.add_to(app)
