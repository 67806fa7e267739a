"""`muster status`: its options. `status_command.py` runs it."""

from typing import Annotated

import typer

from muster.coordinator.commands.members.answer import AnswerFormat

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command("status")
def status(
    addresses: Annotated[
        list[str],
        typer.Argument(
            metavar="HOST:PORT...", envvar="MUSTER_METRICS", help="The --metrics addresses of one or more processes."
        ),
    ],
    *,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=600, help="How long each process may take to answer, in seconds.")
    ] = 5.0,
    form: Annotated[
        AnswerFormat, typer.Option("--format", help="A table for people, JSON for programs.")
    ] = AnswerFormat.TABLE,
) -> None:
    """Ask running processes what they serve, what is wrong, and what helps.

    Each process tells at its --metrics address which partitions it owns, with which epoch and for how long it may
    answer without another proof (the lease), which processes it knows, which groups are quarantined and, in front of a
    cluster, which shadows are missing. What is wrong comes first, each with the way out. Name all processes of an event
    log, so that a partition that nobody serves is noticed.

    Exit codes: 0 all is well; 1 something is wrong; 2 a process does not answer, or wrong use.

    \b
    Examples:

        muster status 10.0.0.1:9100 10.0.0.2:9100
        muster status 127.0.0.1:9100 --format json
    """
    from muster.coordinator.commands.status_command import show_status

    show_status(addresses, timeout_s=timeout, form=form)
