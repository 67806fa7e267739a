"""What the admin APIs share, of which a request names ours and others at once: both are asked, the answers merged.

The broker is asked on the client's own connection, with the request as it came or less of it, in the same version: so
it authorizes the client, and what it says of others' groups is passed on as it is. The rules are asked for ours.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from kio.index import load_response_schema
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId as KioGroupId

from coordinator.group.commands import AnyRequest
from coordinator.group.outcomes import Outcome
from coordinator.service import Service
from coordinator.sidecar.intercept import Request
from coordinator.sidecar.questions import Asked, ask, read_answer, request_bytes
from coordinator.upstream.shadow import PROTOCOL_TYPE
from coordinator.wire.api import Body, Fields
from coordinator.wire.messages import HEADER_START_BYTES
from events.ids import GroupId
from events.state import GroupState

ANSWERS_WITHIN_S = 5.0
"""For how long a broker, or a client that has to read first, keeps a group's shadow out."""


def decided(service: Service, command: AnyRequest) -> asyncio.Future[Outcome]:
    """What the rules say to the command, which is submitted at once."""
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def reply(outcome: Outcome) -> None:
        if not future.done():  # the client may be gone
            future.set_result(outcome)

    service.groups.submit(command, reply)
    return future


async def ask_broker(request: Request, body: Body | None = None) -> Any:  # noqa: ANN401 -- kio's response of the version
    """The broker's answer to the request as it came, or to `body` in its place. Raises ProtocolError."""
    context = request.context
    rest = request.frame[HEADER_START_BYTES:] if body is None else request_bytes(body, context.client_id)
    payload = await request.client.ask(context.api_key, context.api_version, rest)
    return read_answer(load_response_schema(context.api_key, context.api_version), payload)


async def describe_upstream(client: Asked, group_ids: Iterable[GroupId]) -> dict[GroupId, DescribedGroup]:
    """What the broker knows of these groups, and lets the client do with them; asks nothing about none.

    A group that is not there is Dead, without an error. Raises ProtocolError.
    """
    groups = tuple(KioGroupId(group_id) for group_id in group_ids)
    if not groups:
        return {}
    request = DescribeGroupsRequest(groups=groups, include_authorized_operations=True)
    answer = await ask(client, request, DescribeGroupsResponse)
    return {GroupId(group.group_id): group for group in answer.groups}


def refusal(described: DescribedGroup, operation: int) -> ErrorCode:
    """NONE if the client may; else what the broker says, or would say."""
    if described.error_code is not ErrorCode.none:
        return described.error_code
    allowed = described.authorized_operations & operation
    return ErrorCode.none if allowed else ErrorCode.group_authorization_failed


def has_others(described: Any) -> bool:  # noqa: ANN401 -- kio's DescribedGroup of any version
    """Whether somebody is in the group upstream who is not our shadow: then it is theirs."""
    return bool(described.members) and described.protocol_type != PROTOCOL_TYPE


def without_shadow(described: Any) -> Any:  # noqa: ANN401 -- as above
    """The group as the broker would tell it without our shadow, of which nobody needs to know."""
    if described.protocol_type != PROTOCOL_TYPE:
        return described
    return replace(described, group_state=GroupState.EMPTY.value, protocol_type="", protocol_data="", members=())


def as_fields(entity: Any) -> Fields:  # noqa: ANN401 -- any of kio's entities
    """One of kio's entities as the fields that our own writer takes."""
    return {field.name: _as_field(getattr(entity, field.name)) for field in fields(entity)}


def _as_field(value: Any) -> Any:  # noqa: ANN401 -- whatever a field holds
    if isinstance(value, tuple):
        return [_as_field(each) for each in value]
    return as_fields(value) if is_dataclass(value) else value
