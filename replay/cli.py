"""`muster replay ...`: parse, call one pure function, render, choose the exit code.

Exit codes: 0 answered; 1 the log is well, but what was asked for is not in it; 2 a wrong option, or a log that cannot
be read.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import Annotated, NoReturn, TypeVar

import msgspec
import typer
from rich.console import Console

from muster.events.ids import GroupId
from muster.events.log.base import EventLog, LogError
from muster.events.log.kafka.client.security import KAFKA_CONFIG, KAFKA_CONFIG_HELP, KafkaSecurity, security_given
from muster.events.log.url import open_log
from muster.events.records import EventsError
from muster.events.strangers import Strangers
from muster.replay.groups import Groups, Overview
from muster.replay.history import History
from muster.replay.progress import watched
from muster.replay.render import Format, Result, render
from muster.replay.render.printable import printable
from muster.replay.sources import Take, read_histories, read_log
from muster.replay.state import FORMS_OF_AT, read_at, state_at
from muster.replay.story import story
from muster.replay.times import instant
from muster.replay.why.why import generations_of
from muster.replay.why.why import why as why_of

T = TypeVar("T")

NOT_FOUND = 1
CANNOT_READ = 2

app = typer.Typer(
    name="replay",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help=(
        "Why did this group rebalance? Reads the event log, of a live coordinator too, and disturbs nobody.\n\n"
        "\b\n"
        "Examples:\n\n"
        "    muster replay groups --log sqlite:///muster.db\n"
        "    muster replay why orders\n"
        "    muster replay why orders --generation 8\n"
        "    muster replay history orders --format jsonl\n"
        "    muster replay state orders --at 02:14:07\n\n"
        "Without --log, MUSTER_LOG is read, and muster.db in the current directory. All times are UTC."
    ),
)

LogOption = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="URL",
        envvar="MUSTER_LOG",
        help="The event log: sqlite:///FILE or kafka://HOST:PORT/TOPIC.",
    ),
]
KafkaConfigOption = Annotated[
    list[str] | None, typer.Option(KAFKA_CONFIG, metavar="NAME=VALUE", help=KAFKA_CONFIG_HELP)
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format", help="A table for eyes; json, or jsonl (a line per rebalance, event, group) for programs."
    ),
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group id.")]

DEFAULT_LOG = "sqlite:///muster.db"


@app.command("groups")
def groups_command(
    log: LogOption = DEFAULT_LOG, kafka_config: KafkaConfigOption = None, form: FormatOption = Format.TABLE
) -> None:
    """Every group of the log: state, members, how often it rebalanced, and why it did so last.

    \b
    Example:

        muster replay groups --log sqlite:///muster.db
    """
    _print(_overview(_source(log, kafka_config)), form)


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
    _print(story(_history(_source(log, kafka_config), group)), form)


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
    if (generation is not None) + last + everything > 1:
        _fail("only one of --generation, --last and --all can be given", CANNOT_READ)
    history = _history(_source(log, kafka_config), group)
    result = why_of(history, generation=generation, everything=everything)
    if generation is not None and not result.answers:
        _fail(f"no rebalance of {group} led to generation {generation} in {history.log}; {_known(history)}", NOT_FOUND)
    _print(result, form)


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
    history = _history(_source(log, kafka_config), group)
    moment = read_at(at, history)
    if moment is None:
        _fail(f"--at {printable(at)!r} is none of these: {FORMS_OF_AT}", CANNOT_READ)
    result = state_at(history, moment)
    if result is None:
        _fail(f"{history.log} does not tell of {group} at {at}; {_extent(history)}", NOT_FOUND)
    _print(result, form)


# ---- reading ------------------------------------------------------------------------------------


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """Which log, and how to reach it."""

    url: str
    security: KafkaSecurity


def _source(url: str, kafka_config: list[str] | None) -> _Source:
    try:
        return _Source(url=url, security=security_given(kafka_config or [], os.environ))
    except LogError as error:
        _fail(str(error), CANNOT_READ)


def _overview(source: _Source) -> Groups:
    overview = Overview()
    return overview.result(_run(_read_all(source, overview.take)))


async def _read_all(source: _Source, take: Take) -> str:
    strangers = Strangers()
    async with _opened(source) as log:
        with watched(f"reading {log.location}") as watch:
            await read_log(log, take, watch=watch, strangers=strangers)
        _tell_of(strangers, log.location)
        return log.location


def _history(source: _Source, group: str) -> History:
    """The group's history; ends the command if there is none, naming groups of similar names."""
    history = _run(_read_one(source, GroupId(group)))
    if history is None:
        _fail(_unknown(group, _overview(source)), NOT_FOUND)
    return history


def _unknown(group: str, groups: Groups) -> str:
    message = f"there is no group {printable(group)!r} in {groups.log}"
    near = get_close_matches(group, [line.group_id for line in groups.groups], n=3)
    return f"{message}; did you mean {' or '.join(map(printable, near))}?" if near else message


async def _read_one(source: _Source, group: GroupId) -> History | None:
    strangers = Strangers()
    async with _opened(source) as log:
        with watched(f"reading {log.location}") as watch:
            histories = await read_histories(log, group=group, watch=watch, strangers=strangers)
        _tell_of(strangers, log.location)
        return histories.get(group)


def _tell_of(strangers: Strangers, location: str) -> None:
    if strangers.records:
        typer.echo(f"muster replay: {strangers.told(location)}", err=True)


@asynccontextmanager
async def _opened(source: _Source) -> AsyncIterator[EventLog]:
    log = open_log(source.url, read_only=True, security=source.security)
    await log.open()
    try:
        yield log
    finally:
        await log.close()
    for warning in log.warnings:
        typer.echo(f"muster replay: {warning}", err=True)


def _run(reading: Coroutine[None, None, T]) -> T:
    """Read; whatever is wrong with the log is one line."""
    try:
        return asyncio.run(reading)
    except (LogError, EventsError) as error:
        _fail(str(error), CANNOT_READ)


# ---- answering ----------------------------------------------------------------------------------


def _print(result: Result, form: Format) -> None:
    render(result, form, Console(highlight=False, soft_wrap=False))


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"muster replay: {message}", err=True)
    raise typer.Exit(code)


def _known(history: History) -> str:
    generations = generations_of(history)
    if not generations:
        return "it tells of no rebalance"
    return f"it tells of {', '.join(map(str, generations))}"


def _extent(history: History) -> str:
    events = list(history.events)
    if not events:
        return "none of its events can be read"
    first, last = events[0], events[-1]
    return (
        f"it tells of seq {first.event.seq} to {last.event.seq}, from {instant(first.at_ms)} to {instant(last.at_ms)}"
    )
