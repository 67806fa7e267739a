"""All APIs that a standalone coordinator offers, by key. For clients no others exist."""

from typing import Final

from muster.coordinator.wire import (
    api_versions,
    delete_groups,
    describe_cluster,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
)
from muster.coordinator.wire.api import Api
from muster.coordinator.wire.messages import message

_ALL = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    describe_configs.API,
    delete_groups.API,
    incremental_alter_configs.API,
    offset_delete.API,
    describe_cluster.API,
)

APIS: dict[int, Api] = {api.key: api for api in (*_ALL, api_versions.offering(_ALL))}

PARKED: Final = frozenset({join_group.API.key, sync_group.API.key})
"""APIs whose requests wait for other members."""

_OF_MEMBERS = (join_group.API, sync_group.API, heartbeat.API, leave_group.API, offset_commit.API, offset_fetch.API)


def load_messages_of_members() -> None:
    """Load the messages that a member of a group sends, in all versions, which takes 0.2 s.

    Otherwise each would be read from files at its first use. If file descriptors had run out by then, it could not be
    read, and a member would lose its existing connection.
    """
    for api in _OF_MEMBERS:
        for api_version in api.versions:
            message(api.key, api_version)
