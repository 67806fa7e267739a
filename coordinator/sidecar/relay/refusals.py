"""The log lines about clients that a broker does not let in: once a minute for each address, name and kind of refusal.

Many clients may share one address (a NAT, a proxy), so one that is refused must not hide the others behind it. A name
is the client's own claim, which it may make up anew at each try: so `NAMES_MAX` of an address have lines of their own,
until they have been silent for a while, and all others of that address share one.
"""

from collections.abc import Callable
from enum import StrEnum

import structlog
from cachetools import FIFOCache, TTLCache

from muster.coordinator.log_throttle import KEYS_MAX, LINE_INTERVAL_MS, LogThrottle

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

NAMES_MAX = 10
SILENT_FOR_MS = 2 * LINE_INTERVAL_MS
NAME_CHARACTERS_MAX = 100
"""Of a name that is printed; a client may claim one of half a megabyte."""


class Refusal(StrEnum):
    """What a broker refuses a client for."""

    MECHANISM = "mechanism"
    CREDENTIALS = "credentials"
    NONE_SENT = "none-sent"


class RefusalLog:
    """See the module. One for all listeners."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._throttle = LogThrottle(monotonic_ms)
        self._named: FIFOCache[tuple[str, Refusal], TTLCache[str, None]] = FIFOCache(KEYS_MAX)

    def write(self, refusal: Refusal, peer: str, *, user: str | None, client_id: str, reason: str) -> None:
        """Write the line if it is due. `user`: None where the client has not claimed to be anybody."""
        user = user and user[:NAME_CHARACTERS_MAX]
        client_id = client_id[:NAME_CHARACTERS_MAX] or "not known"
        suppressed = self._throttle.due((peer, refusal, self._key_name(peer, refusal, user or client_id)))
        if suppressed is not None:
            log.warning(
                "client refused by the broker",
                peer=peer,
                user=user,
                client_id=client_id,
                reason=reason,
                others_since=suppressed,
            )

    def _key_name(self, peer: str, refusal: Refusal, name: str) -> str | None:
        """The name, or None if its address has too many."""
        named = self._named.get((peer, refusal))
        if named is None:
            named = self._named[peer, refusal] = TTLCache(NAMES_MAX, SILENT_FOR_MS, timer=self._monotonic_ms)
        named.expire()
        if name not in named and len(named) >= NAMES_MAX:
            return None
        named[name] = None
        return name
