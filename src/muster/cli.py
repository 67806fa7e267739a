"""The `muster` command line. Each command has its own package, which is imported when the command is run."""

import gc
import os
import re
import sys
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from muster import DISTRIBUTION
from muster.variables import mistyped, without_prefix

HELP = "A Kafka consumer-group coordinator that never forgets why a group rebalanced."

COMMANDS: Final = {
    "serve": (
        "muster.coordinator.serve_cli:app",
        "Coordinate consumer groups: standalone, or as a sidecar in front of an unmodified Kafka cluster.",
    ),
    "config": (
        "muster.coordinator.serve_cli:config_app",
        "Check the settings of muster serve without starting anything.",
    ),
    "status": (
        "muster.coordinator.client.commands.status_cli:app",
        "Show what running processes serve, what is wrong, and how to fix it.",
    ),
    "adopt": (
        "muster.coordinator.client.commands.moving_cli:adopting",
        "Move live groups from the upstream cluster to Muster; their members must be connected to the sidecar.",
    ),
    "release": (
        "muster.coordinator.client.commands.moving_cli:releasing",
        "Move groups from a sidecar back to the upstream cluster, for good; their members may stay connected.",
    ),
    "members": (
        "muster.coordinator.client.commands.members_cli:app",
        "List, register, retire, promote and remove the members of a group.",
    ),
    "groups": (
        "muster.coordinator.client.commands.groups_cli:app",
        "Repair groups that cannot be served; remove shadows that a former Muster left in a cluster.",
    ),
    "log": ("muster.coordinator.client.commands.log_cli:app", "Repair or upgrade the event log."),
    "drill": (
        "muster.drills.cli:app",
        "Failover drills on a real cluster, with groups of their own: what do members notice?",
    ),
    "replay": (
        "muster.replay.cli:app",
        "Why did this group rebalance? Reads the event log, even of a running coordinator, without disturbing it.",
    ),
    "fleet": (
        "muster.replay.fleet.cli:app",
        "Analyze the history of all groups as tables (pip install '.[fleet]' in the checkout).",
    ),
}
"""The module of each command, and its line in `muster --help`."""


_IN_HOME: Final = re.compile(r"(--[\w-]+=|-\w)(~[^/]*(?:/.*)?)", re.DOTALL)
"""An option with its value in one word, where the value begins like a path in a home directory."""


class _Commands(TyperGroup):
    """The commands, each of which is imported only when it runs."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 -- as typer calls it
        super().__init__(**attributes)
        for name, (_, line) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 -- typer keeps its click to itself
        _show_flags_plainly(self, ctx)
        return super().parse_args(ctx, [_as_by_a_shell(arg) for arg in args])

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 -- typer keeps its click to itself
        try:
            return super().invoke(ctx)
        except typer.BadParameter as bad:
            bad.message = without_prefix(bad.message)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 -- typer keeps its click to itself
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            command = _imported(COMMANDS[name][0])
            _show_flags_plainly(command, ctx)
        return name, command, rest


def _show_flags_plainly(command: Any, ctx: Any) -> None:  # noqa: ANN401 -- typer keeps its click to itself
    """Leave out the type that `--help` shows beside a flag, which takes no value; also for subcommands."""
    for each in command.get_params(ctx):
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _show_flags_plainly(inner, ctx)


def _as_by_a_shell(arg: str) -> str:
    """Take `--to=~/x` for `--to ~/x`, in which the shell has put the home directory already."""
    found = _IN_HOME.fullmatch(arg)
    return arg if found is None else f"{found[1]}{os.path.expanduser(found[2])}"  # noqa: PTH111 -- raises for no user


def _imported(place: str) -> Any:  # noqa: ANN401 -- a command or a group of commands
    module, _, attribute = place.partition(":")
    return typer.main.get_command(cast("typer.Typer", getattr(import_module(module), attribute)))


app = typer.Typer(
    name="muster",
    cls=_Commands,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"muster {version_of(DISTRIBUTION)}")
        raise typer.Exit


@app.callback(help=HELP)
def muster(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options before a command."""
    if context.invoked_subcommand not in {"serve", "config"}:  # they know of more, and say so themselves
        for variable, meant in mistyped(os.environ):
            print(f"muster: {variable} sets nothing: did you mean {meant}?", file=sys.stderr)


COLLECTED_AFTER: Final = 50_000
"""New objects. Imports make many and leave no garbage: at its usual pace the collector took a tenth of a start."""


def main() -> None:
    """The console script."""
    gc.set_threshold(COLLECTED_AFTER)
    if sys.platform == "win32":
        sys.exit("muster: needs a POSIX system such as Linux or macOS; on Windows use WSL")
    for name in ("stdout", "stderr"):  # a closed one, as by `>&-`: it has no reader, and no file gets its number
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 -- until the process ends
    app()
