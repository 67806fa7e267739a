"""The settings of the rules have Kafka's defaults."""

import msgspec

from muster.coordinator.group.settings import GroupSettings


def test_the_defaults_are_those_of_kafka() -> None:
    """The defaults in Kafka's documentation of broker configs; the last two are not Kafka's."""
    assert msgspec.structs.asdict(GroupSettings()) == {
        "initial_rebalance_delay_ms": 3 * 1_000,
        "min_session_timeout_ms": 6 * 1_000,
        "max_session_timeout_ms": 30 * 60 * 1_000,
        "max_size": 2**31 - 1,
        "offset_metadata_max_bytes": 4 * 1_024,
        "offsets_retention_minutes": 7 * 24 * 60,
        "offsets_retention_check_interval_ms": 10 * 60 * 1_000,
        "member_metadata_max_bytes": 1_024 * 1_024,
        "offsets_are_upstream": False,
    }
