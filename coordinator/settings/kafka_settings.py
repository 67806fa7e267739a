"""Kafka's own settings: each field has Kafka's name, with `_` for `.`, and Kafka's default.

On the command line they are given with `--config`, in the file in the table `[config]`.
"""

from collections.abc import Mapping

from pydantic_settings import BaseSettings

from muster.coordinator.group.settings import INT32_MAX
from muster.coordinator.settings.options import Milliseconds, option

INT64_MAX = 2**63 - 1


class KafkaSettings(BaseSettings):
    """The part of `Settings` that Kafka's brokers have too. Times are durations or numbers of ms, sizes are bytes."""

    group_initial_rebalance_delay_ms: Milliseconds = option(
        3_000, "How long the first rebalance of an empty group waits for more members (KIP-134).", ge=0, le=INT32_MAX
    )
    group_min_session_timeout_ms: Milliseconds = option(
        6_000, "The shortest session.timeout.ms that a consumer may request.", ge=1, le=INT32_MAX
    )
    group_max_session_timeout_ms: Milliseconds = option(
        1_800_000, "The longest session.timeout.ms that a consumer may request.", ge=1, le=INT32_MAX
    )
    group_max_size: int = option(INT32_MAX, "Maximum number of members in a group (KIP-389).", ge=1, le=INT32_MAX)
    offset_metadata_max_bytes: int = option(
        4_096, "Maximum length of the metadata string of a committed offset.", ge=0, le=INT32_MAX
    )
    offsets_retention_minutes: int = option(
        10_080,
        "How long committed offsets are kept, in minutes, after the group became empty; or after the commit, if no "
        "member subscribes to the topic or the group never had members. With --upstream the brokers keep offsets, "
        "by their own setting: there it is how long Muster keeps an empty group.",
        ge=1,
        le=INT32_MAX,
    )
    offsets_retention_check_interval_ms: Milliseconds = option(
        600_000,
        "How often Muster looks for expired offsets, and for empty groups without offsets, which it deletes at once.",
        ge=1,
        le=INT64_MAX,
    )


KAFKA_SETTINGS: Mapping[str, str] = {field.replace("_", "."): field for field in KafkaSettings.model_fields}
"""The fields of `KafkaSettings` by Kafka's names, for `--config`."""
