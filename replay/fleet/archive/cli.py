"""The options of `muster fleet archive`, `verify`, `compact`, `expire`; no logic of its own."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from muster.durations import duration
from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption
from muster.replay.commands.options import LogOption
from muster.replay.fleet.asked import EngineName
from muster.replay.text.times import DAY_MS

EngineOption = Annotated[
    EngineName,
    typer.Option("--engine", help="local: this process. spark: Spark's workers. auto says which, and why."),
]
MasterOption = Annotated[
    str, typer.Option("--master", envvar="SPARK_MASTER", help="Spark's master; that of spark-submit wins.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show Spark's log, and all of its errors.")]
ArchiveOption = Annotated[Path, typer.Option("--archive", metavar="DIR", help="The archive's folder.")]


EVERY_MS_MAX: Final = 366 * DAY_MS


def interval(text: str) -> int:
    """Parse the value of `--every` to ms."""
    ms = duration(text)
    if not 0 < ms <= EVERY_MS_MAX:
        raise typer.BadParameter(f"{text!r} should be from 1ms to 366d")
    return ms


def _check_needs() -> None:
    from muster.replay.fleet.choice import check_needs

    check_needs("pyarrow")


def archive_command(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The archive's folder; a new one is made.")],
    log: LogOption = DEFAULT_LOG,
    once: Annotated[bool, typer.Option("--once", help="Archive what is there, and end (so without --every).")] = False,
    every: Annotated[
        int | None,
        typer.Option("--every", metavar="DURATION", parser=interval, help="Go on until SIGTERM, in steps such as 1m."),
    ] = None,
    engine: EngineOption = EngineName.AUTO,
    master: MasterOption = "local[*]",
    verbose: VerboseOption = False,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Keep every event for ever: copy the log into Parquet files, each record once, in order, byte by byte.

    It goes on where it was, also after kill -9 and on a disk that was full. `--log archive:DIR` reads it.

    \b
    Example:

        muster fleet archive --log kafka://kafka:9092/__muster_events --to /archive --every 1m
    """
    if once and every is not None:
        raise typer.BadParameter("--once and --every exclude each other")
    _check_needs()
    from muster.replay.fleet.archive import commands

    asked = commands.AskedArchive(
        log=log,
        to=to,
        every_ms=every,
        engine=engine,
        master=master,
        verbose=verbose,
        kafka_config=kafka_config,
    )
    (commands.archive_command if every is None else commands.archive_until_sigterm)(asked)


def verify_command(
    archive: ArchiveOption,
    log: Annotated[
        str | None,
        typer.Option(
            "--log", metavar="URL", help="Compare with the log, too: kafka://HOST:PORT/TOPIC, sqlite:///FILE."
        ),
    ] = None,
    form: Annotated[
        Literal["table", "json"], typer.Option("--format", help="A table for eyes, json for programs.")
    ] = "table",
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Prove that an archive is whole and unaltered. Exit code 3 if it is not.

    Names what compaction had taken from the topic before it was archived. Nothing is repaired or written.

    \b
    Example:

        muster fleet verify --archive /archive --log kafka://kafka:9092/__muster_events
    """
    _check_needs()
    from muster.replay.fleet.archive import commands

    commands.verify_command(archive, log, kafka_config, form)


def compact_command(archive: ArchiveOption) -> None:
    """Join small files of a day into few; the records stay as they are.

    The files that were joined stay for an hour, for those who are reading them.

    \b
    Example:

        muster fleet compact --archive /archive
    """
    _check_needs()
    from muster.replay.fleet.archive import commands

    commands.compact_command(archive)


def expire_command(
    archive: ArchiveOption,
    before: Annotated[str, typer.Option("--before", metavar="DAY", help="The first day that is kept: 2026-11-21.")],
) -> None:
    """Give up days: their records are removed for good, and the archive says so.

    \b
    Example:

        muster fleet expire --archive /archive --before 2026-01-01
    """
    _check_needs()
    from muster.replay.fleet.archive import commands

    commands.expire_command(archive, before)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("archive")(archive_command)
    app.command("verify")(verify_command)
    app.command("compact")(compact_command)
    app.command("expire")(expire_command)
