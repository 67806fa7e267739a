"""`muster fleet top`, `causes`, `storms`, `incidents`, `group`, `report`: their options. A skin, as cli.py is.

What they share with `muster replay` is the same there: times and windows, zones, patterns, forms of an answer.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from muster.replay.commands.options import FormatOption, GroupArgument, GroupsOption, SinceOption, TzOption, UntilOption
from muster.replay.fleet.asked import By, Order
from muster.replay.fleet.report.teams import DEFAULT_PATTERN as DEFAULT_TEAM_PATTERN
from muster.replay.form import Format

DEFAULT_TABLES: Final = Path("fleet")
TablesOption = Annotated[
    Path, typer.Option("--tables", metavar="DIR", envvar="MUSTER_TABLES", help="What `fleet build --to` has made.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many rows at most.")]


def top_command(
    *,
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    group: GroupsOption = None,
    limit: LimitOption = 20,
    tz: TzOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """The groups whose rebalances cost most.

    \b
    Examples:

        muster fleet top --tables fleet --since 7d
        muster fleet top --tables fleet --group 'orders-*' --format md
    """
    from muster.replay.fleet.questions import Given, show_top

    show_top(Given(tables=tables, since=since, until=until, group=group, limit=limit, tz=tz, form=form))


def causes_command(
    *,
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    group: GroupsOption = None,
    by: Annotated[By, typer.Option("--by", help="Kinds of incidents, or what started rebalances.")] = By.KIND,
    limit: LimitOption = 20,
    tz: TzOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """The causes that cost most.

    \b
    Example:

        muster fleet causes --tables fleet --by trigger
    """
    from muster.replay.fleet.questions import Given, show_causes

    show_causes(Given(tables=tables, since=since, until=until, group=group, limit=limit, tz=tz, form=form), by)


def storms_command(
    *,
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    group: GroupsOption = None,
    limit: LimitOption = 20,
    tz: TzOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Incidents of several groups that are one: the coordinator's doing, or one host's.

    \b
    Example:

        muster fleet storms --tables fleet --since 30d
    """
    from muster.replay.fleet.questions import Given, show_storms

    show_storms(Given(tables=tables, since=since, until=until, group=group, limit=limit, tz=tz, form=form))


def incidents_command(
    *,
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    group: GroupsOption = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Of one kind alone.")] = None,
    sort: Annotated[Order, typer.Option("--sort", help="Those that cost most, or the newest.")] = Order.COST,
    limit: LimitOption = 20,
    tz: TzOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """The incidents of all groups.

    \b
    Examples:

        muster fleet incidents --tables fleet --kind crash
        muster fleet incidents --tables fleet --sort time --format jsonl
    """
    from muster.replay.fleet.questions import Given, show_incidents

    given = Given(tables=tables, since=since, until=until, group=group, limit=limit, tz=tz, form=form)
    show_incidents(given, kind, sort)


def group_command(
    group: GroupArgument,
    *,
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 20,
    tz: TzOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """One group: its causes, its days, processes that flap, times without a coordinator.

    \b
    Example:

        muster fleet group orders --tables fleet
    """
    from muster.replay.fleet.questions import Given, show_group

    given = Given(tables=tables, since=since, until=until, group=group, limit=limit, tz=tz, form=form)
    show_group(given, group)


def report_command(
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", dir_okay=False, help="The page; it is written over.")
    ],
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    group: GroupsOption = None,
    team_pattern: Annotated[
        str,
        typer.Option(
            "--team-pattern",
            metavar="REGEX",
            help="Finds the team in a group's name: the expression's first group, else all that it matches.",
        ),
    ] = DEFAULT_TEAM_PATTERN,
    limit: LimitOption = 20,
    tz: TzOption = None,
) -> None:
    """The fleet on one HTML page: by group and hour, incidents, causes, teams, storms, flapping, downtime.

    The page needs nothing but itself, and asks no host for anything. Its times are UTC, or those of --tz.

    \b
    Examples:

        muster fleet report --tables fleet -o fleet.html
        muster fleet report --tables fleet -o week.html --since 7d --team-pattern '^team-([a-z]+)-'
    """
    from muster.replay.fleet.questions import Given
    from muster.replay.fleet.report.command import report

    given = Given(tables=tables, since=since, until=until, group=group, limit=limit, tz=tz, form=Format.TABLE)
    report(given, out, team_pattern)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("top")(top_command)
    app.command("causes")(causes_command)
    app.command("storms")(storms_command)
    app.command("incidents")(incidents_command)
    app.command("group")(group_command)
    app.command("report")(report_command)
