"""Outages of the upstream cluster, in which no broker answers: the message of /readyz, and log lines."""

from collections.abc import Callable
from typing import Final

import structlog

from muster.coordinator.log_throttle import LogThrottle
from muster.events.kafka.errors import OwnShortage

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

UPSTREAM: Final = "the upstream cluster"
NOBODY_ANSWERS: Final = f"no broker of {UPSTREAM} answers: "


class ClusterOutage:
    """Tracks outages of a cluster. `asked_at`: the bootstrap addresses. `cluster`: its name in log lines."""

    def __init__(self, asked_at: str, monotonic_ms: Callable[[], int], cluster: str = UPSTREAM) -> None:
        self._asked_at = asked_at
        self._is_silent, self._answers_again = f"{cluster} does not answer", f"{cluster} answers again"
        self._monotonic_ms = monotonic_ms
        self._throttle = LogThrottle(monotonic_ms)
        self._asked_ms = self._began_ms = 0
        self._error = ""

    @property
    def reason(self) -> str | None:
        """The message of /readyz; None while a broker answers. Thread-safe."""
        error = self._error
        if not error:
            return None
        silent = f"no broker of the cluster has answered for {self._silent_s} s"
        return f"--upstream {self._asked_at}: {silent}, retrying: {error}"

    def asks(self) -> None:
        """Note that a request to the brokers begins."""
        self._asked_ms = self._monotonic_ms()

    def failed(self, error: Exception) -> None:
        """Note that no broker answered the request; a shortage of ports or files on our side is no outage."""
        if isinstance(error, OwnShortage):
            return
        if not self._error:
            self._began_ms = self._asked_ms
        self._error = str(error).removeprefix(NOBODY_ANSWERS)
        if self._throttle.due(self._asked_at) is not None:
            log.warning(self._is_silent, seconds=self._silent_s, error=self._error)

    def answered(self) -> None:
        """Note that a broker answered."""
        self._error = ""
        if self._throttle.end(self._asked_at) is not None:
            log.info(self._answers_again, seconds=self._silent_s)

    @property
    def _silent_s(self) -> int:
        return (self._monotonic_ms() - self._began_ms) // 1000
