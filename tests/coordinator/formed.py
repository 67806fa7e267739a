"""A stable group that does not change during a test: no heartbeats, and long sessions.

Formed over its own socket, in any process.
"""

import asyncio
from collections.abc import Sequence

from tests.conformance.wire import Connection, ms
from tests.coordinator.serving import join_body, sync_body

CLIENT_ID = "shop"
SESSION_MS = 300_000
_STATIC_VERSION, _DYNAMIC_VERSION = 9, 3
"""Versions of JoinGroup; v3 admits a member without a second join (KIP-394)."""


def form_group(bootstrap: str, group_id: str, *instances: str | None) -> list[str]:
    """Form one generation with these static members, dynamic for None; return their member ids."""
    return asyncio.run(_form(bootstrap, group_id, instances))


async def _form(bootstrap: str, group_id: str, instances: Sequence[str | None]) -> list[str]:
    connections = [await Connection.open(bootstrap, client_id=CLIENT_ID) for _ in instances]
    try:
        joining = []
        for connection, instance in zip(connections, instances, strict=True):
            version = _DYNAMIC_VERSION if instance is None else _STATIC_VERSION
            body = join_body(instance=instance, group_id=group_id, session_timeout=ms(SESSION_MS))
            joining.append(connection.send("JoinGroup", version, **body))
        joined = [await each.get() for each in joining]
        syncing = [
            connection.send("SyncGroup", 4, **sync_body(reported, group_id=group_id))
            for connection, reported in zip(connections, joined, strict=True)
        ]
        assert [(await each.get())["error_code"] for each in syncing] == [0] * len(instances)
        return [reported["member_id"] for reported in joined]
    finally:
        for connection in connections:
            connection.close()
