"""`muster drill ...`: the commands and their options."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from muster.coordinator.client.commands.answer import AnswerFormat
from muster.drills.plan import CLIENT_CONFIG, CLIENT_CONFIG_VARIABLES, Between, Fault, Given, Mode
from muster.durations import duration
from muster.events.kafka.security import KAFKA_CONFIG, KAFKA_CONFIG_HELP

app = typer.Typer(
    name="drill",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=(
        "Failover drills on a real cluster, with groups of their own: what do members notice?\n\n"
        "A drill starts members that join, heartbeat and commit, injects one fault, and reports what the members"
        " noticed: how long each kind of request went unanswered, rebalances (the goal is none), lost events and"
        " commits (none), and how long a takeover took, phase by phase. It creates groups named muster-drill-RUN-...,"
        " touches no others, and deletes them again, even after Ctrl-C.\n\n"
        "\b\n"
        "Examples:\n\n"
        "    muster drill takeover --local --kafka 127.0.0.1:9092 -o drill.html\n"
        "    muster drill restart --local --kafka kafka-1:9092 --groups 100 --members 10\n"
        "    muster drill partition --local --kafka 127.0.0.1:9092 --between clients --for 5s\n"
        "    muster drill restart --bootstrap 10.0.0.1:9092 --topic orders \\\n"
        "        --log kafka://kafka-1:9092/groups --by 'systemctl restart muster@1'\n\n"
        "With --local the drill starts its own processes on this machine, with an event log of their own in the"
        " cluster. On a running service only takeover and restart are possible, as a clean hand-over.\n\n"
        "Exit codes: 0 all goals met; 1 a goal was missed, or the service did not recover; 2 an option cannot be used,"
        " or the drill refuses to run; 130 interrupted. docs/drills.md has more."
    ),
)

WHERE: Final = "Where"
LOAD: Final = "Load"
GOALS: Final = "Goals"
FAULT: Final = "Fault"


def _duration(default: str, help_: str, flag: str, panel: str | None = None) -> tuple[Any, Any]:
    option = typer.Option(flag, metavar="DURATION", parser=duration, help=help_, rich_help_panel=panel)
    return Annotated[int, option], default


def _optional_duration(help_: str, flag: str) -> tuple[Any, Any]:
    option = typer.Option(flag, metavar="DURATION", parser=duration, help=help_, rich_help_panel=GOALS)
    return Annotated[int | None, option], None


def _number(
    default: int, help_: str, flag: str, panel: str, *, least: int = 1, most: int | None = None
) -> tuple[Any, Any]:
    return Annotated[int, typer.Option(flag, min=least, max=most, help=help_, rich_help_panel=panel)], default


def _text(help_: str, flag: str, metavar: str, panel: str | None = WHERE, envvar: str | None = None) -> tuple[Any, Any]:
    option = typer.Option(flag, metavar=metavar, help=help_, rich_help_panel=panel, envvar=envvar)
    return Annotated[str | None, option], None


_LOCAL: Final = {
    "local": (
        Annotated[
            bool,
            typer.Option("--local", help="Start the drill's own processes on this machine.", rich_help_panel=WHERE),
        ],
        False,
    ),
    "kafka": _text(
        "With --local: the cluster in which the drill creates its event log, topic muster-drill-RUN.",
        "--kafka",
        "HOST:PORT",
    ),
    "mode": (
        Annotated[
            Mode,
            typer.Option(
                "--mode",
                help="With --local: standalone processes, or sidecars in front of that cluster.",
                rich_help_panel=WHERE,
            ),
        ],
        Mode.STANDALONE,
    ),
    "processes": _number(
        2, "With --local: the number of processes that share the partitions.", "--processes", WHERE, least=2, most=50
    ),
    "partitions": _number(
        10, "With --local: the number of partitions of the event log.", "--partitions", WHERE, most=1_000
    ),
    "owner_session": _duration(
        "10s",
        "With --local: how long a process may be silent before the others take over, if they do not notice earlier.",
        "--owner-session",
        WHERE,
    ),
}
_SERVICE: Final = {
    "bootstrap": _text(
        "Drill a running service instead: the address that its clients use.", "--bootstrap", "HOST:PORT"
    ),
    "log": _text("With --bootstrap: its event log.", "--log", "URL", envvar="MUSTER_LOG"),
    "topic": _text(
        "With --bootstrap: a topic for the drill's members to subscribe to; they read nothing from it.",
        "--topic",
        "NAME",
    ),
    "by": _text("With --bootstrap: the command that stops or restarts one of its processes.", "--by", "COMMAND"),
    "client_config": (
        Annotated[
            list[str] | None,
            typer.Option(
                CLIENT_CONFIG,
                metavar="KEY=VALUE",
                help=(
                    "With --bootstrap: Kafka client properties for connecting as its clients do, if it requires "
                    "TLS or credentials, e.g. security.protocol=SASL_SSL; also in the environment, as "
                    f"{CLIENT_CONFIG_VARIABLES}SASL_PASSWORD and so on."
                ),
                rich_help_panel=WHERE,
            ),
        ],
        None,
    ),
    "yes": (
        Annotated[
            bool,
            typer.Option(
                "--yes",
                help="With --bootstrap: do not ask for confirmation, whichever processes share the partitions.",
                rich_help_panel=WHERE,
            ),
        ],
        False,
    ),
}
_KAFKA_CONFIG: Final = {
    "kafka_config": (
        Annotated[
            list[str] | None,
            typer.Option(KAFKA_CONFIG, metavar="KEY=VALUE", help=KAFKA_CONFIG_HELP, rich_help_panel=WHERE),
        ],
        None,
    )
}
_SHARED: Final = {
    "groups": _number(20, "Number of groups; every other one has static members.", "--groups", LOAD, most=10_000),
    "members": _number(5, "Number of members of each group.", "--members", LOAD, least=2, most=500),
    "session_timeout": _duration("45s", "The session timeout of the members.", "--session-timeout", LOAD),
    "interval": _duration("500ms", "How often each member heartbeats and commits.", "--interval", LOAD),
    "before": _duration("3s", "How long to measure before the fault, at least.", "--before", LOAD),
    "after": _duration("3s", "How long to measure after the service has recovered.", "--after", LOAD),
    "within": _duration("2m", "How long to wait for the service to recover.", "--within", LOAD),
    "heartbeats_within": _optional_duration(
        "Goal: the longest time without a response to heartbeats. [default: 3s, a heartbeat interval of clients]",
        "--heartbeats-within",
    ),
    "joins_within": _optional_duration(
        "Goal: the longest time without a response to joins, of static members that restart. [default: 5s]",
        "--joins-within",
    ),
    "commits_within": _optional_duration(
        "Goal: the longest time without a response to commits. [default: 5s, an auto-commit interval of clients]",
        "--commits-within",
    ),
    "out": (
        Annotated[
            Path | None,
            typer.Option("--out", "-o", metavar="FILE", help="Also write the report to this file, as an HTML page."),
        ],
        None,
    ),
    "form": (
        Annotated[AnswerFormat, typer.Option("--format", help="A table for people, json for programs.")],
        AnswerFormat.TABLE,
    ),
}


def _command(
    fault: Fault, *, own: dict[str, tuple[Any, Any]], on_service: bool = False
) -> Callable[[Callable[[], None]], None]:
    """Make a command from a function that has only a docstring, which is the command's help."""
    options = own | _LOCAL | (_SERVICE if on_service else {}) | _KAFKA_CONFIG | _SHARED

    def make(described: Callable[[], None]) -> None:
        def run(**given: Any) -> None:  # noqa: ANN401 -- see `__signature__`
            from muster.drills.start import start

            start(fault, Given(**given), is_for_service=on_service)

        run.__doc__ = described.__doc__
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
                for name, (annotation, default) in options.items()
            ]
        )
        app.command(str(fault))(run)

    return make


@_command(Fault.TAKEOVER, own={}, on_service=True)
def _takeover() -> None:
    """A process dies, and the others take over its partitions.

    With --local the process that coordinates most of the drill's groups is killed (kill -9) and stays down. On a
    running service, --by stops one of its processes, as cleanly as that command does.

    \b
    Examples:

        muster drill takeover --local --kafka 127.0.0.1:9092
        muster drill takeover --bootstrap 10.0.0.1:9092,10.0.0.2:9092 --topic orders \\
            --log kafka://kafka-1:9092/groups --by 'systemctl stop muster@1'
    """


@_command(Fault.RESTART, own={}, on_service=True)
def _restart() -> None:
    """Every process is restarted, one after another, as in a rolling upgrade.

    With --local each one is stopped cleanly (SIGTERM) and started again; the next one follows when the partitions are
    shared again. On a running service, --by is the command that restarts it.

    \b
    Examples:

        muster drill restart --local --kafka 127.0.0.1:9092
        muster drill restart --bootstrap 10.0.0.1:9092,10.0.0.2:9092 --topic orders \\
            --log kafka://kafka-1:9092/groups --by 'kubectl rollout restart statefulset/muster' --after 2m
    """


@_command(Fault.FENCE, own={})
def _fence() -> None:
    """Another writer claims partitions while their owner serves them, as if a second coordinator were started.

    The drill claims all partitions of the process that coordinates most of its groups, writes the fence records, and
    disconnects. The deposed owner must store nothing more, and the partitions are assigned again.

    \b
    Example:

        muster drill fence --local --kafka 127.0.0.1:9092
    """


_FOR: Final = {"lasts": _duration("15s", "How long the fault lasts.", "--for", FAULT)}


@_command(
    Fault.PARTITION,
    own=_FOR
    | {
        "between": (
            Annotated[
                Between,
                typer.Option(
                    "--between", help="Cut off a process from its log, or from its clients.", rich_help_panel=FAULT
                ),
            ],
            Between.LOG,
        )
    },
)
def _partition() -> None:
    """The network is cut for a while between a process and its log, or between a process and its clients.

    The drill has a proxy there, which drops all traffic silently. A process that is cut off from its log is replaced
    when its session in the ownership group expires (--owner-session). One that is cut off only from its clients is not,
    because it can still serve: the clients wait for the network, and keep their memberships because their sessions last
    longer.

    \b
    Examples:

        muster drill partition --local --kafka 127.0.0.1:9092
        muster drill partition --local --kafka 127.0.0.1:9092 --between clients --for 5s
    """


@_command(
    Fault.SLOW_BROKER,
    own=_FOR | {"delay": _duration("200ms", "How much later the brokers respond.", "--delay", FAULT)},
)
def _slow_broker() -> None:
    """The brokers that have the event log respond late for a while, to all processes.

    \b
    Example:

        muster drill slow-broker --local --kafka 127.0.0.1:9092 --delay 500ms --for 30s
    """
