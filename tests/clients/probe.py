"""Muster's description of a group, requested over a socket of our own; and waiting for a state.

Its requests change nothing (except that a member's heartbeat extends its session).
"""

import asyncio
from typing import Final

from tests.conformance.wire import Connection, Fields
from tests.waiting import until_so

WITHIN_S: Final = 60.0
GENERATIONS_MAX: Final = 200
_ACCEPTED: Final = (0, 27)
_NOT_COORDINATOR: Final = (14, 15, 16)


def described(bootstrap: str, group_id: str) -> Fields:
    """The group's DescribeGroups v5 response; in a cluster from its coordinator."""

    async def ask(address: str) -> Fields:
        connection = await Connection.open(address)
        try:
            answer = await connection.ask("DescribeGroups", 5, groups=[group_id], include_authorized_operations=False)
        finally:
            connection.close()
        group: Fields = answer["groups"][0]
        return group

    group = asyncio.run(ask(bootstrap))
    if group["error_code"] not in _NOT_COORDINATOR:
        return group
    return asyncio.run(ask(coordinator_of(bootstrap, group_id)))


def coordinator_of(bootstrap: str, group_id: str) -> str:
    """`host:port` of the group's coordinator, according to the server at `bootstrap`, once there is one."""
    reported: Fields = {}

    async def ask() -> bool:
        connection = await Connection.open(bootstrap)
        try:
            answer = await connection.ask("FindCoordinator", 4, key_type=0, coordinator_keys=[group_id])
        finally:
            connection.close()
        reported.update(answer["coordinators"][0])
        return bool(reported["error_code"] == 0)

    until_so(lambda: asyncio.run(ask()), lambda: reported)
    return f"{reported['host']}:{reported['port']}"


def until_stable(bootstrap: str, group_id: str, *, members: int, within_s: float = WITHIN_S) -> Fields:
    """The group, once it is stable with this many members."""
    group = described(bootstrap, group_id)

    def stable() -> bool:
        nonlocal group
        group = described(bootstrap, group_id)
        return group["group_state"] == "Stable" and len(group["members"]) == members

    until_so(stable, lambda: group, within_s=within_s)
    return group


def generation_of(bootstrap: str, group_id: str) -> int:
    """The generation of a group with members: the one with which a member's heartbeat is accepted."""
    group = described(bootstrap, group_id)
    member_id = group["members"][0]["member_id"]

    async def ask(address: str) -> int:
        connection = await Connection.open(address)
        try:
            for generation_id in range(1, GENERATIONS_MAX):
                request = {"group_id": group_id, "generation_id": generation_id, "member_id": member_id}
                answer = await connection.ask("Heartbeat", 2, **request)
                if answer["error_code"] in _ACCEPTED:
                    return generation_id
        finally:
            connection.close()
        raise AssertionError(f"no generation below {GENERATIONS_MAX} is accepted: {group}")

    return asyncio.run(ask(coordinator_of(bootstrap, group_id)))


def remove_static_members(bootstrap: str, group_id: str, *instances: str) -> list[int]:
    """LeaveGroup by instance id, as an administrator; the error code of each."""

    async def ask() -> list[int]:
        connection = await Connection.open(bootstrap)
        members = [{"member_id": "", "group_instance_id": instance, "reason": "scaled in"} for instance in instances]
        try:
            answer = await connection.ask("LeaveGroup", 5, group_id=group_id, members=members)
        finally:
            connection.close()
        assert answer["error_code"] == 0, answer
        return [each["error_code"] for each in answer["members"]]

    return asyncio.run(ask())
