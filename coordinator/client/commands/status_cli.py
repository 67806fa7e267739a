"""`muster status`: asks each process for its status, prints it, and sets the exit code."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import typer

from muster.coordinator.client.commands.answer import UNUSABLE, AnswerFormat, fail, show
from muster.coordinator.client.commands.status_asking import Asked, Unanswered, ask_all
from muster.coordinator.client.commands.status_findings import Finding, Severity, findings
from muster.coordinator.client.commands.status_table import print_status

COMMAND: Final = "muster status"
SOMETHING_IS_WRONG: Final = 1

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command("status")
def status(
    addresses: Annotated[
        list[str],
        typer.Argument(
            metavar="HOST:PORT...",
            envvar="MUSTER_METRICS",
            help="The --metrics addresses of one or more processes, e.g. 10.0.0.1:9100.",
        ),
    ],
    *,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=600, help="How long to wait for each process, in seconds.")
    ] = 5.0,
    form: Annotated[
        AnswerFormat, typer.Option("--format", help="A table for people, JSON for programs.")
    ] = AnswerFormat.TABLE,
) -> None:
    """Show what running processes serve, what is wrong, and how to fix it.

    At its --metrics address each process reports the partitions that it owns, with their epochs and with how long it
    may answer without another proof of ownership (the lease), the processes that it knows, its quarantined groups and,
    in front of a cluster, missing shadows. Problems come first, each with its fix. Name all processes of an event log,
    so that a partition without an owner is noticed.

    Exit codes: 0 all is well; 1 something is wrong; 2 a process does not answer, or invalid usage.

    \b
    Examples:

        muster status 10.0.0.1:9100 10.0.0.2:9100
        muster status 127.0.0.1:9100 --format json
    """
    named = [each.strip() for address in addresses for each in address.split(",") if each.strip()]
    try:
        asked = ask_all(named, timeout)
    except ValueError as error:
        fail(str(error), UNUSABLE, COMMAND)
    found = findings(asked)
    show(_json(asked, found), form, lambda console: print_status(asked, found, console))
    if any(each.severity is Severity.UNANSWERED for each in found):
        raise typer.Exit(UNUSABLE)
    if any(each.severity is Severity.PROBLEM for each in found):
        raise typer.Exit(SOMETHING_IS_WRONG)


def _json(asked: Sequence[Asked], found: Sequence[Finding]) -> dict[str, Any]:
    processes = [
        {
            "address": each.address,
            "answered": not isinstance(each.answer, Unanswered),
            "status": None if isinstance(each.answer, Unanswered) else msgspec.to_builtins(each.answer),
        }
        for each in asked
    ]
    return {"findings": msgspec.to_builtins(found), "processes": processes}
