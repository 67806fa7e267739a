"""How much of what a client sends is kept in memory, and how long what its broker says is good.

A request that is handled here is whole in memory before anything is decided, also one of a client that nobody has let
in yet. So what never has to be long is not taken longer, and where clients have to authenticate, nothing is before they
have, as in Kafka (sasl.server.max.receive.size). What is relayed is never whole here: it is the broker's to judge.
"""

import msgspec

from muster.coordinator.sidecar.relay.sasl import MESSAGE_BYTES_MAX
from muster.coordinator.wire.bounds import bound_of

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


class RelayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client connection; sizes as in ServerSettings.

    `authorization_cache_ms`: how long an authorization is cached. `delay_ms`: how long an answer is delayed that the
    client would retry at once.
    """

    frame_bytes_max: int
    waiting_bytes_max: int
    authorization_cache_ms: int
    delay_ms: int = 1_000
    authenticates: bool
    """Whether the broker wants clients to authenticate with SASL."""

    @property
    def first_bytes_max(self) -> int:
        """Of a request that is handled here, before the client has authenticated if it has to."""
        return min(MESSAGE_BYTES_MAX, self.frame_bytes_max) if self.authenticates else self.frame_bytes_max


def handled_bytes_max(api_key: int) -> int:
    """Of a request of this API that is handled here, whatever others may have."""
    return bound_of(api_key).bytes_max
