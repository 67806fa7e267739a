"""`muster serve` and `muster config check`. Thin: reads settings, runs the service, chooses the exit code."""

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from muster.coordinator.settings.kafka_settings import KAFKA_SETTINGS, KafkaSettings
from muster.coordinator.settings.options import GENERAL, PANELS, help_of, shown_of
from muster.coordinator.settings.setting_sources import flag
from muster.coordinator.settings.settings import Settings
from muster.events.kafka.security import PROPERTIES

EXIT_LOST = 1
EXIT_UNUSABLE = 2

CONFIG_HELP = "\n\n".join(
    [
        "Settings that --config takes:",
        *(f"- `{name}`: {help_of(Settings.model_fields[field])}" for name, field in KAFKA_SETTINGS.items()),
        "Properties that --upstream-config and --kafka-config take:",  # a column of the options would cut them
        *(f"- `{name}`" for name in PROPERTIES),
    ]
)
"""The text below the options; typer treats each paragraph as a line."""

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


def serve(**given: Any) -> None:  # noqa: ANN401 -- see `_signature`
    """Coordinate consumer groups: standalone, or as a sidecar in front of an unmodified Kafka cluster.

    Standalone needs no cluster. Clients can subscribe to the topics that you declare, which hold no data: real
    consumers join, get assignments, heartbeat and commit. With --upstream, Muster answers group membership itself and
    relays everything else to the cluster's brokers, each of which has a port of its own here.

    Examples:

        muster serve --listen 127.0.0.1:9092 --topic orders:12 --config group.initial.rebalance.delay.ms=3000

        muster serve --listen 127.0.0.1:9092 --upstream kafka-1:9092,kafka-2:9092 --groups 'orders-*'

    Each option can also be set in the environment (--frame-bytes-max as MUSTER_FRAME_BYTES_MAX, group.max.size as
    MUSTER_GROUP_MAX_SIZE) or in a file (--config-file). A flag takes precedence over the environment, the environment
    over the file. SIGTERM and SIGINT stop it cleanly.

    Exit codes: 0 stopped by a signal; 1 the event log was lost while serving (another process took it over, or it is
    damaged, missing or replaced), or an internal error of Muster; 2 a setting or the event log cannot be used at the
    start, or another process took this one's node id later.
    """
    config, config_file = given.pop("config"), given.pop("config_file")
    import asyncio

    import uvloop

    from muster.coordinator.assembly import CannotServe
    from muster.coordinator.observability.log_lines import write_lines_beside
    from muster.coordinator.observability.metrics import REGISTRY
    from muster.coordinator.serve import LogLost, run
    from muster.coordinator.settings.loading import BadSettings, load_settings

    try:
        settings = load_settings(given, config or [], config_file)
        if settings.processes > 1:
            from muster.coordinator.processes.supervisor import supervise

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(supervise(settings, sys.argv[1:]))
            return
        lines = write_lines_beside()
        if lines is not None:
            REGISTRY.register(lines)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings))
    except BadSettings as error:
        fail_each(error, EXIT_UNUSABLE)
    except CannotServe as error:
        end(str(error), EXIT_UNUSABLE)
    except LogLost as error:
        end(str(error), EXIT_LOST)


def check(**given: Any) -> None:  # noqa: ANN401 -- see `_signature`
    """Check all settings as muster serve does, without starting anything, and show each value with its source.

    It takes the options, MUSTER_ variables and file of muster serve. It reads certificate and key files, but binds no
    port, opens no log and contacts no broker. Secrets are not shown.

    Exit codes: 0 muster serve would accept these settings; 2 some cannot be used, each of which is named in one line.

    Examples:

        muster config check --config-file /etc/muster/muster.toml

        muster config check --upstream kafka-1:9092 --format json
    """
    config, config_file, form = given.pop("config"), given.pop("config_file"), given.pop("form")
    from muster.coordinator.client.commands.config_check import show_settings
    from muster.coordinator.settings.loading import BadSettings, load_settings

    try:
        settings = load_settings(given, config or [], config_file)
    except BadSettings as error:
        fail_each(error, EXIT_UNUSABLE)
    show_settings(settings, as_json=form == "json")


def _signature(*others: inspect.Parameter) -> inspect.Signature:
    """Make the signature from which typer builds the command: an option for each declared setting, by panel."""
    fields = [(name, field) for name, field in Settings.model_fields.items() if name not in KafkaSettings.model_fields]
    fields.sort(key=lambda each: PANELS.index(shown_of(each[1]).panel))
    config = typer.Option(
        metavar="KEY=VALUE", help="One of Kafka's settings listed below, e.g. group.max.size=500; repeatable."
    )
    config_file = typer.Option(
        metavar="FILE",
        envvar="MUSTER_CONFIG_FILE",
        show_envvar=False,
        help="A TOML file with these options; Kafka's settings go in its table [config], the cluster's client "
        "properties in [upstream].",
    )
    return inspect.Signature(
        [
            *(_parameter(name, Annotated[_given_as(name, field), _option(name, field)]) for name, field in fields),
            _parameter("config", Annotated[list[str] | None, config]),
            _parameter("config_file", Annotated[Path | None, config_file]),
            *others,
        ]
    )


def _parameter(name: str, annotation: Any) -> inspect.Parameter:  # noqa: ANN401
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _option(name: str, field: FieldInfo) -> Any:  # noqa: ANN401 -- as typer's Option
    shown = shown_of(field)
    choices = "|".join(get_args(field.annotation)) if get_origin(field.annotation) is Literal else None
    duration = "DURATION" if name.endswith("_ms") else None
    panel = None if shown.panel == GENERAL else shown.panel
    return typer.Option(
        flag(name),
        metavar=shown.metavar or choices or duration,
        help=help_of(field),
        rich_help_panel=panel,
    )


def _given_as(name: str, field: FieldInfo) -> Any:  # noqa: ANN401 -- a type
    """Return the type for typer; values that typer takes as text are parsed when the settings are loaded."""
    if name.endswith("_ms"):  # a duration, or a number
        return str | None
    if get_origin(field.annotation) in (list, dict):
        return list[str] | None
    kinds = (field.annotation, *get_args(field.annotation))
    return next((each for each in (bool, int, Path) if each in kinds), str) | None


serve.__signature__ = _signature()  # type: ignore[attr-defined]
app.command("serve", epilog=CONFIG_HELP)(serve)

FORM = typer.Option("--format", metavar="table|json", help="A table for people, JSON for programs. [default: table]")
check.__signature__ = _signature(  # type: ignore[attr-defined]
    _parameter("form", Annotated[Literal["table", "json"] | None, FORM])
)
config_app = typer.Typer(
    name="config",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Check the settings of muster serve without starting anything.",
)
config_app.command("check", epilog=CONFIG_HELP)(check)


@config_app.callback()
def config_() -> None:
    """Check the settings of muster serve without starting anything."""


def fail_each(error: Exception, code: int) -> NoReturn:
    """Print each line of the error about the settings, and exit."""
    for line in str(error).splitlines():
        print(f"muster: {line}", file=sys.stderr)
    raise typer.Exit(code)


def end(message: str, code: int) -> NoReturn:
    """Print why the process ends in one line, in the format of the log, and exit."""
    from muster.coordinator.observability.logs import are_json, log_exit

    if are_json():
        log_exit(message, code)
    else:
        print(f"muster: {message}", file=sys.stderr)
    raise typer.Exit(code)
