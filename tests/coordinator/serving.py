"""A server on a free port with a real runtime behind it, on an event log in memory; and its clients.

Starts and stops it, and sends requests over sockets in any version. Its clocks are the machine's, so sessions and
delays are short.

    async with serving() as muster:
        connection = await muster.connect("app")
        answer = await connection.ask("JoinGroup", 9, **join_body(instance="a"))
"""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from muster.coordinator.clock import SystemClock
from muster.coordinator.cluster import Cluster
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.refused_joins import RefusedJoins
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.partition.waiting import RequestBacklog
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import Cancel, Service
from muster.coordinator.standalone.server import Server, ServerSettings
from muster.coordinator.wire.registry import APIS
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from tests.conformance.wire import Connection, Fields, ms
from tests.coordinator.group.client import subscription
from tests.coordinator.scripted import CLUSTER

GROUP_ID = "orders"
SESSION_MS = 2_000
REBALANCE_MS = 10_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=50, min_session_timeout_ms=100)


class Serving:
    """One process in effect: its log, runtime and listener."""

    def __init__(
        self, settings: GroupSettings, storage: MemoryStorage, cluster: Cluster, backlog: RequestBacklog
    ) -> None:
        clock = SystemClock()
        self.storage = storage
        self.log = MemoryEventLog(storage)
        self.lost: list[Exception] = []
        owner = Owner(
            name="serving:1",
            version="test",
            event_log=self.log,
            offsets=MemoryOffsetStore(),
            settings=settings,
            effective_settings={},
            clock=clock,
            retention_clock=RetentionClock(clock, kept_ms=0),
            refused_joins=RefusedJoins(settings, clock.monotonic_ms),
            backlog=backlog,
        )
        self.runtime = Runtime(owner, give_up=self.lost.append)
        self.metrics = ServerMetrics(APIS)
        service = Service(
            groups=self.runtime,
            cluster=cluster,
            monotonic_ms=clock.monotonic_ms,
            wall_ms=clock.wall_ms,
            new_uuid=lambda: str(uuid.uuid4()),
            new_request_id=itertools.count(1).__next__,
            call_later=_call_later,
        )
        self.server = Server(settings=ServerSettings(port=0), service=service, apis=APIS, metrics=self.metrics)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def connect(self, client_id: str) -> Connection:
        """A connection, closed by the server at the end."""
        return await Connection.open(self.bootstrap, client_id=client_id)


def _call_later(delay_ms: int, callback: Any) -> Cancel:
    return asyncio.get_running_loop().call_later(delay_ms / 1000, callback).cancel


@asynccontextmanager
async def serving(
    *,
    settings: GroupSettings = SETTINGS,
    storage: MemoryStorage | None = None,
    load: bool = True,
    cluster: Cluster = CLUSTER,
    backlog: RequestBacklog | None = None,
) -> AsyncIterator[Serving]:
    """Listen; with `load` the log is loaded first, otherwise the test calls `runtime.start`."""
    storage = MemoryStorage(partitions=2) if storage is None else storage
    muster = Serving(settings, storage, cluster, backlog or RequestBacklog())
    await muster.log.open()
    await muster.server.start()
    if load:
        await muster.runtime.start()
    try:
        yield muster
    finally:
        await muster.runtime.stop()
        await muster.server.close(within_s=1)


# ---- requests of consumers ------------------------------------------------------------------------


def join_body(member_id: str = "", *, instance: str | None = None, **changed: Any) -> dict[str, Any]:
    """The fields of a JoinGroup of any version; fields that the version lacks are dropped when it is sent."""
    return {
        "group_id": GROUP_ID,
        "session_timeout": ms(SESSION_MS),
        "rebalance_timeout": ms(REBALANCE_MS),
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("orders")}],
        "reason": None,
    } | changed


def sync_body(joined: Fields, *, instance: str | None = None, **changed: Any) -> dict[str, Any]:
    """The fields of a SyncGroup; the leader assigns each member its own id."""
    assignments = [
        {"member_id": member["member_id"], "assignment": member["member_id"].encode()} for member in joined["members"]
    ]
    return {
        "group_id": GROUP_ID,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocol_name": joined["protocol_name"],
        "assignments": assignments,
    } | changed


def heartbeat_body(joined: Mapping[str, Any], *, instance: str | None = None, **changed: Any) -> dict[str, Any]:
    return {
        "group_id": GROUP_ID,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "group_instance_id": instance,
    } | changed


async def enter(connection: Connection, version: int, *, instance: str | None = None, **changed: Any) -> Fields:
    """JoinGroup, repeated with the returned member id if one is required (KIP-394)."""
    response = await connection.ask("JoinGroup", version, **join_body(instance=instance, **changed))
    if response["error_code"] == 79:
        body = join_body(response["member_id"], instance=instance, **changed)
        response = await connection.ask("JoinGroup", version, **body)
    assert response["error_code"] == 0, response
    return response
