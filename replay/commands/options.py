"""The options and arguments that the commands of `muster replay` share."""

from typing import Annotated

import typer

from muster.replay.form import Format
from muster.replay.text.times import FORMS_OF_TIME

FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        metavar="FORM",  # with the choices there would be no room for the names in 80 columns
        help="table: for people; json, or jsonl (a line per incident, event, group): for programs; md: for a chat.",
    ),
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help=f"Only from this time on: {FORMS_OF_TIME}.")
]
SeqOption = Annotated[
    bool, typer.Option("--seq", help="Numbers mean events (seq), as `history` shows them: --since 17.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="WHEN", help="Only until this time, in one of the same forms.")
]
TzOption = Annotated[
    str | None,
    typer.Option(
        "--tz",
        metavar="ZONE",
        envvar="MUSTER_TZ",
        help="The zone of times that are shown, and of given times without a zone: UTC, local, or a name such as "
        "Europe/Berlin.",
    ),
]
LogOption = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="URL",
        envvar="MUSTER_LOG",
        help="The event log: sqlite:///FILE, kafka://HOST:PORT/TOPIC, archive:DIR, or an export, NAME.jsonl or"
        " NAME.avro.",
    ),
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group id.")]
GroupsOption = Annotated[
    str | None, typer.Option("--group", metavar="PATTERN", help="Only groups whose id matches, as in 'orders-*'.")
]
