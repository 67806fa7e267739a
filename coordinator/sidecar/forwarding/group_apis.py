"""The APIs that name groups: which groups a request concerns, and how to split one for groups of several owners.

Pure; does not know who owns a group.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from muster.coordinator.sidecar.messages.shadow_commits import TXN_OFFSET_COMMIT
from muster.coordinator.wire import (
    delete_groups,
    describe_configs,
    describe_groups,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    sync_group,
)
from muster.coordinator.wire.api import Body
from muster.coordinator.wire.resources import ResourceType
from muster.events.ids import GroupId

OF_ONE_GROUP: Final = frozenset(
    {
        join_group.API.key,
        sync_group.API.key,
        heartbeat.KEY,
        leave_group.API.key,
        offset_commit.API.key,
        offset_delete.API.key,
        TXN_OFFSET_COMMIT,
        CONSUMER_GROUP_HEARTBEAT,
    }
)
"""APIs whose requests name one group, `group_id`."""

MANY_BYTES: Final = 4_096
"""Longer requests for many groups are read in slices."""

MOVED: Final = frozenset({ErrorCode.not_coordinator})
NOT_YET: Final = MOVED | {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available}


class OfManyGroups(msgspec.Struct, frozen=True, kw_only=True):
    """An API whose requests have a list, and whose responses have a list with one result for each entry, in any order.

    `group_of`: the group of an entry, or None if it does not concern a group.
    """

    asked: str
    answered: str
    group_of: Callable[[Any], GroupId | None]


def _resource_group(resource: Body) -> GroupId | None:
    return GroupId(resource.resource_name) if resource.resource_type == ResourceType.GROUP else None


OF_MANY_GROUPS: Final[Mapping[int, OfManyGroups]] = {
    describe_groups.API.key: OfManyGroups(asked="groups", answered="groups", group_of=GroupId),
    delete_groups.API.key: OfManyGroups(asked="groups_names", answered="results", group_of=GroupId),
    describe_configs.API.key: OfManyGroups(asked="resources", answered="results", group_of=_resource_group),
    incremental_alter_configs.API.key: OfManyGroups(asked="resources", answered="responses", group_of=_resource_group),
}
