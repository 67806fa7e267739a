"""The arguments and options that several commands about groups have."""

from typing import Annotated

import typer

from muster.coordinator.commands.members.answer import Format
from muster.coordinator.commands.members.durations import BadDuration, read_duration


def duration(text: str) -> int:
    """The value of an option, in ms."""
    try:
        return read_duration(text)
    except BadDuration as bad:
        raise typer.BadParameter(str(bad)) from bad


GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group id.")]
InstancesArgument = Annotated[list[str], typer.Argument(metavar="INSTANCE", help="Instance ids (group.instance.id).")]
NamesArgument = Annotated[list[str], typer.Argument(metavar="ID", help="Instance ids, or member ids.")]
BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="MUSTER_BOOTSTRAP",
        help="Where the coordinator is, or somebody who knows it.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="A table for eyes, json for programs.")]
TimeoutOption = Annotated[
    int | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        parser=duration,
        help="How long they are waited for: 30s, 10m, 1h30m. It is the group's from then on; without it, as it was "
        "(5m at first).",
    ),
]

HERE = "127.0.0.1:9092"
