"""DescribeGroups (key 15), for Muster's groups and others in one request.

The broker is asked about all groups, so that it authorizes the client (G9) and returns the operations (G10). Groups
without members upstream are then described by the rules, if these know them. Groups of a newer type are Dead to this
API, so if the rules know a group that is Dead upstream, ListGroups shows whether it is of another type. From v6 on,
brokers omit the operations of an unknown group; they are asked for separately. A group that is named twice is
described once.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import DescribeGroup
from muster.coordinator.group.outcomes import DescribeGroupOutcome, Outcome
from muster.coordinator.service import Cancel, Service
from muster.coordinator.sidecar.apis.merging import (
    any_may_be_ours,
    as_fields,
    ask_broker,
    ask_rules,
    has_other_members,
    is_unknown,
    non_classic_groups,
    without_shadow,
)
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.upstream.shadows import Shadows
from muster.coordinator.wire import describe_groups
from muster.coordinator.wire.api import Fields
from muster.coordinator.wire.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from muster.events.ids import GroupId
from muster.events.steps import entries_of

_UP_TO_THE_GROUP = frozenset({ErrorCode.none, ErrorCode.group_id_not_found})
"""Errors with which the group's coordinator still decides the response; all others are final."""


class DescribeGroupsApi:
    """Merges the broker's descriptions with those of the rules, which `service` applies."""

    def __init__(self, service: Service, router: GroupRouter, shadows: Shadows) -> None:
        self._service = service
        self._router = router
        self._shadows = shadows

    def api(self) -> SidecarApi:
        """Return the registration."""
        api = describe_groups.API
        return SidecarApi(key=api.key, name=api.name, versions=api.versions, handle=self.handle)

    def handle(self, request: ClientRequest) -> Cancel | None:
        return request.work(self._describe(request))

    async def _describe(self, request: ClientRequest) -> None:
        pace = request.pace()
        group_ids = tuple(dict.fromkeys(request.body.groups))
        if not await any_may_be_ours(self._router, group_ids, pace):
            request.relay()
            return
        is_repeated = len(group_ids) < len(request.body.groups)
        answer = await ask_broker(request, replace(request.body, groups=group_ids) if is_repeated else None)
        described = {each.group_id: each for each in answer.groups}
        asked = {}
        for group_id, description in described.items():
            asked[group_id] = self._asked(request, description)
            await pace.worked(entries_of(group_id))
        known = {group_id: await outcome for group_id, outcome in asked.items() if outcome is not None}
        newer = await self._non_classic(request, described, known)
        groups = []
        for group_id in group_ids:
            if group_id in newer:
                error = newer[group_id] or described[group_id].error_code
                groups.append(as_fields(replace(described[group_id], error_code=error)))
            elif group_id in described:
                groups.append(await self._merged(request, described[group_id], known.get(group_id)))
            await pace.worked(entries_of(group_id))
        request.answer({**as_fields(replace(answer, groups=())), "groups": groups})

    def _asked(self, request: ClientRequest, described: Any) -> asyncio.Future[Outcome] | None:  # noqa: ANN401 -- of any version
        """Ask the rules about a group that may be ours; return None if it cannot be."""
        if described.error_code not in _UP_TO_THE_GROUP or has_other_members(described, self._shadows.name):
            return None
        if not self._router.may_be_ours(described.group_id):
            return None
        return ask_rules(
            self._service, DescribeGroup(caller=request.context.caller(self._service), group_id=described.group_id)
        )

    async def _non_classic(
        self, request: ClientRequest, described: Mapping[GroupId, Any], known: Mapping[GroupId, Outcome]
    ) -> Mapping[GroupId, ErrorCode]:
        """Return the known groups of another type upstream, with NONE; with an error if their type is unknown."""
        asked = [
            group_id
            for group_id, outcome in known.items()
            if is_unknown(described[group_id]) and _is_known(outcome) and not self._shadows.owns(group_id)
        ]
        return await non_classic_groups(request.client, asked)

    async def _merged(
        self,
        request: ClientRequest,
        described: Any,  # noqa: ANN401 -- as above
        outcome: Outcome | None,
    ) -> Fields:
        if outcome is None:
            return as_fields(described)
        assert isinstance(outcome, DescribeGroupOutcome)
        if outcome.error is ErrorCode.group_id_not_found:
            return as_fields(without_shadow(described, self._shadows.name))
        operations = await _operations(request, described)
        return describe_groups.encode(GroupId(described.group_id), outcome, request.context.api_version, operations)


def _is_known(outcome: Outcome) -> bool:
    return isinstance(outcome, DescribeGroupOutcome) and outcome.error is ErrorCode.none


async def _operations(request: ClientRequest, described: Any) -> int:  # noqa: ANN401 -- as above
    if not getattr(request.body, "include_authorized_operations", False):
        return AUTHORIZED_OPERATIONS_OMITTED
    if described.error_code is ErrorCode.none:
        return int(described.authorized_operations)
    return (await request.client.authorizations.of(GroupId(described.group_id))).operations
