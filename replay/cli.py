"""`muster replay ...`: parse, call one pure function, render, choose the exit code.

Exit codes: 0 answered; 1 the log is well, but what was asked for is not in it; 2 a wrong option, or a log that cannot
be read.
"""

from pathlib import Path
from typing import Annotated

import typer

from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption, LogOption
from muster.replay.form import Format
from muster.replay.times import FORMS_OF_AT

app = typer.Typer(
    name="replay",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=(
        "Why did this group rebalance? Reads the event log, of a live coordinator too, and disturbs nobody.\n\n"
        "\b\n"
        "Examples:\n\n"
        "    muster replay groups --log sqlite:///muster.db\n"
        "    muster replay why orders\n"
        "    muster replay why orders --generation 8\n"
        "    muster replay history orders --format jsonl\n"
        "    muster replay state orders --at 02:14:07\n"
        "    muster replay report orders -o report.html\n\n"
        "Without --log, MUSTER_LOG is read, and muster.db in the current directory. All times are UTC."
    ),
)

FormatOption = Annotated[
    Format,
    typer.Option(
        "--format", help="A table for eyes; json, or jsonl (a line per rebalance, event, group) for programs."
    ),
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group id.")]


@app.command("groups")
def groups_command(
    log: LogOption = DEFAULT_LOG, kafka_config: KafkaConfigOption = None, form: FormatOption = Format.TABLE
) -> None:
    """Every group of the log: state, members, how often it rebalanced, and why it did so last.

    \b
    Example:

        muster replay groups --log sqlite:///muster.db
    """
    from muster.replay import commands

    commands.groups(commands.source_of(log, kafka_config or []), form)


@app.command("history")
def history_command(
    group: GroupArgument,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Everything that happened to a group, a line for each event, and for what is missing.

    \b
    Examples:

        muster replay history orders
        muster replay history orders --format jsonl | jq -r 'select(.cause == "session-expired") | .member_id'
    """
    from muster.replay import commands

    commands.history(commands.source_of(log, kafka_config or []), group, form)


@app.command("why")
def why_command(
    group: GroupArgument,
    *,
    generation: Annotated[
        int | None, typer.Option("--generation", metavar="N", min=0, help="The rebalance that led to generation N.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="The last rebalance; so it is without any option.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All rebalances, the latest at the bottom.")] = False,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Why a group rebalanced: trigger, who, what was folded in, how long, what moved; and what did not cause one.

    \b
    Examples:

        muster replay why orders
        muster replay why orders --generation 8
        muster replay why orders --all --format jsonl | jq -r .headline
    """
    from muster.replay import commands

    if (generation is not None) + last + everything > 1:
        commands.fail("only one of --generation, --last and --all can be given", commands.CANNOT_READ)
    source = commands.source_of(log, kafka_config or [])
    commands.why(source, group, form, generation=generation, everything=everything)


@app.command("state")
def state_command(
    group: GroupArgument,
    at: Annotated[str, typer.Option("--at", metavar="TIME|SEQ", help=f"The moment: {FORMS_OF_AT}.")],
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """A group as it was: state, generation, members, and who had which partitions.

    \b
    Examples:

        muster replay state orders --at 2026-11-21T02:14:07Z
        muster replay state orders --at 02:14:07
        muster replay state orders --at 17
    """
    from muster.replay import commands

    commands.state(commands.source_of(log, kafka_config or []), group, form, at=at)


@app.command("report")
def report_command(
    group: GroupArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", dir_okay=False, help="The page; it is written over.")
    ],
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """A group's history as one HTML page for a postmortem: processes over time, incidents, cost, advice.

    The page needs nothing but itself, and asks no host for anything. It has at most 2 MB; what is left out, it says.

    \b
    Example:

        muster replay report orders -o report.html
    """
    from muster.replay.commands import source_of
    from muster.replay.report.command import report

    report(source_of(log, kafka_config or []), group, out)
