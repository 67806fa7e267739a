"""The configuration and the orders that the generator passes to a process, as plain values.

A process reads its configuration from its command line, and its orders from a file that grows line by line; it writes
its diary into another file.
"""

from enum import StrEnum, unique
from pathlib import Path

import msgspec


@unique
class Family(StrEnum):
    """The families of clients."""

    LIBRDKAFKA = "librdkafka"
    JAVA = "java"
    KAFKA_PYTHON = "kafka-python"
    AIOKAFKA = "aiokafka"


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a process. `client_id`: None leaves it to the client, whose default all share.

    `again_s`: its supervisor restarts it this long after it was fenced; None: it ends.
    """

    name: str
    family: Family
    bootstrap: str
    group_id: str
    topic: str
    more_topics: tuple[str, ...] = ()
    """The other topics that it subscribes, from its start on."""
    client_id: str | None
    instance: str | None
    assignor: str
    session_ms: int
    heartbeat_ms: int
    poll_interval_ms: int
    again_s: float | None = None
    folder: str
    """The folder of its files."""

    @property
    def diary(self) -> Path:
        return Path(self.folder) / "diary.jsonl"

    @property
    def orders(self) -> Path:
        return Path(self.folder) / "orders.jsonl"

    @property
    def output(self) -> Path:
        """The output of the client."""
        return Path(self.folder) / "output"


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One order for a process."""

    stall_s: float = 0
    """Do not poll for this long."""
    subscribe: tuple[str, ...] = ()
    unsubscribe_s: float = 0
    """Unsubscribe, and subscribe again after this long."""
    enforce: bool = False
    """Ask for a rebalance, as only Java's application can."""
    assign_s: float = 0
    """Take this long for each assignment from now on, which only an assignor in Python can."""
    close: bool = False
