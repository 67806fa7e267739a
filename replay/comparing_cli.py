"""The options of the commands that compare: `diff`, `whatif`, `verify`. Like `cli.py`, they only parse and call."""

from collections.abc import Callable
from typing import Annotated

import typer

from muster.durations import INT32_MAX, duration, milliseconds
from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption
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
from muster.replay.form import Format
from muster.replay.text.times import FORMS_OF_AT


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("diff")(diff_command)
    app.command("whatif")(whatif_command)
    app.command("verify")(verify_command)


def diff_command(
    group: GroupArgument,
    before: Annotated[str, typer.Argument(metavar="A", help=f"{FORMS_OF_AT[0].upper()}{FORMS_OF_AT[1:]}.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The other time, in one of the same forms.")],
    *,
    seq: SeqOption = False,
    _generations: Annotated[bool, typer.Option("--generations", hidden=True)] = False,  # numbers are, by now
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare a group at two times: members, subscriptions, configs, and the partitions that moved or stayed.

    A generation means the time of its assignment.

    \b
    Examples:

        muster replay diff orders 02:14:07 02:20:00
        muster replay diff orders 1d now
        muster replay diff orders 7 8
        muster replay diff orders 120 155 --seq
    """
    from muster.replay.commands import asked, comparing
    from muster.replay.commands.opening import source_of

    view = asked.view_of(form, tz)
    source = source_of(log, kafka_config)
    one, other = (asked.point(name, text, view, is_seq=seq) for name, text in (("A", before), ("B", after)))
    comparing.diff(source, group, view, before=one, after=other)


def _duration(name: str, text: str) -> typer.models.OptionInfo:
    parser = _within_int32(duration)
    return typer.Option(name, metavar="DURATION", parser=parser, help=text)  # type: ignore[no-any-return]


def _former(name: str) -> typer.models.OptionInfo:
    """Return the deprecated form of an option, which takes a number of ms."""
    return typer.Option(name, parser=_within_int32(milliseconds), hidden=True)  # type: ignore[no-any-return]


def _within_int32(read: Callable[[str], int]) -> Callable[[str], int]:
    def parse(text: str) -> int:
        ms = read(text)
        if ms > INT32_MAX:
            raise typer.BadParameter(f"{text!r} is above {INT32_MAX} ms, about 24 days")
        return ms

    return parse


def _given_once(name: str, value: int | None, former: int | None) -> int | None:
    """Return the value of an option that has two names; end the command if both are given."""
    from muster.replay.commands.opening import CANNOT_READ, fail

    if value is not None and former is not None:
        fail(f"{name} and {name}-ms are the same option: give one of them", CANNOT_READ)
    return former if value is None else value


def whatif_command(
    group: GroupArgument,
    *,
    session: Annotated[
        int | None, _duration("--session-timeout", "The session.timeout.ms of all members: 45s, 1m30s.")
    ] = None,
    rebalance: Annotated[
        int | None, _duration("--rebalance-timeout", "The rebalance timeout of all members (max.poll.interval.ms): 5m.")
    ] = None,
    scale_up: Annotated[
        int | None,
        _duration(
            "--scale-up-delay", "The group's members.expansion.delay.ms, which gathers the joins of new members: 30s."
        ),
    ] = None,
    initial: Annotated[
        int | None,
        _duration(
            "--initial-rebalance-delay", "How long the first rebalance of an empty group waits for more members: 3s."
        ),
    ] = None,
    session_ms: Annotated[int | None, _former("--session-timeout-ms")] = None,
    rebalance_ms: Annotated[int | None, _former("--rebalance-timeout-ms")] = None,
    scale_up_ms: Annotated[int | None, _former("--scale-up-delay-ms")] = None,
    initial_ms: Annotated[int | None, _former("--initial-rebalance-delay-ms")] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Assume that each process has a group.instance.id and sends no LeaveGroup.")
    ] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    seq: SeqOption = False,
    tz: TzOption = None,
    log: LogOption = DEFAULT_LOG,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Would this group have rebalanced with other settings? Applies the group rules again to recorded rebalances.

    Nothing is guessed: where the log does not contain enough, the verdict is *cannot tell*, with what is missing.

    \b
    Examples:

        muster replay whatif orders --session-timeout 45s
        muster replay whatif orders --static --scale-up-delay 30s
        muster replay whatif orders --session-timeout 45s --since 24h --format jsonl | jq -r .verdict
    """
    from muster.replay.commands import asked, comparing
    from muster.replay.commands.opening import CANNOT_READ, fail, source_of
    from muster.replay.whatif.alterations import Alterations

    alterations = Alterations(
        session_timeout_ms=_given_once("--session-timeout", session, session_ms),
        rebalance_timeout_ms=_given_once("--rebalance-timeout", rebalance, rebalance_ms),
        scale_up_delay_ms=_given_once("--scale-up-delay", scale_up, scale_up_ms),
        initial_rebalance_delay_ms=_given_once("--initial-rebalance-delay", initial, initial_ms),
        is_static=static,
    )
    if not alterations.told:
        fail("give at least one setting to change; --help lists them", CANNOT_READ)
    view = asked.view_of(form, tz)
    window = asked.window_of(since, until, view, is_seq=seq)
    comparing.whatif(source_of(log, kafka_config), group, view, alterations, window=window)


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
    """Check the whole log: owners, epochs, numbering, invariants, and that the rules give what was recorded.

    Exit code 0 if all is well, 1 if something was found, 3 if a part of the log, or a record, cannot be read. Each
    finding names partition, offset, group and seq, what was expected, what was found, and what to do. Gaps left by
    compaction are reported, but are not findings. With --since, earlier events are checked too, because later ones
    build on them, but only findings from then on are shown.

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
    window = asked.window_of(since, until, view)
    comparing.verify(source_of(log, kafka_config), view, window=window, wanted=group)
