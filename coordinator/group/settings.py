"""The settings of the rules, by Kafka's names. `coordinator/settings/` reads them from flags, file and environment."""

import msgspec

INT32_MAX = 2**31 - 1
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a new member's first join may be parked (K3, KAFKA-7610). A constant in Kafka too."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A comment names the Kafka setting that a field corresponds to; the defaults are Kafka's."""

    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    max_size: int = INT32_MAX  # group.max.size
    offset_metadata_max_bytes: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_minutes: int = 10_080  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    member_metadata_max_bytes: int = 1_048_576
    """The limit of one member's names and metadata of all protocols. Kafka only limits the size of a record."""
    offsets_are_upstream: bool = False
    """True in a sidecar: a group's offsets are upstream, and cannot be seen here. Not a Kafka setting."""
