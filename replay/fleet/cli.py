"""`muster fleet ...`: a skin, as `replay/cli.py` is. Exit codes: 0 done; 2 something given or needed cannot be used."""

from pathlib import Path
from typing import Annotated, Final

import typer

from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption, LogOption
from muster.replay.fleet.archive import cli as archive_cli
from muster.replay.fleet.asked import By, EngineName, Form, Order
from muster.replay.fleet.simulation import cli as simulation_cli

app = typer.Typer(
    name="fleet",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="The history of every group at once, as tables (pip install '.[fleet]' in the checkout).",
)


DEFAULT_TABLES: Final = Path("fleet")
TablesOption = Annotated[
    Path, typer.Option("--tables", metavar="DIR", envvar="MUSTER_TABLES", help="What `fleet build --to` has made.")
]
SinceOption = Annotated[str | None, typer.Option("--since", metavar="TIME", help="A time, or an age: 7d.")]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="A time, or an age.")]
GroupsOption = Annotated[str | None, typer.Option("--groups", metavar="PATTERN", help="Groups, as 'orders-*'.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many rows at most.")]
FormatOption = Annotated[Form, typer.Option("--format", help="For eyes, or for programs.")]


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


@app.command("top")
def top_command(
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    groups: GroupsOption = None,
    limit: LimitOption = 20,
    form: FormatOption = Form.TABLE,
) -> None:
    """The groups whose rebalances cost most.

    \b
    Example:

        muster fleet top --tables fleet --since 7d
    """
    from muster.replay.fleet.commands import show_top

    show_top(tables, since=since, until=until, groups=groups, limit=limit, form=form)


@app.command("causes")
def causes_command(
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    groups: GroupsOption = None,
    by: Annotated[By, typer.Option("--by", help="Kinds of incidents, or what started rebalances.")] = By.KIND,
    limit: LimitOption = 20,
    form: FormatOption = Form.TABLE,
) -> None:
    """The causes that cost most.

    \b
    Example:

        muster fleet causes --tables fleet --by trigger
    """
    from muster.replay.fleet.commands import show_causes

    show_causes(tables, since=since, until=until, groups=groups, limit=limit, form=form, by=by)


@app.command("storms")
def storms_command(
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    groups: GroupsOption = None,
    limit: LimitOption = 20,
    form: FormatOption = Form.TABLE,
) -> None:
    """Incidents of several groups that are one: the coordinator's doing, or one host's.

    \b
    Example:

        muster fleet storms --tables fleet
    """
    from muster.replay.fleet.commands import show_storms

    show_storms(tables, since=since, until=until, groups=groups, limit=limit, form=form)


@app.command("group")
def group_command(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 20,
    form: FormatOption = Form.TABLE,
) -> None:
    """One group: its causes, its days, processes that flap, times without a coordinator.

    \b
    Example:

        muster fleet group orders --tables fleet
    """
    from muster.replay.fleet.commands import show_group

    show_group(tables, group, since=since, until=until, limit=limit, form=form)


@app.command("incidents")
def incidents_command(
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    groups: GroupsOption = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Of one kind alone.")] = None,
    sort: Annotated[Order, typer.Option("--sort", help="Those that cost most, or the newest.")] = Order.COST,
    limit: LimitOption = 20,
    form: FormatOption = Form.TABLE,
) -> None:
    """The incidents of all groups.

    \b
    Example:

        muster fleet incidents --tables fleet --kind crash
    """
    from muster.replay.fleet.commands import show_incidents

    show_incidents(tables, since=since, until=until, groups=groups, limit=limit, form=form, kind=kind, sort=sort)


archive_cli.add_to(app)
simulation_cli.add_to(app)
