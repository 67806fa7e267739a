"""A log configured with the address of another Muster's sidecar instead of a broker's."""

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.assembly import log_created
from muster.events.log.base import LogMismatch
from tests.faults.cluster import FakeCluster
from tests.faults.process import ProcessOnKafka, story


@story
async def test_a_sidecar_that_is_named_for_a_broker_ends_the_start() -> None:
    """It prevents other writers on the event topic and its probe topic, so waiting would change nothing."""
    cluster = FakeCluster()
    cluster.produce_error = ErrorCode.invalid_topic_exception
    with pytest.raises(LogMismatch) as refused:
        await ProcessOnKafka(cluster.bootstrap).start()
    assert f"{cluster.bootstrap[0]} is a sidecar, not a broker" in str(refused.value)


@story
async def test_topics_that_a_start_creates_in_a_cluster_are_logged_once() -> None:
    cluster = FakeCluster()
    for topics in ([["events", "events_fencing_probe"]], []):
        process = await ProcessOnKafka(cluster.bootstrap).start()
        with capture_logs() as lines:
            log_created(process.kafka)
        assert [line["topics"] for line in lines] == topics
        await process.stop()
