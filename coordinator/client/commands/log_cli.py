"""The options of `muster log repair` and `muster log upgrade`; `log_commands.py` runs them."""

from typing import Annotated

import typer

from muster.durations import milliseconds
from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption, LogOption

app = typer.Typer(
    name="log",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Repair or upgrade the event log itself.",
)


@app.callback()
def log_() -> None:
    """Repair or upgrade the event log itself."""


YesOption = Annotated[bool, typer.Option("--yes", help="Do it, without asking.")]
OwnerHasEndedOption = Annotated[
    bool, typer.Option("--owner-has-ended", help="The partition's last owner has crashed and does not run any more.")
]
AuditWindowOption = Annotated[
    int | None,
    typer.Option(
        "--audit-window-ms",
        metavar="DURATION",
        parser=milliseconds,
        envvar="MUSTER_AUDIT_WINDOW_MS",
        help="As for muster serve.",
    ),
]


@app.command("repair")
def repair(
    log: LogOption = DEFAULT_LOG,
    *,
    yes: YesOption = False,
    owner_has_ended: OwnerHasEndedOption = False,
    audit_window_ms: AuditWindowOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Skip records that cannot be read and stop a whole partition, so that it is served again.

    These are records that Muster wrote: one with an unreadable key, so that its group is unknown, one about the
    partition itself, or, in the offsets topic, a committed offset. The command prints their offsets, and what is lost
    with each. With --yes, or a yes on the terminal, it writes a tombstone for each. Then restart `muster serve`, which
    reads the partition again. A record of a newer Muster is no damage: start that one. A whole batch that cannot be
    read cannot be replaced; the command prints what else helps.

    Writing claims the partition, so it is refused while a `muster serve` may own it: one that runs on a file has the
    file's lock; and in a file as in a topic one that was ready and has not noted that it stopped may be running. If
    that one has crashed, give --owner-has-ended.

    Exit codes: 0 repaired, or only looked; 1 nothing to repair, or the partition may be served by somebody; 2 wrong
    use, or a log that cannot be read or written.

    \b
    Examples:

        muster log repair --log sqlite:///muster.db
        muster log repair --log kafka://127.0.0.1:29092/__muster_events --yes
    """
    from muster.coordinator.client.commands.log_commands import repair_log

    repair_log(log, kafka_config, yes=yes, owner_has_ended=owner_has_ended, audit_window_ms=audit_window_ms)


@app.command("upgrade")
def upgrade(
    log: LogOption = DEFAULT_LOG,
    *,
    yes: YesOption = False,
    owner_has_ended: OwnerHasEndedOption = False,
    audit_window_ms: AuditWindowOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Raise the log's format level to that of this Muster, for good.

    A log stays at the level that it was made at, so that an older Muster can go on with it. At a higher level events
    say more, such as who held a join phase up and since when a group was empty. What is there stays as it is, and every
    newer Muster reads it. An older one is refused from then on, and there is no way back: upgrade when you will not
    return to it.

    As `muster log repair` it claims the partitions, so it is refused while a `muster serve` may own them. Stop that
    one first; if it has crashed, give --owner-has-ended.

    Exit codes: 0 upgraded, or only looked; 1 nothing to upgrade, or the log may be served by somebody; 2 wrong use, or
    a log that cannot be read or written.

    \b
    Examples:

        muster log upgrade --log sqlite:///muster.db
        muster log upgrade --log kafka://127.0.0.1:29092/__muster_events --yes
    """
    from muster.coordinator.client.commands.log_commands import upgrade_log

    upgrade_log(log, kafka_config, yes=yes, owner_has_ended=owner_has_ended, audit_window_ms=audit_window_ms)
