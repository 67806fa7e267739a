"""The options of `muster replay ...`: parse, call one function."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption
from muster.replay import comparing_cli
from muster.replay.commands.options import (
    FormatOption,
    GroupArgument,
    GroupsOption,
    LogOption,
    SeqOption,
    SinceOption,
    TzOption,
    UntilOption,
)
from muster.replay.form import Format, Sort
from muster.replay.text.times import FORMS_OF_AT

SORT_HELP = f"By {', '.join(Sort)}. Names and states ascend; for the others the most, or the latest, comes first."

app = typer.Typer(
    name="replay",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=(
        "Why did this group rebalance? Reads the event log, even of a running coordinator, without disturbing it.\n\n"
        "\b\n"
        "Examples:\n\n"
        "    muster replay groups --log sqlite:///muster.db\n"
        "    muster replay digest --since 24h\n"
        "    muster replay why orders\n"
        "    muster replay why orders --generation 8\n"
        "    muster replay why orders --since 2h\n"
        "    muster replay history orders --format jsonl\n"
        "    muster replay state orders --at 02:14:07\n"
        "    muster replay diff orders 7 8\n"
        "    muster replay whatif orders --session-timeout 45s\n"
        "    muster replay verify\n"
        "    muster replay report orders -o report.html\n\n"
        "Without --log, the commands read the log that MUSTER_LOG names, or else muster.db in the current directory."
        " Times are local on a terminal and UTC elsewhere, unless --tz is given; in JSON they are always UTC.\n\n"
        "Exit codes: 0 answered; 1 the log does not contain what was asked for, or verify found something; 2 invalid"
        " usage, the log cannot be read, or the output cannot be written; 3 answered, but a part of the log cannot be"
        " read; 130 interrupted; 141 the reader of the output closed it."
    ),
)


@app.command("groups")
def groups_command(
    *,
    group: GroupsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    sort: Annotated[Sort, typer.Option("--sort", metavar="BY", help=SORT_HELP)] = Sort.NAME,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List all groups of the log: state, members, owner, number of rebalances, and why the last one happened.

    With --since, only groups that have events from then on.

    \b
    Examples:

        muster replay groups --log sqlite:///muster.db
        muster replay groups --since 24h --sort rebalances
    """
    from muster.replay.commands import reading as commands

    view = commands.view_of(form, tz)
    window = commands.window_of(since, until, view)
    commands.groups(commands.source_of(log, kafka_config), view, window=window, wanted=group, sort=sort)


@app.command("digest")
def digest_command(
    *,
    since: SinceOption = "24h",
    until: UntilOption = None,
    group: GroupsOption = None,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="table: the default on a terminal; md: for a chat, the default elsewhere; json: for programs.",
        ),
    ] = None,
) -> None:
    """Summarize all groups: the incidents that cost most, storms over several groups, the quiet groups.

    \b
    Examples:

        muster replay digest --since 24h
        muster replay digest --group 'orders-*' --since 7d --format md
    """
    from muster.replay.commands import reading as commands

    view = commands.view_of(form or (Format.TABLE if sys.stdout.isatty() else Format.MD), tz)
    window = commands.window_of(since, until, view)
    commands.digest(commands.source_of(log, kafka_config), view, window=window, wanted=group)


@app.command("history")
def history_command(
    group: GroupArgument,
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new events until interrupted.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show events of the group's own record that add nothing new.")
    ] = False,
    seq: SeqOption = False,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show everything that happened to a group: a line for each event, and for each gap in the log.

    \b
    Examples:

        muster replay history orders
        muster replay history orders --since 02:00 --until 02:30 --tz Europe/Berlin
        muster replay history orders --since 10m --follow
        muster replay history orders --format jsonl | jq -r 'select(.cause == "session-expired") | .member_id'
    """
    from muster.replay.commands import reading as commands

    view = commands.view_of(form, tz)
    if follow and form is Format.JSON:
        commands.fail("--follow does not end, and json is one document: use --format jsonl", commands.CANNOT_READ)
    window = commands.window_of(since, until, view, is_seq=seq)
    commands.history(
        commands.source_of(log, kafka_config), group, view, window=window, goes_on=follow, everything=everything
    )


@app.command("why")
def why_command(
    group: GroupArgument,
    *,
    generation: Annotated[
        int | None,
        typer.Option(
            "--generation",
            metavar="N",
            min=0,
            help="The incident with the rebalance that led to generation N, and all of that rebalance.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="WHEN",
            help=f"The incidents at that time, or the nearest before and after it: {FORMS_OF_AT}.",
        ),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Only the newest incident, even if it has no rebalance.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="All incidents, the newest at the bottom.")] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    seq: SeqOption = False,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Explain why a group rebalanced: its incidents, with what happened, the cost, and what would have avoided it.

    Without an option the last 20, newest first; json and jsonl have all, oldest first. The newest rebalance of an
    incident decides how new it is. Each sentence is recorded (events state it), inferred (events imply it) or unknown,
    and names its events. An incident that crosses --since or --until is shown whole, and says so. docs/incidents.md
    describes the kinds of incidents.

    \b
    Examples:

        muster replay why orders
        muster replay why orders --last
        muster replay why orders --at 02:14:07
        muster replay why orders --generation 8
        muster replay why orders --since 2h
        muster replay why orders --all --format jsonl | jq -r .headline
    """
    from muster.replay.commands import reading as commands

    if (generation is not None) + (at is not None) + last + everything > 1:
        commands.fail("only one of --generation, --at, --last and --all can be given", commands.CANNOT_READ)
    if (last or at is not None) and (since is not None or until is not None):
        which = "--last" if last else "--at"
        commands.fail(
            f"{which} searches the whole history: leave out either {which} or --since and --until", commands.CANNOT_READ
        )
    view = commands.view_of(form, tz)
    window = commands.window_of(since, until, view, is_seq=seq)
    point = None if at is None else commands.point("--at", at, view, is_seq=seq)
    if isinstance(point, commands.AtGeneration):
        generation, point = point.generation_id, None
    asked = commands.AskedIncidents(generation=generation, at=point, last=last, everything=everything)
    commands.why(commands.source_of(log, kafka_config), group, view, asked, window)


@app.command("state")
def state_command(
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="The group id; without it, all groups at that time.")
    ] = None,
    *,
    at: Annotated[str, typer.Option("--at", metavar="WHEN", help=f"The time: {FORMS_OF_AT}.")] = "now",
    pattern: GroupsOption = None,
    seq: SeqOption = False,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a group as it is or was: state, generation, members, partitions of each; or all groups at one time.

    \b
    Examples:

        muster replay state orders
        muster replay state orders --at 2026-11-21T02:14:07Z
        muster replay state orders --at 02:14:07
        muster replay state orders --at 7
        muster replay state orders --at 120 --seq
        muster replay state --group 'orders-*' --at now-10m
    """
    from muster.replay.commands import reading as commands

    if group is not None and pattern is not None:
        commands.fail("give a group or --group, not both", commands.CANNOT_READ)
    view = commands.view_of(form, tz)
    source = commands.source_of(log, kafka_config)
    when = commands.moment("--at", at, view) if group is None else commands.point("--at", at, view, is_seq=seq)
    commands.state(source, group, view, at=when, wanted=pattern)


@app.command("export")
def export_command(
    to: Annotated[
        Path, typer.Argument(metavar="FILE", help="NAME.jsonl: JSON lines; NAME.avro: an Avro container file.")
    ],
    *,
    group: GroupsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    pseudonyms: Annotated[
        Path | None,
        typer.Option(
            "--pseudonyms",
            metavar="KEYFILE",
            help="Replace names of members, clients, hosts and people by HMACs with the key in this file.",
        ),
    ] = None,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Copy the log, or a part of it, to a file that --log reads again.

    \b
    Examples:

        muster replay export night.jsonl --group orders --since 24h
        muster replay export night.avro --pseudonyms keyfile
        muster replay why orders --log night.jsonl
    """
    from muster.replay.commands import reading as commands

    view = commands.view_of(Format.TABLE, tz)
    if to.suffix not in (".jsonl", ".avro"):
        commands.fail(f"{to} is neither NAME.jsonl nor NAME.avro", commands.CANNOT_READ)
    window = commands.window_of(since, until, view)
    source = commands.source_of(log, kafka_config)
    commands.export(source, to, window=window, wanted=group, keyfile=pseudonyms)


@app.command("report")
def report_command(
    group: GroupArgument,
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", dir_okay=False, help="Output file (overwritten).")
    ],
    since: SinceOption = None,
    until: UntilOption = None,
    seq: SeqOption = False,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Write a group's history as one HTML page for a postmortem: processes over time, incidents, cost, advice.

    The page is self-contained and loads nothing from the network. It is at most 2 MB and says what was left out. Its
    times are UTC, or in the zone of --tz; the page can switch them.

    \b
    Examples:

        muster replay report orders -o report.html
        muster replay report orders -o report.html --since 02:00 --until 02:30 --tz Europe/Berlin
    """
    from datetime import UTC

    from muster.replay.commands import asked
    from muster.replay.commands.opening import source_of
    from muster.replay.report.command import report

    view = asked.view_of(Format.TABLE, tz)
    window = asked.window_of(since, until, view, is_seq=seq)
    page_zone = UTC if tz is None else view.zone
    report(source_of(log, kafka_config), group, out, view, window=window, page_zone=page_zone)


comparing_cli.add_to(app)
