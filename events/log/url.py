"""Opening an event log by its URL, the value of `--log`.

    memory:                                       in memory; lost when the process exits
    sqlite:///muster.db                           a file, relative to the working directory (three slashes)
    sqlite:////var/lib/muster.db                  a file, absolute (four slashes)
    kafka://host:9092,host2:9092/__muster_events  a topic of a cluster

The Kafka log is imported only when a URL asks for it: replaying a file needs no Kafka client.
"""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from muster.events.kafka.addresses import KnownBrokers, read_address
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity
from muster.events.log.base import EventLog, LogError, LogMissing
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import FORMAT_LEVEL

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Kafka's rule for topic names."""

FORMS = (
    "memory:",
    "sqlite:///relative/path.db",
    "sqlite:////absolute/path.db",
    "kafka://host:9092,host2:9092/__muster_events",
)


class InvalidLogUrl(LogError):
    """The URL has none of the known forms; the message lists them."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url!r} is not the URL of an event log: {reason}. The forms are: {', '.join(FORMS)}")
        self.url = url
        self.reason = reason


def open_log(
    url: str,
    *,
    read_only: bool = False,
    partitions: int | None = None,
    replication: int | None = None,
    audit_window_ms: int | None = None,
    security: KafkaSecurity = NOT_SECURED,
    new_format_level: int = FORMAT_LEVEL,
    wall_ms: Callable[[], int] | None = None,
    known_brokers: KnownBrokers | None = None,
) -> EventLog:
    """Create the log object for a URL; the caller awaits its `open()`. Raises InvalidLogUrl; LogMissing to read
    `memory:`.

    `partitions`, `replication` (Kafka only) and `audit_window_ms` are settings of a new log, and are compared with an
    existing one; None accepts it as it is. With `read_only` nothing is created or claimed. `security` configures access
    to the cluster, and `new_format_level` is the level of a topic that has no records yet (Kafka only). `wall_ms`
    (Kafka only) is the clock whose times the records get instead of their append times. `known_brokers` is shared with
    other links of the process.
    """
    scheme, separator, _ = url.partition(":")
    if not separator:
        raise InvalidLogUrl(url, "it has no scheme")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidLogUrl(url, str(error)) from error
    if parts.query or parts.fragment:
        raise InvalidLogUrl(url, "it may not contain '?' or '#'; settings are given as options")
    match parts.scheme:
        case "memory":
            return _memory(url, parts, partitions, read_only=read_only)
        case "sqlite":
            path = _sqlite_path(url, parts)
            return SqliteEventLog(path, read_only=read_only, partitions=partitions, audit_window_ms=audit_window_ms)
        case "kafka":
            return _kafka(
                url,
                parts,
                read_only=read_only,
                partitions=partitions,
                replication=replication,
                audit_window_ms=audit_window_ms,
                security=security,
                new_format_level=new_format_level,
                wall_ms=wall_ms,
                known_brokers=known_brokers,
            )
        case _:
            raise InvalidLogUrl(url, f"unknown scheme {scheme!r}")


def _memory(url: str, parts: SplitResult, partitions: int | None, *, read_only: bool) -> MemoryEventLog:
    if parts.netloc or parts.path:
        raise InvalidLogUrl(url, "nothing may follow 'memory:'")
    if read_only:
        raise LogMissing(
            f"{url} is inside the muster serve process that was started with it; no other process can read it"
        )
    return MemoryEventLog(MemoryStorage() if partitions is None else MemoryStorage(partitions))


def _sqlite_path(url: str, parts: SplitResult) -> Path:
    if parts.netloc:
        raise InvalidLogUrl(url, "it has a host where the path should begin; a path follows three slashes")
    if not url.startswith("sqlite:///") or parts.path in ("/", "//"):
        raise InvalidLogUrl(url, "it names no file")
    return Path(unquote(parts.path[1:]))


def _kafka(
    url: str,
    parts: SplitResult,
    *,
    read_only: bool,
    partitions: int | None,
    replication: int | None,
    audit_window_ms: int | None,
    security: KafkaSecurity,
    new_format_level: int,
    wall_ms: Callable[[], int] | None,
    known_brokers: KnownBrokers | None,
) -> EventLog:
    servers = parts.netloc.split(",")
    for server in servers:
        if not _is_server(server):
            raise InvalidLogUrl(url, f"{server!r} is not HOST:PORT")
    topic = parts.path[1:]
    if not _TOPIC.fullmatch(topic):
        raise InvalidLogUrl(url, f"{topic!r} is not a topic name" if topic else "it names no topic")

    from muster.events.log.kafka.client.settings import AUDIT_WINDOW_MS  # noqa: PLC0415
    from muster.events.log.kafka.log import KafkaEventLog  # noqa: PLC0415

    return KafkaEventLog(
        servers,
        topic,
        read_only=read_only,
        partitions=partitions,
        replication=replication,
        audit_window_ms=AUDIT_WINDOW_MS if audit_window_ms is None else audit_window_ms,
        security=security,
        new_format_level=new_format_level,
        wall_ms=wall_clock_ms if wall_ms is None else wall_ms,
        keeps_times=wall_ms is not None,
        known_brokers=known_brokers,
    )


def _is_server(text: str) -> bool:
    """Return whether a text is HOST:PORT, without a password before the host."""
    try:
        return read_address(text).port > 0 and "@" not in text
    except ValueError:
        return False
