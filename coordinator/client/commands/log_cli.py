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
    help="Repair or upgrade the event log.",
)


@app.callback()
def log_() -> None:
    """Repair or upgrade the event log."""


YesOption = Annotated[bool, typer.Option("--yes", help="Make the change without asking for confirmation.")]
OwnerHasEndedOption = Annotated[
    bool, typer.Option("--owner-has-ended", help="Confirm that the partition's last owner crashed and no longer runs.")
]
AuditWindowOption = Annotated[
    int | None,
    typer.Option(
        "--audit-window-ms",
        metavar="DURATION",
        parser=milliseconds,
        envvar="MUSTER_AUDIT_WINDOW_MS",
        help="How long the log keeps its whole history, e.g. 7d; use the value of muster serve.",
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
    """Skip unreadable records that keep a whole partition from being served.

    Muster wrote these records: one whose key is unreadable, so that its group is unknown; one about the partition
    itself; or, in the offsets topic, a committed offset. The command prints their offsets, and what is lost with each.
    With --yes, or after a confirmation on the terminal, it writes a tombstone for each. Then restart `muster serve`,
    which reads the partition again. A record of a newer Muster is not damaged: start that version instead. A batch that
    is unreadable as a whole cannot be replaced; the command prints what else helps.

    Writing claims the partition, so it is refused while a `muster serve` may own it: a running one that uses a file
    holds the file's lock; and in a file or a topic, an owner that was ready and has not recorded that it stopped may
    still be running. If that owner has crashed, give --owner-has-ended.

    Exit codes: 0 repaired, or only shown; 1 nothing to repair, or a process may be serving the partition; 2 invalid
    usage, or the log cannot be read or written.

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

    A log stays at the level at which it was created, so that an older Muster can continue with it. At a higher level
    events record more, such as which members delayed a join phase and since when a group was empty. Existing events
    stay as they are, and every newer Muster reads them. An older Muster refuses the log from then on, and there is no
    way back: upgrade only if you will not return to an older version.

    Like `muster log repair`, it claims the partitions, so it is refused while a `muster serve` may own them. Stop that
    process first; if it has crashed, give --owner-has-ended.

    Exit codes: 0 upgraded, or only shown; 1 nothing to upgrade, or a process may be serving the log; 2 invalid usage,
    or the log cannot be read or written.

    \b
    Examples:

        muster log upgrade --log sqlite:///muster.db
        muster log upgrade --log kafka://127.0.0.1:29092/__muster_events --yes
    """
    from muster.coordinator.client.commands.log_commands import upgrade_log

    upgrade_log(log, kafka_config, yes=yes, owner_has_ended=owner_has_ended, audit_window_ms=audit_window_ms)
