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
    typer.Option("--engine", help="local: this process; spark: Spark's workers; auto chooses, and says why."),
]
MasterOption = Annotated[
    str,
    typer.Option(
        "--master", envvar="SPARK_MASTER", help="The Spark master; the one given to spark-submit takes precedence."
    ),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show Spark's log and its complete errors.")]
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
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The archive's folder; created if it is missing.")],
    log: LogOption = DEFAULT_LOG,
    once: Annotated[
        bool, typer.Option("--once", help="Archive what the log contains now, then exit (the default without --every).")
    ] = False,
    every: Annotated[
        int | None,
        typer.Option(
            "--every", metavar="DURATION", parser=interval, help="Repeat at this interval until SIGTERM, e.g. 1m."
        ),
    ] = None,
    engine: EngineOption = EngineName.AUTO,
    master: MasterOption = "local[*]",
    verbose: VerboseOption = False,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Keep every event forever: copy the log into Parquet files, each record once, in order, byte for byte.

    It resumes where it stopped, even after kill -9 or a full disk. `--log archive:DIR` reads the archive.

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
            "--log", metavar="URL", help="Also compare with this log: kafka://HOST:PORT/TOPIC, sqlite:///FILE."
        ),
    ] = None,
    form: Annotated[
        Literal["table", "json"], typer.Option("--format", help="A table for people, json for programs.")
    ] = "table",
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Prove that an archive is complete and unaltered. Exit code 3 if it is not.

    Reports what compaction had removed from the topic before it was archived. Repairs and writes nothing.

    \b
    Example:

        muster fleet verify --archive /archive --log kafka://kafka:9092/__muster_events
    """
    _check_needs()
    from muster.replay.fleet.archive import commands

    commands.verify_command(archive, log, kafka_config, form)


def compact_command(archive: ArchiveOption) -> None:
    """Merge the small files of a day into a few; the records stay unchanged.

    The old files are kept for an hour, for queries that are reading them.

    \b
    Example:

        muster fleet compact --archive /archive
    """
    _check_needs()
    from muster.replay.fleet.archive import commands

    commands.compact_command(archive)


def expire_command(
    archive: ArchiveOption,
    before: Annotated[str, typer.Option("--before", metavar="DAY", help="The first day to keep: 2026-11-21.")],
) -> None:
    """Delete the oldest days: their records are removed for good, and the archive records that they were.

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
