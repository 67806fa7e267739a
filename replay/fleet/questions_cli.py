"""The options of `muster fleet top`, `causes`, `storms`, `incidents`, `group` and `report`; no logic of its own.

Options shared with `muster replay` (zones, patterns, output formats) are declared there. Options that all of these
commands share are declared once, by `_given`.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from muster.replay.commands.options import (
    FormatOption,
    GroupArgument,
    GroupsOption,
    SinceOption,
    TzOption,
    UntilOption,
)
from muster.replay.fleet.asked import By, Order
from muster.replay.fleet.report.teams import DEFAULT_PATTERN as DEFAULT_TEAM_PATTERN
from muster.replay.form import Format

if TYPE_CHECKING:
    from muster.replay.fleet.questions.commands import Given

DEFAULT_TABLES: Final = Path("fleet")
TablesOption = Annotated[
    Path,
    typer.Option("--tables", metavar="DIR", envvar="MUSTER_TABLES", help="The folder that `fleet build --to` wrote."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Maximum number of rows.")]


def _given(
    *,
    tables: TablesOption = DEFAULT_TABLES,
    since: SinceOption = None,
    until: UntilOption = None,
    group: GroupsOption = None,
    limit: LimitOption = 20,
    tz: TzOption = None,
    form: FormatOption = Format.TABLE,
) -> "Given":
    """Decorate a command with the options that all of these commands have."""
    from muster.replay.fleet.questions.commands import Given

    return Given(tables=tables, since=since, until=until, group=group, limit=limit, tz=tz, form=form)


def _asking(command: Callable[..., None], *, but: tuple[str, ...] = ()) -> Callable[..., None]:
    """Give a command those options except `but`; its own options come first, and replace those of the same name."""
    own = {name: each for name, each in signature(command).parameters.items() if name != "given"}
    shared = {name: each for name, each in signature(_given).parameters.items() if name not in {*own, *but}}

    @wraps(command)
    def asked(**values: Any) -> None:  # noqa: ANN401 -- as typer hands them over
        given = _given(**{name: values[name] for name in shared})
        command(given, **{name: values[name] for name in own})

    parameters = [*own.values(), *shared.values()]
    asked.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    asked.__annotations__ = {each.name: each.annotation for each in parameters}
    return asked


def top_command(given: "Given") -> None:
    """Show the groups whose rebalances cost most.

    \b
    Examples:

        muster fleet top --tables fleet --since 7d
        muster fleet top --tables fleet --group 'orders-*' --format md
    """
    from muster.replay.fleet.questions.commands import show_top

    show_top(given)


def causes_command(
    given: "Given",
    *,
    by: Annotated[
        By, typer.Option("--by", help="Group by kind of incident, or by what started the rebalance.")
    ] = By.KIND,
) -> None:
    """Show the causes that cost most.

    \b
    Example:

        muster fleet causes --tables fleet --by trigger
    """
    from muster.replay.fleet.questions.commands import show_causes

    show_causes(given, by)


def storms_command(given: "Given") -> None:
    """Show incidents of several groups that have one cause: the coordinator, or one host.

    \b
    Example:

        muster fleet storms --tables fleet --since 30d
    """
    from muster.replay.fleet.questions.commands import show_storms

    show_storms(given)


def incidents_command(
    given: "Given",
    *,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Only incidents of this kind, e.g. crash.")
    ] = None,
    sort: Annotated[Order, typer.Option("--sort", help="The most expensive first, or the newest.")] = Order.COST,
) -> None:
    """Show the incidents of all groups.

    \b
    Examples:

        muster fleet incidents --tables fleet --kind crash
        muster fleet incidents --tables fleet --sort time --format jsonl
    """
    from muster.replay.fleet.questions.commands import show_incidents

    show_incidents(given, kind, sort)


def group_command(given: "Given", group: GroupArgument) -> None:
    """Show one group: its causes, its days, flapping processes, times without a coordinator.

    \b
    Example:

        muster fleet group orders --tables fleet
    """
    from muster.replay.fleet.questions.commands import show_group

    show_group(given, group)


def report_command(
    given: "Given",
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", dir_okay=False, help="Output file (overwritten).")
    ],
    team_pattern: Annotated[
        str,
        typer.Option(
            "--team-pattern",
            metavar="REGEX",
            help="Finds the team in a group id: the expression's first capture group, else the whole match.",
        ),
    ] = DEFAULT_TEAM_PATTERN,
) -> None:
    """Write the fleet as one HTML page: groups by hour, incidents, causes, teams, storms, flapping, downtime.

    The page is self-contained and loads nothing from the network. Its times are UTC, or in the zone of --tz. Exit
    codes: 0 the page was written, even if the window has no rebalance; 2 an option or the tables cannot be used.

    \b
    Examples:

        muster fleet report --tables fleet -o fleet.html
        muster fleet report --tables fleet -o week.html --since 7d --team-pattern '^team-([a-z]+)-'
    """
    from muster.replay.fleet.report.command import report

    report(given, out, team_pattern)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("top")(_asking(top_command))
    app.command("causes")(_asking(causes_command))
    app.command("storms")(_asking(storms_command))
    app.command("incidents")(_asking(incidents_command))
    app.command("group")(_asking(group_command))
    app.command("report")(_asking(report_command, but=("form",)))
