"""Limits of the request bytes that are buffered for a client, and of the authorization cache.

A request that is handled here is buffered whole before anything is decided, even if the client has not authenticated.
So each API has its own limit, and where clients have to authenticate, the limit until then is Kafka's
sasl.server.max.receive.size. Relayed requests are never buffered whole: the broker has its own limit.
"""

import msgspec

from muster.coordinator.sidecar.relay.sasl import MESSAGE_BYTES_MAX
from muster.coordinator.wire.bounds import bound_of

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36

DELAY_MS = 1_000
"""How long to delay a response that makes the client retry at once."""


class RelayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client connection; sizes as in ServerSettings.

    `authorization_cache_ms`: how long an authorization is cached. `delay_ms`: as DELAY_MS.
    """

    frame_bytes_max: int
    waiting_bytes_max: int
    authorization_cache_ms: int
    delay_ms: int = DELAY_MS
    authenticates: bool
    """The broker requires SASL authentication."""

    @property
    def first_bytes_max(self) -> int:
        """Size limit of a handled request until the client has authenticated, if it has to."""
        return min(MESSAGE_BYTES_MAX, self.frame_bytes_max) if self.authenticates else self.frame_bytes_max


def handled_bytes_max(api_key: int) -> int:
    """Return the size limit of a handled request of this API."""
    return bound_of(api_key).bytes_max
