"""The command. Joins the coordinator's and the replay tool's commands; what they do stands in their own packages."""

from importlib.metadata import version as version_of
from typing import Annotated

import typer

from muster import DISTRIBUTION
from muster.coordinator import cli as coordinator_cli
from muster.coordinator.commands import log_cli
from muster.coordinator.commands.members import cli as members_cli
from muster.coordinator.commands.members import moving as moving_cli
from muster.coordinator.commands.members import repairing as repairing_cli
from muster.replay import cli as replay_cli
from muster.replay.fleet import cli as fleet_cli

app = typer.Typer(
    name="muster",
    help="A Kafka consumer-group coordinator that never forgets why a group rebalanced.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command("serve", epilog=coordinator_cli.CONFIG_HELP)(coordinator_cli.serve)
app.command("adopt")(moving_cli.adopt)
app.command("release")(moving_cli.release)
app.add_typer(members_cli.app, name="members")
app.add_typer(repairing_cli.app, name="groups")
app.add_typer(log_cli.app, name="log")
app.add_typer(replay_cli.app, name="replay")
app.add_typer(fleet_cli.app, name="fleet")


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"muster {version_of(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def muster(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A Kafka consumer-group coordinator that never forgets why a group rebalanced."""


def main() -> None:
    """The console script."""
    app()
