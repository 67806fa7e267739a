"""`muster groups ...`: which commands there are; each has a file of its own."""

import typer

from muster.coordinator.commands.members.repairing import repair
from muster.coordinator.commands.members.shadows import shadows

app = typer.Typer(
    name="groups",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Repair groups that cannot be served; remove what a Muster that is gone has left in a cluster.",
)
app.command("repair")(repair)
app.command("shadows")(shadows)
