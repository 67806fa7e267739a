"""The logs without a broker refuse what a topic of ours does."""

import pytest

from muster.events.log import limits
from muster.events.log.base import AppendRefused
from muster.events.log.kafka.client import settings
from muster.events.log.limits import verdict_on
from muster.events.records import Record


def test_a_transition_may_be_as_large_as_on_kafka() -> None:
    assert limits.BATCH_BYTES_MAX == settings.BATCH_BYTES_MAX == 64 * 1024**2


@pytest.mark.parametrize(("limit_bytes", "verdict"), [(8, None), (7, AppendRefused(size_bytes=8, limit_bytes=7))])
def test_a_transition_is_measured_by_its_keys_and_values(limit_bytes: int, verdict: AppendRefused | None) -> None:
    """Up to the limit it is taken."""
    assert verdict_on((Record(b"abc", b"de"), Record(b"fgh", None)), limit_bytes) == verdict
