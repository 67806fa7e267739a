"""The logs without a broker refuse what a topic of ours does."""

import os
from pathlib import Path

import pytest

from muster.events.kafka import connections, link
from muster.events.log import limits
from muster.events.log.base import AppendRefused
from muster.events.log.kafka import decompress
from muster.events.log.kafka.client import settings
from muster.events.log.kafka.client.link import Timeouts
from muster.events.log.limits import verdict_on
from muster.events.log.sqlite import file
from muster.events.log.sqlite import log as sqlite_log
from muster.events.log.sqlite import open as open_
from muster.events.records import Record

STATM = Path("/proc/self/statm")


def test_a_transition_may_be_as_large_as_on_kafka() -> None:
    assert limits.BATCH_BYTES_MAX == settings.BATCH_BYTES_MAX == 64 * 1024**2


@pytest.mark.parametrize(("limit_bytes", "verdict"), [(8, None), (7, AppendRefused(size_bytes=8, limit_bytes=7))])
def test_a_transition_is_measured_by_its_keys_and_values(limit_bytes: int, verdict: AppendRefused | None) -> None:
    """Up to the limit it is taken."""
    assert verdict_on((Record(b"abc", b"de"), Record(b"fgh", None)), limit_bytes) == verdict


@pytest.mark.skipif(not STATM.exists(), reason="the system does not tell a process its memory")
def test_a_compressed_batch_takes_the_memory_that_its_records_take() -> None:
    """A batch of 1 MiB takes no 256 MiB before it has shown that it needs them."""

    def decompressed(compressed: bytes, buffer: memoryview) -> int:
        buffer[:1_000] = bytes(1_000)
        return 1_000

    before = resident_bytes()
    plain = decompress._into_buffer(bytes(1024**2), decompressed)
    assert plain[-1_000:] == bytes(1_000)
    assert resident_bytes() - before < 64 * 1024**2


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_one_search_keeps_the_file_for_some_milliseconds() -> None:
    """An owner's append waits for it."""
    assert 1_000 <= sqlite_log._SEARCHED_OFFSETS <= 100_000


def test_a_failed_lookup_of_brokers_is_retried_soon() -> None:
    """The log continues within two seconds after their return."""
    assert link.METADATA_RETRY_MS <= 2_000


def test_the_limits_of_requests_to_brokers_lie_inside_each_other() -> None:
    """The inner request can be retried; and all of them end while the caller still waits."""
    limits_ms = Timeouts()
    inside_each_other = [
        limits_ms.connect_timeout_ms,
        limits_ms.request_timeout_ms,
        limits_ms.produce_timeout_ms,
        limits_ms.fetch_timeout_ms,
        limits_ms.delivery_timeout_ms,
        60_000,
    ]
    assert sorted(set(inside_each_other)) == inside_each_other
    assert limits_ms.metadata_max_age_ms <= limits_ms.request_timeout_ms


def test_a_disk_that_does_not_respond_is_reported_to_the_metrics_before_any_waiter() -> None:
    """Other programs' locks are not a reason; an append to a file times out like one to a topic."""
    assert open_.BUSY_TIMEOUT_S < file.SLOW_DISK_S < file.CALL_TIMEOUT_S
    assert Timeouts().delivery_timeout_ms == file.CALL_TIMEOUT_S * 1000
    assert file.FILE_CLOSE_TIMEOUT_S <= 10


def test_an_idle_connection_is_closed_before_a_broker_does_so() -> None:
    """Brokers do after ten minutes."""
    assert 60_000 <= connections.CONNECTIONS_MAX_IDLE_MS < 600_000
