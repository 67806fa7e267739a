"""The plan of a drill: the options as given, the plan made from them, and the errors that end a drill.

Durations are in ms.
"""

from enum import StrEnum, unique
from pathlib import Path
from typing import Final

import msgspec

from muster.coordinator.client.commands.answer import AnswerFormat


class DrillError(Exception):
    """The drill cannot start or continue. The text is one line."""


class Unusable(DrillError):
    """An option, or the thing that it refers to, cannot be used."""


class NotOurs(DrillError):
    """A group or topic does not belong to the drill, so the drill does not touch it."""


class ServiceFailed(DrillError):
    """The service failed to do what the drill requires before or after the fault."""


@unique
class Fault(StrEnum):
    """The kinds of faults."""

    TAKEOVER = "takeover"
    RESTART = "restart"
    FENCE = "fence"
    PARTITION = "partition"
    SLOW_BROKER = "slow-broker"


@unique
class Between(StrEnum):
    """The links that a `partition` cuts: a process is cut from its log, or clients are cut from a process."""

    LOG = "log"
    CLIENTS = "clients"


@unique
class Mode(StrEnum):
    """The kinds of processes that a local drill starts."""

    STANDALONE = "standalone"
    SIDECAR = "sidecar"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The time goals: how long each kind of request may be unanswered."""

    heartbeats_ms: int
    joins_ms: int
    commits_ms: int


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load. Every other group has static members, one of which does nothing but restart (KIP-345)."""

    groups: int = 20
    members: int = 5
    heartbeat_interval_ms: int = 500
    commit_interval_ms: int = 500
    restart_interval_ms: int = 1_000
    session_timeout_ms: int = 45_000
    request_timeout_ms: int = 30_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a drill. `before_ms`, `after_ms`: the measuring time before the fault, and after its end.

    `fault_ms`: the duration of a fault that the drill itself ends. `within_ms`: the time within which the service has
    to recover; otherwise the drill fails.
    """

    fault: Fault
    load: Load = Load()
    limits: Limits
    before_ms: int = 3_000
    after_ms: int = 3_000
    fault_ms: int = 0
    within_ms: int = 120_000
    delay_ms: int = 0
    between: Between = Between.LOG


CLIENT_CONFIG: Final = "--client-config"
CLIENT_CONFIG_VARIABLES: Final = "MUSTER_CLIENT_CONFIG_"


class Given(msgspec.Struct, kw_only=True):
    """The options as given.

    Durations are in ms. `lasts`: --for. `interval`: the interval of heartbeats and of commits.
    """

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
