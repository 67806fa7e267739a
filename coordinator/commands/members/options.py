"""The arguments and options that several commands about groups have."""

from typing import Annotated

import typer

from muster.coordinator.commands.members.answer import AnswerFormat
from muster.durations import duration

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group id.")]
InstancesArgument = Annotated[list[str], typer.Argument(metavar="INSTANCE", help="Instance ids (group.instance.id).")]
NamesArgument = Annotated[list[str], typer.Argument(metavar="ID", help="Instance ids, or member ids.")]
BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="MUSTER_BOOTSTRAP",
        help="The address of a coordinator, or of any broker.",
    ),
]
FormatOption = Annotated[AnswerFormat, typer.Option("--format", help="A table for people, json for programs.")]
TimeoutOption = Annotated[
    int | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        parser=duration,
        help="How long the group waits for them: 30s, 10m, 1h30m. It becomes a config of the group; without it that "
        "one holds (5m by default).",
    ),
]

HERE = "127.0.0.1:9092"
