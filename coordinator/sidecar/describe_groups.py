"""DescribeGroups (key 15), for groups of ours and others in one request.

The broker is asked about all of them, so it says who may describe what (G9), and tells the operations (G10). Then
those it has nobody in are told by the rules, if they know them. What the broker hides is asked for: from v6 on it tells
no operations of a group that it does not know.
"""

import asyncio
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from coordinator.group.commands import DescribeGroup
from coordinator.group.outcomes import DescribeGroupOutcome, Outcome
from coordinator.service import Cancel, Service
from coordinator.sidecar.intercept import Request, SidecarApi
from coordinator.sidecar.merging import as_fields, ask_broker, decided, has_others, without_shadow
from coordinator.sidecar.whose import Ownerships
from coordinator.wire import describe_groups
from coordinator.wire.api import Fields
from coordinator.wire.operations import NOT_TOLD
from events.ids import GroupId

_TOLD_BY_BROKER = frozenset({ErrorCode.none, ErrorCode.group_id_not_found})
"""What the broker says when it is up to the group; all else comes before that."""


class DescribingGroups:
    """`service` is what the rules are asked through."""

    def __init__(self, service: Service, ownerships: Ownerships) -> None:
        self._service = service
        self._ownerships = ownerships

    def api(self) -> SidecarApi:
        """The registration."""
        api = describe_groups.API
        return SidecarApi(key=api.key, name=api.name, versions=api.versions, handle=self.handle)

    def handle(self, request: Request) -> Cancel | None:
        if any(self._ownerships.is_for(group_id) for group_id in request.body.groups):
            return request.work(self._describe(request))
        request.relay()
        return None

    async def _describe(self, request: Request) -> None:
        answer = await ask_broker(request)
        told = {group.group_id: group for group in answer.groups}
        known = {group_id: self._known(request, group) for group_id, group in told.items()}
        groups = [
            await self._merged(request, told[group_id], known[group_id])
            for group_id in request.body.groups
            if group_id in told
        ]
        request.answer({**as_fields(replace(answer, groups=())), "groups": groups})

    def _known(self, request: Request, told: Any) -> asyncio.Future[Outcome] | None:  # noqa: ANN401 -- of any version
        """What the rules know of a group that may be ours; None when it is not."""
        if told.error_code not in _TOLD_BY_BROKER or has_others(told):
            return None
        if not self._ownerships.is_for(told.group_id):
            return None
        return decided(
            self._service, DescribeGroup(caller=request.context.caller(self._service), group_id=told.group_id)
        )

    async def _merged(
        self,
        request: Request,
        told: Any,  # noqa: ANN401 -- as above
        known: asyncio.Future[Outcome] | None,
    ) -> Fields:
        if known is None:
            return as_fields(told)
        outcome = await known
        assert isinstance(outcome, DescribeGroupOutcome)
        if outcome.error is ErrorCode.group_id_not_found:
            return as_fields(without_shadow(told))
        operations = await _operations(request, told)
        return describe_groups.encode(GroupId(told.group_id), outcome, request.context.api_version, operations)


async def _operations(request: Request, told: Any) -> int:  # noqa: ANN401 -- as above
    if not getattr(request.body, "include_authorized_operations", False):
        return NOT_TOLD
    if told.error_code is ErrorCode.none:
        return int(told.authorized_operations)
    return (await request.client.verdicts.of(GroupId(told.group_id))).operations
