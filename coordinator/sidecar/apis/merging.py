"""What the admin APIs share, of which a request names ours and others at once: both are asked, the answers merged.

The broker is asked on the client's own connection, with the request as it came or less of it, in the same version: so
it authorizes the client, and what it says of others' groups is passed on as it is. The rules are asked for ours.
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
from muster.coordinator.sidecar.messages.own_requests import (
    BrokerLink,
    ask,
    read_answer_in_steps,
    request_bytes_in_steps,
)
from muster.coordinator.sidecar.ownership.routing import GroupRouter
from muster.coordinator.sidecar.relay.intercept import ClientRequest
from muster.coordinator.upstream.group_probe import has_shadow
from muster.coordinator.upstream.shadow import PROTOCOL_TYPE, ShadowName
from muster.coordinator.wire.api import Body, Fields
from muster.coordinator.wire.messages import HEADER_START_BYTES
from muster.events.ids import GroupId
from muster.events.state import GroupState
from muster.events.steps import Each

BROKER_TIMEOUT_S = 5.0
"""For how long a broker, or a client that has to read first, keeps a group's shadow out."""


_ASKED_AT_ONCE = 1_000
"""Groups in one question: the broker's answer to it has some 100 bytes for each."""


def ask_rules(service: Service, command: AnyRequest) -> asyncio.Future[Outcome]:
    """What the rules say to the command, which is submitted at once."""
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def reply(outcome: Outcome) -> None:
        if not future.done():  # the client may be gone
            future.set_result(outcome)

    service.groups.submit(command, reply)
    return future


async def any_may_be_ours(router: GroupRouter, group_ids: Iterable[GroupId], pace: Pace) -> bool:
    """Whether one of the groups is, or could be, ours; else the request is the broker's."""
    for group_id in group_ids:
        if router.may_be_ours(group_id):
            return True
        await pace.worked()
    return False


async def ask_broker(request: ClientRequest, body: Body | None = None) -> Any:  # noqa: ANN401 -- kio's response of the version
    """The broker's answer to the request as it came, or to `body` in its place. Raises ProtocolError."""
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
    """What the broker knows of these groups, and lets the client do with them; asks nothing about none.

    A group that is not there is Dead, without an error. Raises ProtocolError.
    """
    described: dict[GroupId, DescribedGroup] = {}
    for first in range(0, len(group_ids), _ASKED_AT_ONCE):
        groups = tuple(map(KioGroupId, group_ids[first : first + _ASKED_AT_ONCE]))
        request = DescribeGroupsRequest(groups=groups, include_authorized_operations=True)
        answer = await ask(client, request, DescribeGroupsResponse)
        described |= {GroupId(group.group_id): group for group in answer.groups}
    return described


async def non_classic_groups(client: BrokerLink, group_ids: Collection[GroupId]) -> Mapping[GroupId, ErrorCode]:
    """Of groups that DescribeGroups calls Dead: those that are of another type upstream, each with an error.

    That is NONE, or the same for all of them when the broker does not tell. ListGroups does, which knows all types.
    Raises ProtocolError.
    """
    if not group_ids:
        return {}
    answer = await ask(client, ListGroupsRequest(states_filter=()), ListGroupsResponse)
    if answer.error_code is not ErrorCode.none:
        return dict.fromkeys(group_ids, answer.error_code)
    listed = {GroupId(group.group_id) for group in answer.groups}
    return {group_id: ErrorCode.none for group_id in group_ids if group_id in listed}


def is_unknown(described: Any) -> bool:  # noqa: ANN401 -- kio's DescribedGroup of any version
    """Whether the broker knows no classic group of this name: none at all, or one of another type."""
    return bool(described.group_state == GroupState.DEAD.value)


def refusal(described: DescribedGroup, operation: int) -> ErrorCode:
    """NONE if the client may; else what the broker says, or would say."""
    if described.error_code is not ErrorCode.none:
        return described.error_code
    allowed = described.authorized_operations & operation
    return ErrorCode.none if allowed else ErrorCode.group_authorization_failed


def has_other_members(described: Any, name: ShadowName) -> bool:  # noqa: ANN401 -- kio's DescribedGroup of any version
    """Whether somebody is in the group upstream who is not our shadow, of this name: then it is theirs."""
    return bool(described.members) and not has_shadow(described, name)


def without_shadow(described: Any, name: ShadowName) -> Any:  # noqa: ANN401 -- as above
    """The group as the broker would tell it without our shadow, of which nobody needs to know, also if it has left."""
    is_left = described.protocol_type == PROTOCOL_TYPE and not described.members
    if not is_left and not has_shadow(described, name):
        return described
    return replace(described, group_state=GroupState.EMPTY.value, protocol_type="", protocol_data="", members=())


def as_fields(entity: Any) -> Fields:  # noqa: ANN401 -- any of kio's entities
    """One of kio's entities as the fields that our own writer takes; those of what is in its arrays are made then."""
    return {name: _as_field(getattr(entity, name)) for name in _names(cast("Hashable", type(entity)))}


@cache
def _names(entity: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast("Any", entity)))


def _as_field(value: Any) -> Any:  # noqa: ANN401 -- whatever a field holds
    if isinstance(value, tuple):
        return Each(_as_field, value)
    return as_fields(value) if is_dataclass(value) else value
