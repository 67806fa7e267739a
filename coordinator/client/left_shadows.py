"""Shadows that Muster has left in a cluster, and their removal, for `muster groups shadows`.

The requests go to brokers, not to a Muster, which would list the group's own members instead, and whose shadow would
join again.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.client.coordinator_link import NotBroker, Refused
from muster.coordinator.client.group_admin import GroupAdmin, MemberResult
from muster.coordinator.client.requests import ANY_GROUP
from muster.coordinator.upstream.shadow import PROTOCOL_TYPE

ASKED_AT_ONCE: Final = 32


class LeftShadow(msgspec.Struct, frozen=True, kw_only=True):
    """A shadow in a group of the cluster. `client_host`: the host of the Muster that sent its join."""

    group_id: str
    group_instance_id: str
    member_id: str
    client_host: str

    @property
    def name(self) -> str:
        """The name by which it can be removed."""
        return self.group_instance_id or self.member_id


async def shadows_in(admin: GroupAdmin) -> list[LeftShadow]:
    """List the shadows in all groups of the cluster, by group. Raises NotBroker and AdminError."""
    group_ids = sorted(await admin.list_groups())
    await _check_is_broker(admin, group_ids)
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def in_group(group_id: str) -> list[LeftShadow]:
        async with at_once:
            try:
                group = await admin.describe_group(group_id)
            except Refused as error:
                if error.error is not ErrorCode.group_id_not_found:  # it was deleted in the meantime
                    raise
                return []
        if group.protocol_type != PROTOCOL_TYPE:
            return []
        return [
            LeftShadow(
                group_id=group_id,
                group_instance_id=each.group_instance_id or "",
                member_id=each.member_id,
                client_host=each.client_host.removeprefix("/"),
            )
            for each in group.members
        ]

    found = await asyncio.gather(*map(in_group, group_ids))
    return [shadow for of_group in found for shadow in of_group]


async def _check_is_broker(admin: GroupAdmin, group_ids: Sequence[str]) -> None:
    """Raise NotBroker if Muster answers, for any of the groups or for one that does not exist.

    A sidecar that handles only some groups (`--groups`) shows the shadows in all others, like a broker. Raises Refused
    if the user may not describe any group, because then it is unknown whether Muster or a broker answers.
    """
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def answers_for(group_id: str) -> bool | Refused:
        async with at_once:
            try:
                return await admin.has_muster_configs(group_id)
            except Refused as refused:
                return refused

    answers = await asyncio.gather(*map(answers_for, (*group_ids, ANY_GROUP)))
    if any(answer is True for answer in answers):
        raise NotBroker(admin.asked_at)
    denied = [answer for answer in answers if isinstance(answer, Refused)]
    if len(denied) == len(answers) and denied[-1].error is ErrorCode.group_authorization_failed:
        raise denied[0]


async def remove_shadows(admin: GroupAdmin, shadows: Iterable[LeftShadow]) -> Sequence[tuple[LeftShadow, MemberResult]]:
    """Remove them, each with a LeaveGroup for its group (KIP-345). Raises AdminError."""
    removed = []
    for each in shadows:
        (result,) = await admin.remove_members_from_group(each.group_id, [each.name], reason="Muster is gone")
        removed.append((each, result))
    return removed
