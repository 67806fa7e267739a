"""DeleteGroups (key 42), for Muster's groups and others in one request.

The rules refuse a group that has members here. An Empty group is deleted here first, with an event, and then upstream,
with its offsets. In the other order, a member that joins in between would find its offsets gone and its group still
there. The shadow is withdrawn for the deletion. Groups that are not ours, or are unknown here, are deleted or refused
by the broker. So are groups that have members upstream or are of another type there, whatever the log here says.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import replace

from kio.schema.describe_groups.v5.response import DescribedGroup
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import DeleteGroup
from muster.coordinator.group.outcomes import DeleteGroupOutcome
from muster.coordinator.service import Cancel, Service
from muster.coordinator.sidecar.apis.merging import (
    BROKER_TIMEOUT_S,
    ask_broker,
    ask_rules,
    describe_upstream,
    has_other_members,
    is_unknown,
    non_classic_groups,
    refusal,
)
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.upstream.shadows import Shadows, ShadowUnavailable
from muster.coordinator.wire import delete_groups
from muster.coordinator.wire.authorized_operations import DELETE
from muster.events.ids import GroupId
from muster.events.steps import Each, entries_of

Errors = dict[GroupId, ErrorCode]


class DeleteGroupsApi:
    """Deletes groups here by the rules, which `service` applies, and upstream."""

    def __init__(
        self,
        service: Service,
        router: GroupRouter,
        shadows: Shadows,
        *,
        broker_timeout_s: float = BROKER_TIMEOUT_S,
    ) -> None:
        self._service = service
        self._router = router
        self._shadows = shadows
        self._broker_timeout_s = broker_timeout_s

    def api(self) -> SidecarApi:
        """Return the registration."""
        api = delete_groups.API
        return SidecarApi(key=api.key, name=api.name, versions=api.versions, handle=self.handle)

    def handle(self, request: ClientRequest) -> Cancel | None:
        return request.work(self._delete(request))

    async def _delete(self, request: ClientRequest) -> None:
        group_ids = list(dict.fromkeys(request.body.groups_names))  # one result for each group (G12)
        pace, ours = request.pace(), []
        for group_id in group_ids:
            if self._router.may_be_ours(group_id):
                ours.append(group_id)
            await pace.worked(entries_of(group_id))
        if not ours:
            request.relay()
            return
        here = await self._delete_here(request, ours)
        decided_here = {group_id for group_id, error in here.items() if error not in _GOES_ON}
        deleted_here = {group_id for group_id, error in here.items() if error is ErrorCode.none}
        rest = [group_id for group_id in group_ids if group_id not in decided_here]
        for group_id, error in (await self._delete_upstream(request, rest, deleted_here)).items():
            is_done = error is ErrorCode.group_id_not_found and group_id in deleted_here
            here[group_id] = ErrorCode.none if is_done else error
        request.answer({"results": Each(lambda each: {"group_id": each, "error_code": here[each]}, group_ids)})

    async def _delete_here(self, request: ClientRequest, group_ids: Sequence[GroupId]) -> Errors:
        """Delete the groups here; NONE for each deleted one, 69 (GROUP_ID_NOT_FOUND) if the broker is to decide."""
        errors = {}
        deciding = {}
        pace = request.pace()
        described = await describe_upstream(request.client, group_ids)
        newer = await self._non_classic(request, described)
        for group_id, description in described.items():
            await pace.worked(entries_of(group_id))
            errors[group_id] = refusal(description, DELETE)
            if errors[group_id] is not ErrorCode.none:
                continue
            if group_id in newer and newer[group_id] is not ErrorCode.none:
                errors[group_id] = newer[group_id]
                continue
            if has_other_members(description, self._shadows.name) or group_id in newer:
                errors[group_id] = ErrorCode.group_id_not_found
                continue
            command = DeleteGroup(caller=request.context.caller(self._service), group_id=group_id)
            deciding[group_id] = ask_rules(self._service, command)
        for group_id, outcome in deciding.items():
            decided = await outcome
            assert isinstance(decided, DeleteGroupOutcome)
            errors[group_id] = decided.error
        return errors

    async def _non_classic(self, request: ClientRequest, described: Mapping[GroupId, DescribedGroup]) -> Errors:
        asked = [
            group_id
            for group_id, description in described.items()
            if is_unknown(description)
            and refusal(description, DELETE) is ErrorCode.none
            and not self._shadows.owns(group_id)
        ]
        return dict(await non_classic_groups(request.client, asked))

    async def _delete_upstream(
        self, request: ClientRequest, group_ids: Sequence[GroupId], deleted_here: Set[GroupId]
    ) -> Errors:
        errors: Errors = {}
        pace = request.pace()
        async with AsyncExitStack() as shadows_out:
            for group_id in group_ids:
                await pace.worked(entries_of(group_id))
                if self._shadows.owns(group_id):
                    continue  # a member has joined in the meantime: the broker finds the shadow, and refuses
                try:
                    await shadows_out.enter_async_context(self._shadows.withdrawn(group_id))
                except ShadowUnavailable:
                    errors[group_id] = ErrorCode.coordinator_not_available
            asked = [each for each in group_ids if each not in errors]
            for pause_s in _PAUSES_S:  # not a plain retry: each attempt asks only for what is left
                if not asked:
                    break
                await asyncio.sleep(pause_s)
                try:
                    async with asyncio.timeout(self._broker_timeout_s):  # until it is back, no client can join
                        answer = await ask_broker(request, replace(request.body, groups_names=tuple(asked)))
                except TimeoutError:
                    errors |= dict.fromkeys(asked, ErrorCode.coordinator_not_available)
                    break
                errors |= {GroupId(each.group_id): each.error_code for each in answer.results}
                asked = [each for each in asked if errors[each] is ErrorCode.non_empty_group and each in deleted_here]
        return errors


_GOES_ON = frozenset({ErrorCode.none, ErrorCode.group_id_not_found})
_PAUSES_S = (0.0, *(0.1,) * 50)
"""Pauses before attempts: a group formed and left within upstream's initial rebalance delay (3 s) is not Empty yet."""
