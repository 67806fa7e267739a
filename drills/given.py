"""The options of a drill, as they were given."""

from pathlib import Path
from typing import Final

import msgspec

from muster.coordinator.client.commands.answer import AnswerFormat
from muster.drills.plan import Between, Mode

CLIENT_CONFIG: Final = "--client-config"
CLIENT_CONFIG_VARIABLES: Final = "MUSTER_CLIENT_CONFIG_"


class Given(msgspec.Struct, kw_only=True):
    """See the module. Durations are in ms; `lasts` is --for, `interval` that of heartbeats and of commits."""

    groups: int
    members: int
    session_timeout: int
    interval: int
    before: int
    after: int
    within: int
    heartbeats_within: int | None
    joins_within: int | None
    commits_within: int | None
    out: Path | None
    form: AnswerFormat
    local: bool = False
    kafka: str | None = None
    mode: Mode = Mode.STANDALONE
    processes: int = 2
    partitions: int = 10
    owner_session: int = 10_000
    kafka_config: list[str] | None = None
    client_config: list[str] | None = None
    bootstrap: str | None = None
    log: str | None = None
    topic: str | None = None
    by: str | None = None
    yes: bool = False
    lasts: int = 0
    delay: int = 0
    between: Between = Between.LOG
