"""All APIs that a standalone coordinator offers, by key. Others do not exist for clients."""

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
