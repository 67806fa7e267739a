"""`muster serve`. A skin: read the settings, run the service, choose the exit code."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from muster.coordinator.settings.loading import BadSettings, load_settings
from muster.coordinator.settings.settings import KAFKA_SETTINGS, Settings

EXIT_LOST = 1
EXIT_UNUSABLE = 2

# Headings of `--help`.
STANDALONE = "Standalone"
SIDECAR = "Sidecar"
TLS = "TLS towards clients (sidecar)"
EVENT_LOG = "Event log"
WATCHING = "Metrics and logs"


def _help(field: str) -> str:
    info = Settings.model_fields[field]
    default = info.get_default(call_default_factory=True)
    if isinstance(default, list):
        default = ", ".join(default)
    shown = "" if default in (None, "", {}, False) else f" [default: {default}]"
    return f"{info.description}{shown}"


CONFIG_HELP = "\n\n".join(
    ["Settings that --config takes:", *(f"- `{name}`: {_help(field)}" for name, field in KAFKA_SETTINGS.items())]
)
"""What stands below the options; each paragraph is a line to typer."""


def serve(
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help=_help("listen"))] = None,
    advertise: Annotated[str | None, typer.Option(metavar="HOST:PORT", help=_help("advertise"))] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A setting by Kafka's name, of those below; may be given several times."
        ),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TOML file: these options, Kafka's in a table [config], the cluster's in [upstream].",
        ),
    ] = None,
    frame_bytes_max: Annotated[int | None, typer.Option(help=_help("frame_bytes_max"))] = None,
    queued_max_request_bytes: Annotated[int | None, typer.Option(help=_help("queued_max_request_bytes"))] = None,
    connections_max: Annotated[int | None, typer.Option(help=_help("connections_max"))] = None,
    connections_max_idle_ms: Annotated[int | None, typer.Option(help=_help("connections_max_idle_ms"))] = None,
    unread_answers_max_ms: Annotated[int | None, typer.Option(help=_help("unread_answers_max_ms"))] = None,
    max_connections_per_ip: Annotated[int | None, typer.Option(help=_help("max_connections_per_ip"))] = None,
    waiting_per_principal: Annotated[int | None, typer.Option(help=_help("waiting_per_principal"))] = None,
    member_metadata_max_bytes: Annotated[int | None, typer.Option(help=_help("member_metadata_max_bytes"))] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:PARTITIONS", help=_help("topic"), rich_help_panel=STANDALONE),
    ] = None,
    node_id: Annotated[int | None, typer.Option(help=_help("node_id"), rich_help_panel=STANDALONE)] = None,
    cluster_id: Annotated[str | None, typer.Option(help=_help("cluster_id"), rich_help_panel=STANDALONE)] = None,
    upstream: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help=_help("upstream"), rich_help_panel=SIDECAR)
    ] = None,
    upstream_config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help=_help("upstream_config"), rich_help_panel=SIDECAR)
    ] = None,
    broker_base_port: Annotated[
        int | None, typer.Option(metavar="PORT", help=_help("broker_base_port"), rich_help_panel=SIDECAR)
    ] = None,
    listener_map: Annotated[
        str | None, typer.Option(metavar="ID=PORT", help=_help("listener_map"), rich_help_panel=SIDECAR)
    ] = None,
    groups: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help=_help("groups"), rich_help_panel=SIDECAR)
    ] = None,
    authorization_cache_ms: Annotated[
        int | None, typer.Option(help=_help("authorization_cache_ms"), rich_help_panel=SIDECAR)
    ] = None,
    connections_per_principal: Annotated[
        int | None, typer.Option(help=_help("connections_per_principal"), rich_help_panel=SIDECAR)
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help=_help("tls_certificate"), rich_help_panel=TLS)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help=_help("tls_key"), rich_help_panel=TLS)] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help=_help("tls_client_ca"), rich_help_panel=TLS)
    ] = None,
    single_identity: Annotated[
        bool | None, typer.Option("--single-identity", help=_help("single_identity"), rich_help_panel=TLS)
    ] = None,
    single_identity_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help=_help("single_identity_certificate"), rich_help_panel=TLS)
    ] = None,
    single_identity_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help=_help("single_identity_key"), rich_help_panel=TLS)
    ] = None,
    log: Annotated[str | None, typer.Option(metavar="URL", help=_help("log"), rich_help_panel=EVENT_LOG)] = None,
    kafka_config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help=_help("kafka_config"), rich_help_panel=EVENT_LOG)
    ] = None,
    log_partitions: Annotated[int | None, typer.Option(help=_help("log_partitions"), rich_help_panel=EVENT_LOG)] = None,
    log_replication: Annotated[
        int | None, typer.Option(help=_help("log_replication"), rich_help_panel=EVENT_LOG)
    ] = None,
    audit_window_ms: Annotated[
        int | None, typer.Option(help=_help("audit_window_ms"), rich_help_panel=EVENT_LOG)
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help=_help("metrics"), rich_help_panel=WATCHING)
    ] = None,
    log_level: Annotated[str | None, typer.Option(help=_help("log_level"), rich_help_panel=WATCHING)] = None,
    log_format: Annotated[str | None, typer.Option(help=_help("log_format"), rich_help_panel=WATCHING)] = None,
) -> None:
    """Coordinate consumer groups: standalone, or as a sidecar in front of an unmodified Kafka cluster.

    Standalone no cluster is needed. Declared topics exist for clients to subscribe to; they hold no data. Real
    consumers join, get assignments, heartbeat and commit. With --upstream group membership is answered here, and
    everything else is relayed to the cluster's brokers, each behind a port of its own.

    Examples:

        muster serve --listen 127.0.0.1:9092 --topic orders:12 --config group.initial.rebalance.delay.ms=3000

        muster serve --listen 127.0.0.1:9092 --upstream kafka-1:9092,kafka-2:9092 --groups 'orders-*'

    Each option can also stand in the environment (--frame-bytes-max as MUSTER_FRAME_BYTES_MAX, group.max.size as
    MUSTER_GROUP_MAX_SIZE) or in a file (--config-file); a flag wins over the environment, that over the file.
    Stops in good order on SIGTERM and SIGINT.

    Exit codes: 0 stopped as asked; 1 the event log was lost while serving (another process took it, or it is damaged,
    gone or another one), or an error in Muster itself; 2 something given cannot be used, at the start the log too.
    """
    flags = {name: value for name, value in locals().items() if name not in {"config", "config_file"}}
    import uvloop  # noqa: PLC0415 -- only this command needs these, and the others are to start fast

    from muster.coordinator.observability.log_lines import write_lines_beside  # noqa: PLC0415
    from muster.coordinator.observability.metrics import REGISTRY  # noqa: PLC0415
    from muster.coordinator.parts import CannotServe  # noqa: PLC0415
    from muster.coordinator.serve import LogLost, run  # noqa: PLC0415

    try:
        settings = load_settings(flags, config or [], config_file)
        lines = write_lines_beside()
        if lines is not None:
            REGISTRY.register(lines)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings))
    except (BadSettings, CannotServe) as error:
        fail(str(error), EXIT_UNUSABLE)
    except LogLost as error:
        fail(str(error), EXIT_LOST)


def fail(message: str, code: int) -> None:
    """One clear line, no traceback."""
    print(f"muster: {message}", file=sys.stderr)
    raise typer.Exit(code)
