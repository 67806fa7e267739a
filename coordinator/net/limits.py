"""The limits of connections, by the names of their settings."""

import msgspec

from muster.coordinator.group.settings import INT32_MAX
from muster.coordinator.load.answer_memory import HELD_BYTES_MAX

FRAME_BYTES_MAX = 104_857_600
"""The largest request by default: Kafka's default of socket.request.max.bytes."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits by the names of their settings, with the defaults; Kafka's names are in the comments."""

    connections_max: int = 10_000  # max.connections
    connections_max_idle_ms: int = 600_000  # connections.max.idle.ms
    unread_answers_max_ms: int = 120_000
    max_connections_per_ip: int = INT32_MAX  # max.connections.per.ip
    connections_per_principal: int = INT32_MAX
    queued_max_request_bytes: int = HELD_BYTES_MAX  # queued.max.request.bytes
