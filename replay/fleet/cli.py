"""The options of `muster fleet ...`; no logic of its own. Exit codes are those of `muster replay`.

0 done; 1 the tables do not have what was asked for; 2 an option, or something that is needed, is unusable; 3 part of
the input could not be archived or folded (the rest was), or `verify` found something.
"""

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption
from muster.replay.commands.options import LogOption
from muster.replay.commands.speaking import speaking_as
from muster.replay.fleet import questions_cli
from muster.replay.fleet.archive import cli as archive_cli
from muster.replay.fleet.asked import EngineName
from muster.replay.fleet.simulation import cli as simulation_cli

app = typer.Typer(
    name="fleet",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=(
        "Analyze the history of all groups as tables (pip install '.[fleet]' in the checkout).\n\n"
        "Exit codes: 0 done; 1 the tables do not contain what was asked for; 2 an option, a file or a package that is"
        " needed cannot be used; 3 a part could not be read (the rest was archived or built), or verify found"
        " something; 130 interrupted; 141 the reader of the output closed it."
    ),
)


@app.callback()
def fleet(context: typer.Context) -> None:
    """Analyze the history of all groups as tables (pip install '.[fleet]' in the checkout)."""
    context.with_resource(speaking_as("muster fleet"))


@app.command("build")
def build_command(
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The folder of the tables (Parquet); created if it is missing.")
    ],
    log: LogOption = DEFAULT_LOG,
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="DIR", help="Read the files of this archive instead of --log.")
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            "--every",
            metavar="DURATION",
            parser=archive_cli.interval,
            help="Rebuild at this interval until SIGTERM, e.g. 1m.",
        ),
    ] = None,
    kafka_config: KafkaConfigOption = None,
    engine: archive_cli.EngineOption = EngineName.AUTO,
    master: archive_cli.MasterOption = "local[*]",
    verbose: archive_cli.VerboseOption = False,
    grace: Annotated[
        int | None,
        typer.Option(
            "--grace",
            metavar="DURATION",
            parser=archive_cli.duration,
            help="How long files of earlier builds are kept for queries that read them. [default: 1h]",
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build from the start of the log instead of from the last build.")
    ] = False,
) -> None:
    """Bring the tables up to date: rebalances, incidents, memberships, and the tables derived from them.

    Reads only what the log has gained since the last build. With --every it repeats until SIGTERM, and then finishes
    the build that is running; it waits for a log that is unreachable or missing, for another build, and for disk space.

    \b
    Example:

        muster fleet build --archive /archive --to fleet --every 1m
        muster fleet build --log sqlite:///muster.db --to fleet
        muster fleet top --tables fleet
    """
    if rebuild and every is not None:
        raise typer.BadParameter("--rebuild and --every exclude each other: rebuild once")
    if archive is not None and archive.resolve() == to.resolve():
        raise typer.BadParameter(f"--to {to} is the archive's folder: give the tables a folder of their own")
    from muster.replay.fleet.choice import check_needs

    check_needs()
    from muster.replay.fleet.commands import AskedBuild, build_tables
    from muster.replay.fleet.tables.builds import GRACE_MS

    asked = AskedBuild(
        log=log if archive is None else f"archive:{quote(str(archive))}",
        to=to,
        every_ms=every,
        engine=engine,
        master=master,
        verbose=verbose,
        kafka_config=kafka_config,
        rebuild=rebuild,
        grace_ms=GRACE_MS if grace is None else grace,
    )
    build_tables(asked)


questions_cli.add_to(app)
archive_cli.add_to(app)
simulation_cli.add_to(app)
