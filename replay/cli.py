"""`muster replay ...`: parse, call one pure function, render, choose the exit code.

Exit codes: 0 answered; 1 the log is well, but what was asked for is not in it, or `verify` found something; 2 a wrong
option, or a log that cannot be read.
"""

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
        "    muster replay diff orders 7 8 --generations\n"
        "    muster replay whatif orders --session-timeout-ms 45000\n"
        "    muster replay verify\n\n"
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

INT32_MAX = 2**31 - 1


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


@app.command("diff")
def diff_command(
    group: GroupArgument,
    before: Annotated[str, typer.Argument(metavar="A", help=f"{FORMS_OF_AT.capitalize()}; or a generation.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The other moment, in one of the same forms.")],
    *,
    generations: Annotated[
        bool, typer.Option("--generations", help="A and B are generations, with their assignments.")
    ] = False,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """The differences of a group between two moments: members, subscriptions, settings, partitions moved and kept.

    \b
    Examples:

        muster replay diff orders 02:14:07 02:20:00
        muster replay diff orders 7 8 --generations
    """
    from muster.replay import commands

    source = commands.source_of(log, kafka_config or [])
    commands.diff(source, group, form, before=before, after=after, of_generations=generations)


def _ms(name: str, text: str) -> typer.models.OptionInfo:
    return typer.Option(name, metavar="MS", min=0, max=INT32_MAX, help=text)  # type: ignore[no-any-return]


@app.command("whatif")
def whatif_command(
    group: GroupArgument,
    *,
    session: Annotated[int | None, _ms("--session-timeout-ms", "session.timeout.ms of all members.")] = None,
    rebalance: Annotated[int | None, _ms("--rebalance-timeout-ms", "The rebalance timeout of all members.")] = None,
    scale_up: Annotated[
        int | None, _ms("--scale-up-delay-ms", "members.expansion.delay.ms of the group: joins are gathered so long.")
    ] = None,
    initial: Annotated[
        int | None, _ms("--initial-rebalance-delay-ms", "group.initial.rebalance.delay.ms of the coordinator.")
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Each process has an instance id, and sends no LeaveGroup.")
    ] = False,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Would this group have rebalanced with other settings? The recorded rebalances, by the same rules.

    \b
    Examples:

        muster replay whatif orders --session-timeout-ms 45000
        muster replay whatif orders --static --scale-up-delay-ms 30000
    """
    from muster.replay import commands
    from muster.replay.whatif.alterations import Alterations

    alterations = Alterations(
        session_timeout_ms=session,
        rebalance_timeout_ms=rebalance,
        scale_up_delay_ms=scale_up,
        initial_rebalance_delay_ms=initial,
        is_static=static,
    )
    commands.whatif(commands.source_of(log, kafka_config or []), group, form, alterations)


@app.command("verify")
def verify_command(
    log: LogOption = DEFAULT_LOG, kafka_config: KafkaConfigOption = None, form: FormatOption = Format.TABLE
) -> None:
    """Does the whole log hold together? Owners, epochs, numbering, invariants, and the rules give what was recorded.

    Exit code 1 if not; each finding names partition, offset, group, seq, what was expected and what was found.

    \b
    Example:

        muster replay verify --log sqlite:///muster.db
    """
    from muster.replay import commands

    commands.verify(commands.source_of(log, kafka_config or []), form)
