"""Limits of the bytes of a client's requests that are kept in memory, and of the authorization cache.

A request that is handled here is buffered whole before anything is decided, even of a client that has not
authenticated. So each API has a limit of its own, and until clients have authenticated, where they have to, the limit
is Kafka's sasl.server.max.receive.size. A relayed request is never buffered whole: the broker has its own limit.
"""

import msgspec

from muster.coordinator.sidecar.relay.sasl import MESSAGE_BYTES_MAX
from muster.coordinator.wire.bounds import bound_of

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36

DELAY_MS = 1_000
"""How long an answer is delayed that the client would retry at once."""


class RelayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client connection; sizes as in ServerSettings.

    `authorization_cache_ms`: how long an authorization is cached. `delay_ms`: as DELAY_MS.
    """

    frame_bytes_max: int
    waiting_bytes_max: int
    authorization_cache_ms: int
    delay_ms: int = DELAY_MS
    authenticates: bool
    """Whether the broker requires SASL authentication."""

    @property
    def first_bytes_max(self) -> int:
        """Limit of a request that is handled here, before the client has authenticated if it has to."""
        return min(MESSAGE_BYTES_MAX, self.frame_bytes_max) if self.authenticates else self.frame_bytes_max


def handled_bytes_max(api_key: int) -> int:
    """Return this API's own limit of a request that is handled here."""
    return bound_of(api_key).bytes_max
