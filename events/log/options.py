"""The options by which every command but `muster serve` names a log and configures access to its cluster."""

from typing import Annotated, Final

import typer

from muster.events.kafka.security import KAFKA_CONFIG, KAFKA_CONFIG_HELP

DEFAULT_LOG: Final = "sqlite:///muster.db"

LogOption = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="URL",
        envvar="MUSTER_LOG",
        help="The event log: sqlite:///FILE or kafka://HOST:PORT/TOPIC.",
    ),
]
KafkaConfigOption = Annotated[list[str] | None, typer.Option(KAFKA_CONFIG, metavar="KEY=VALUE", help=KAFKA_CONFIG_HELP)]
