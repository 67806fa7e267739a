"""Shared parts of the admin APIs, which ask both the broker and the rules, and merge the responses.

The broker is asked on the client's own connection, in the same version, with all or part of the request. So it
authorizes the client, and its results for other groups are passed on unchanged.
"""

import asyncio
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, cast

from kio.index import load_response_schema
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.types import GroupId as KioGroupId

from muster.coordinator.group.commands import AnyRequest
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.load.slices import Pace
from muster.coordinator.service import Service
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.messages.own_requests import (
    BrokerLink,
    ask,
    read_answer_in_steps,
    request_bytes_in_steps,
)
from muster.coordinator.sidecar.relay.intercept import ClientRequest
from muster.coordinator.upstream.group_probe import has_shadow
from muster.coordinator.upstream.shadow import PROTOCOL_TYPE, ShadowName
from muster.coordinator.wire.api import Body, Fields
from muster.coordinator.wire.messages import HEADER_START_BYTES
from muster.events.ids import GroupId
from muster.events.state import GroupState
from muster.events.steps import Each, entries_of

BROKER_TIMEOUT_S = 5.0
"""How long a slow broker, or a client that does not read, may keep a group's shadow withdrawn."""


_ASKED_AT_ONCE = 1_000
"""Groups in one DescribeGroups: the broker's response has about 100 bytes for each."""


def ask_rules(service: Service, command: AnyRequest) -> asyncio.Future[Outcome]:
    """Submit the command to the rules; the future gets their outcome."""
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def reply(outcome: Outcome) -> None:
        if not future.done():  # the client may have disconnected
            future.set_result(outcome)

    service.groups.submit(command, reply)
    return future


async def any_may_be_ours(router: GroupRouter, group_ids: Iterable[GroupId], pace: Pace) -> bool:
    """Return whether any of the groups is, or may become, Muster's; if not, the request is relayed."""
    for group_id in group_ids:
        if router.may_be_ours(group_id):
            return True
        await pace.worked(entries_of(group_id))
    return False


async def ask_broker(request: ClientRequest, body: Body | None = None) -> Any:  # noqa: ANN401 -- kio's response of the version
    """Send the broker the request unchanged, or `body` instead. Raises ProtocolError."""
    context, slices = request.context, request.client.slices
    if body is None:
        rest = request.frame[HEADER_START_BYTES:]
    else:
        rest = await slices.result(request_bytes_in_steps(body, as_fields(body), context.client_id))
    payload = await request.client.ask(context.api_key, context.api_version, rest)
    return await slices.result(
        read_answer_in_steps(load_response_schema(context.api_key, context.api_version), payload)
    )


async def describe_upstream(client: BrokerLink, group_ids: Sequence[GroupId]) -> dict[GroupId, DescribedGroup]:
    """Describe these groups upstream, with the operations allowed to the client. Sends nothing if there are none.

    A group that does not exist is Dead, without an error. Raises ProtocolError.
    """
    described: dict[GroupId, DescribedGroup] = {}
    for first in range(0, len(group_ids), _ASKED_AT_ONCE):
        groups = tuple(map(KioGroupId, group_ids[first : first + _ASKED_AT_ONCE]))
        request = DescribeGroupsRequest(groups=groups, include_authorized_operations=True)
        answer = await ask(client, request, DescribeGroupsResponse)
        described |= {GroupId(group.group_id): group for group in answer.groups}
    return described


async def non_classic_groups(client: BrokerLink, group_ids: Collection[GroupId]) -> Mapping[GroupId, ErrorCode]:
    """Return which of these groups, all of them Dead according to DescribeGroups, are of another type upstream.

    The broker is asked with ListGroups, which lists groups of all types. Each group returned has the error NONE; if
    ListGroups fails, all groups are returned, with the broker's error. Raises ProtocolError.
    """
    if not group_ids:
        return {}
    answer = await ask(client, ListGroupsRequest(states_filter=()), ListGroupsResponse)
    if answer.error_code is not ErrorCode.none:
        return dict.fromkeys(group_ids, answer.error_code)
    listed = {GroupId(group.group_id) for group in answer.groups}
    return {group_id: ErrorCode.none for group_id in group_ids if group_id in listed}


def is_unknown(described: Any) -> bool:  # noqa: ANN401 -- kio's DescribedGroup of any version
    """Return whether the broker has no classic group with this id: it has none at all, or one of another type."""
    return bool(described.group_state == GroupState.DEAD.value)


def refusal(described: DescribedGroup, operation: int) -> ErrorCode:
    """Return NONE if the operation is allowed; else the broker's error, or GROUP_AUTHORIZATION_FAILED."""
    if described.error_code is not ErrorCode.none:
        return described.error_code
    allowed = described.authorized_operations & operation
    return ErrorCode.none if allowed else ErrorCode.group_authorization_failed


def has_other_members(described: Any, name: ShadowName) -> bool:  # noqa: ANN401 -- kio's DescribedGroup of any version
    """Return whether the group has members upstream besides our shadow, which has this name."""
    return bool(described.members) and not has_shadow(described, name)


def without_shadow(described: Any, name: ShadowName) -> Any:  # noqa: ANN401 -- as above
    """Return the description without our shadow, or without its traces if it has just left."""
    is_left = described.protocol_type == PROTOCOL_TYPE and not described.members
    if not is_left and not has_shadow(described, name):
        return described
    return replace(described, group_state=GroupState.EMPTY.value, protocol_type="", protocol_data="", members=())


def as_fields(entity: Any) -> Fields:  # noqa: ANN401 -- any of kio's entities
    """Return a kio entity as fields for our writer; array items are converted when they are written."""
    return {name: _as_field(getattr(entity, name)) for name in _names(cast("Hashable", type(entity)))}


@cache
def _names(entity: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast("Any", entity)))


def _as_field(value: Any) -> Any:  # noqa: ANN401 -- whatever a field holds
    if isinstance(value, tuple):
        return Each(_as_field, value)
    return as_fields(value) if is_dataclass(value) else value
