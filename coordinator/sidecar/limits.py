"""How much of what a client sends is kept in memory, and how long what its broker says is good.

A request that is handled here is whole in memory before anything is decided, also one of a client that nobody has let
in yet. So what never has to be long is not taken longer, and where clients have to authenticate, nothing is before they
have, as in Kafka (sasl.server.max.receive.size). What is relayed is never whole here: it is the broker's to judge.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from coordinator.group.settings import INT32_MAX
from coordinator.sidecar.sasl import MESSAGE_BYTES_MAX
from coordinator.wire import api_versions, heartbeat, leave_group

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36

_LEAVE_BYTES_MAX: Final = 4_194_304  # an administrator may remove all members of a group at once
_BYTES_MAX: Final[Mapping[int, int]] = {
    SASL_HANDSHAKE: MESSAGE_BYTES_MAX,
    SASL_AUTHENTICATE: MESSAGE_BYTES_MAX,
    api_versions.KEY: MESSAGE_BYTES_MAX,
    heartbeat.KEY: MESSAGE_BYTES_MAX,
    leave_group.API.key: _LEAVE_BYTES_MAX,
}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes as in ServerSettings. `verdict_keep_ms`: how long a broker's consent is good."""

    frame_bytes_max: int
    waiting_bytes_max: int
    verdict_keep_ms: int
    authenticates: bool
    """Whether the broker wants clients to authenticate with SASL."""

    @property
    def first_bytes_max(self) -> int:
        """Of a request that is handled here, before the client has authenticated if it has to."""
        return min(MESSAGE_BYTES_MAX, self.frame_bytes_max) if self.authenticates else self.frame_bytes_max


def taken_bytes_max(api_key: int) -> int:
    """Of a request of this API that is handled here, whatever others may have."""
    return _BYTES_MAX.get(api_key, INT32_MAX)
