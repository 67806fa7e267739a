"""The log lines about clients that a broker does not let in: once a minute for each address, name and kind of refusal.

Many clients may share one address (a NAT, a proxy), so one that is refused must not hide the others behind it. A name
is the client's own claim, which it may make up anew at each try: so only some of an address have lines of their own.
"""

from collections.abc import Callable
from enum import StrEnum

import structlog

from muster.coordinator.log_throttle import NamesThrottle

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

NAME_CHARACTERS_MAX = 100
"""Characters of a name that are logged; a client may claim one of half a megabyte."""


class Refusal(StrEnum):
    """The reason for which a broker refuses a client."""

    MECHANISM = "mechanism"
    CREDENTIALS = "credentials"
    NONE_SENT = "none-sent"


class RefusalLog:
    """Logs refusals by brokers, for all listeners together."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._throttle = NamesThrottle(monotonic_ms)

    def write(self, refusal: Refusal, peer: str, *, user: str | None, client_id: str, reason: str) -> None:
        """Write the line if it is due. `user`: None where the client has not claimed to be anybody."""
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
