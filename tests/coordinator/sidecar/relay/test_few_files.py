"""A sidecar without free file descriptors still serves its connected clients."""

import resource
from collections.abc import Iterator

import pytest

from muster.coordinator.wire.registry import APIS
from tests.brokers.broker import Broker
from tests.conformance.wire import Connection, ms
from tests.coordinator.serving import enter, heartbeat_body, sync_body
from tests.coordinator.sidecar.admin_stage import Front, front_of, new_name

pytestmark = pytest.mark.broker

HEARTBEAT = 12


@pytest.fixture
def front(kafka_broker: Broker) -> Iterator[Front]:
    with front_of(kafka_broker) as front:
        yield front


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="another process's limit can be set on Linux alone")
async def test_a_member_is_answered_in_versions_that_were_not_used_before(front: Front) -> None:
    muster, group_id = front.muster, new_name("few-files")
    connection = await Connection.open(muster.bootstrap, client_id="app")
    joined = await enter(connection, 9, group_id=group_id, session_timeout=ms(60_000))
    assert (await connection.ask("SyncGroup", 5, **sync_body(joined, group_id=group_id)))["error_code"] == 0
    before = resource.prlimit(muster.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(muster.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        for version in APIS[HEARTBEAT].versions:
            response = await connection.ask("Heartbeat", version, **heartbeat_body(joined, group_id=group_id))
            assert response["error_code"] == 0
    finally:
        resource.prlimit(muster.pid, resource.RLIMIT_NOFILE, before)
        connection.close()
