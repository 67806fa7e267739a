"""The options of the commands that compare: `diff`, `whatif`, `verify`. As `cli.py`: parse, call one function."""

from typing import Annotated, Final

import typer

from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption, LogOption
from muster.replay.commands.options import FormatOption, GroupArgument, GroupsOption, SinceOption, TzOption, UntilOption
from muster.replay.form import Format
from muster.replay.times import FORMS_OF_AT

INT32_MAX: Final = 2**31 - 1


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("diff")(diff_command)
    app.command("whatif")(whatif_command)
    app.command("verify")(verify_command)


def diff_command(
    group: GroupArgument,
    before: Annotated[str, typer.Argument(metavar="A", help=f"{FORMS_OF_AT[0].upper()}{FORMS_OF_AT[1:]}.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The other moment, in one of the same forms.")],
    *,
    generations: Annotated[
        bool, typer.Option("--generations", help="A and B are generations: each as of its assignment.")
    ] = False,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare a group at two moments: members, subscriptions, configs, partitions moved and kept.

    \b
    Examples:

        muster replay diff orders 02:14:07 02:20:00
        muster replay diff orders 1d now
        muster replay diff orders 7 8 --generations
    """
    from muster.replay.commands import asked, comparing
    from muster.replay.commands.opening import source_of

    view = asked.view_of(form, tz)
    read = comparing.generation if generations else asked.moment
    source = source_of(log, kafka_config or [])
    comparing.diff(source, group, view, before=read("A", before, view), after=read("B", after, view))


def _ms(name: str, text: str) -> typer.models.OptionInfo:
    # A range of typer's own is printed beside MS, and leaves no room for the names in 80 columns.
    return typer.Option(name, metavar="MS", parser=_milliseconds, help=text)  # type: ignore[no-any-return]


def _milliseconds(text: str) -> int:
    """Parse a number of ms. Raises BadParameter."""
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(INT32_MAX)) or int(text) > INT32_MAX:
        raise typer.BadParameter(f"{text!r} is not a number from 0 to {INT32_MAX}")
    return int(text)


def whatif_command(
    group: GroupArgument,
    *,
    session: Annotated[int | None, _ms("--session-timeout-ms", "session.timeout.ms of all members.")] = None,
    rebalance: Annotated[
        int | None, _ms("--rebalance-timeout-ms", "The rebalance timeout of all members (max.poll.interval.ms).")
    ] = None,
    scale_up: Annotated[
        int | None, _ms("--scale-up-delay-ms", "The group's scale-up delay: joins of new members are gathered so long.")
    ] = None,
    initial: Annotated[
        int | None,
        _ms(
            "--initial-rebalance-delay-ms",
            "The coordinator's initial rebalance delay: a first rebalance waits.",
        ),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Each process has a group.instance.id, and sends no LeaveGroup.")
    ] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Would this group have rebalanced with other settings? The rules decide each recorded rebalance again.

    Nothing is guessed: where the log does not bear an answer, it is *cannot tell*, with what is missing.

    \b
    Examples:

        muster replay whatif orders --session-timeout-ms 45000
        muster replay whatif orders --static --scale-up-delay-ms 30000
        muster replay whatif orders --session-timeout-ms 45000 --since 24h --format jsonl | jq -r .verdict
    """
    from muster.replay.commands import asked, comparing
    from muster.replay.commands.opening import CANNOT_READ, fail, source_of
    from muster.replay.whatif.alterations import Alterations

    alterations = Alterations(
        session_timeout_ms=session,
        rebalance_timeout_ms=rebalance,
        scale_up_delay_ms=scale_up,
        initial_rebalance_delay_ms=initial,
        is_static=static,
    )
    if not alterations.told:
        fail("give at least one setting that would be another one; --help lists them", CANNOT_READ)
    view = asked.view_of(form, tz)
    window = asked.window_of(since, until, view)
    comparing.whatif(source_of(log, kafka_config or []), group, view, alterations, window=window)


def verify_command(
    *,
    group: GroupsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Does the whole log hold together? Owners, epochs, numbering, invariants; and the rules give what was recorded.

    Exit code 0 if so, 1 if something was found, 3 if a part of the log, or a record, cannot be read. Each finding names
    partition, offset, group and seq, what was expected, what was found, and what to do. What compaction has taken is
    said, and no finding. With --since, what came before is checked, too, since the rest stands on it, and only what was
    found since is told.

    \b
    Examples:

        muster replay verify --log sqlite:///muster.db
        muster replay verify --group 'orders-*' --since 24h
        muster replay verify --log night.jsonl
        muster replay verify --format jsonl | jq -r .check | sort | uniq -c
    """
    from muster.replay.commands import asked, comparing
    from muster.replay.commands.opening import source_of

    view = asked.view_of(form, tz)
    window = asked.window_of(since, until, view, may_be_seq=False)
    comparing.verify(source_of(log, kafka_config or []), view, window=window, wanted=group)
