"""The plan of a drill: what was asked for, as values. Durations are in ms."""

from enum import StrEnum, unique

import msgspec


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
    """The goals in time: the longest time that each kind of request may be without an answer."""

    heartbeats_ms: int
    joins_ms: int
    commits_ms: int


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load. Every other group has static members, of which one does nothing but restart (KIP-345)."""

    groups: int = 20
    members: int = 5
    heartbeat_interval_ms: int = 500
    commit_interval_ms: int = 500
    restart_interval_ms: int = 1_000
    session_timeout_ms: int = 45_000
    request_timeout_ms: int = 30_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. `before_ms` and `after_ms`: how long is measured before the fault, and after it is over.

    `fault_ms`: how long a fault lasts that is ended by the drill. `within_ms`: when the drill is given up if the
    service is not whole again.
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
