"""The families, the acts, and the settings of a client."""

from enum import StrEnum, unique
from typing import Final

import msgspec

SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 1_000
POLL_INTERVAL_MS: Final = 7_000
"""librdkafka accepts none below its session timeout."""

LONG_MS: Final = 60_000
"""The max.poll.interval.ms of acts for which it should not matter, and the session timeout of a client that is
restarted: a static one has to be back in time, even on a busy machine.
"""

TOPIC: Final = "orders"
PARTITIONS: Final = 4


@unique
class Family(StrEnum):
    """The client libraries under test. `JAVA_OLD`: the last of the 2.x line, which is still widely used."""

    JAVA = "java"
    JAVA_OLD = "java-2.8"
    LIBRDKAFKA = "librdkafka"
    AIOKAFKA = "aiokafka"
    KAFKA_PYTHON = "kafka-python"
    FRANZ_GO = "franz-go"
    SARAMA = "sarama"


@unique
class Act(StrEnum):
    """The ways to end, silence or bring back a client."""

    CLOSE = "close()"
    CLOSE_LEAVING = "close() with LEAVE_GROUP"
    CLOSE_REMAINING = "close() with REMAIN_IN_GROUP"
    SIGTERM_HANDLED = "SIGTERM, handler closes"
    SIGTERM = "SIGTERM, no handler"
    RAISE = "uncaught exception"
    KILL = "kill -9"
    RESTART = "SIGTERM, then started again"
    UNSUBSCRIBE = "unsubscribe(), subscribe() 3 s later"
    LATE_POLL = "polls too late"
    BLOCK = "its event loop is blocked"
    FREEZE = "SIGSTOP, SIGCONT"
    CUT = "network cut, then back"
    PROXY_KILL = "the proxy killed"

    @property
    def families(self) -> frozenset[Family]:
        """The families that support it. From 4.1 on, a Java application can choose the effect of close() on its
        membership.
        """
        if self in {Act.CLOSE_LEAVING, Act.CLOSE_REMAINING}:
            return frozenset({Family.JAVA})
        return frozenset({Family.AIOKAFKA}) if self is Act.BLOCK else frozenset(Family)

    @property
    def ends_process(self) -> bool:
        return self in {Act.SIGTERM_HANDLED, Act.SIGTERM, Act.RAISE, Act.KILL}

    @property
    def returns(self) -> bool:
        """True if the member should come back."""
        return self in {Act.RESTART, Act.UNSUBSCRIBE, Act.LATE_POLL, Act.BLOCK, Act.FREEZE, Act.CUT}


@unique
class Way(StrEnum):
    """The path between the client and the coordinator."""

    DIRECT = "direct"
    SOCAT = "socat"
    HAPROXY = "haproxy"


PROXIED_FAMILIES: Final = (Family.JAVA, Family.LIBRDKAFKA)
PROXIED_ACTS: Final = (Act.CLOSE, Act.KILL, Act.FREEZE, Act.CUT, Act.PROXY_KILL)
"""Behind a proxy the last hop is the same for all families, so two of them suffice."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One client and one act."""

    family: Family
    act: Act
    is_static: bool
    way: Way = Way.DIRECT

    @property
    def name(self) -> str:
        """A client id and a group id, unique to the trial."""
        sort = "static" if self.is_static else "dynamic"
        return f"{self.family}_{self.act.name.lower()}_{sort}_{self.way}"


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A client's settings, passed to programs as `name=value` arguments."""

    bootstrap: str
    group_id: str
    client_id: str
    instance_id: str
    """Empty for a dynamic member."""
    handles_sigterm: bool
    """True if it closes its consumer on SIGTERM; otherwise the signal ends it."""
    topic: str = TOPIC
    session_ms: int = SESSION_MS
    heartbeat_ms: int = HEARTBEAT_MS
    poll_interval_ms: int = POLL_INTERVAL_MS

    def arguments(self) -> list[str]:
        values = msgspec.to_builtins(self)
        return [f"{name}={str(value).lower() if value in (True, False) else value}" for name, value in values.items()]
