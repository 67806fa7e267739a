"""Log lines about clients that a broker refuses: at most one a minute for each address, name and kind of refusal.

Many clients may share an address (a NAT, a proxy), so one refused client must not hide the others behind it. But the
name is the client's own claim, and it may invent a new one for each attempt. So only a limited number of names for each
address get lines of their own.
"""

from collections.abc import Callable
from enum import StrEnum

import structlog

from muster.coordinator.log_throttle import NamesThrottle

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

NAME_CHARACTERS_MAX = 100
"""How many characters of a name are logged; a client may claim half a megabyte."""


class Refusal(StrEnum):
    """Why a broker refuses a client."""

    MECHANISM = "mechanism"
    CREDENTIALS = "credentials"
    NONE_SENT = "none-sent"


class RefusalLog:
    """Logs refusals by brokers, for all listeners together."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._throttle = NamesThrottle(monotonic_ms)

    def write(self, refusal: Refusal, peer: str, *, user: str | None, client_id: str, reason: str) -> None:
        """Write the line unless it is rate-limited. `user`: None if the client has not claimed a name."""
        user = user and user[:NAME_CHARACTERS_MAX]
        client_id = client_id[:NAME_CHARACTERS_MAX] or "not known"
        suppressed = self._throttle.due((peer, refusal), user or client_id)
        if suppressed is not None:
            log.warning(
                "client refused by the broker",
                peer=peer,
                user=user,
                client_id=client_id,
                reason=reason,
                others_since=suppressed,
            )
