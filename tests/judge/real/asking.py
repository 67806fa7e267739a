"""The requests of an administrator, and the generation of a group, over sockets of our own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from tests.conformance.wire import Connection
from tests.judge.real.process import RealProcess
from tests.waiting import until_so

T = TypeVar("T")
ADMINISTRATOR: Final = "admin-1"
REMOVED: Final = "member was removed by an admin"
ACCEPTED: Final = (0, 27)
ILLEGAL_GENERATION: Final = 22
GENERATIONS_MAX: Final = 500


def response_from(bootstrap: str, ask: Callable[[Connection], Awaitable[T]]) -> T:
    """Return the response to a request on a separate connection."""

    async def run() -> T:
        connection = await Connection.open(bootstrap, client_id=ADMINISTRATOR)
        try:
            return await ask(connection)
        finally:
            connection.close()

    return asyncio.run(run())


def generation_of(bootstrap: str, group_id: str, member_id: str, *, since: int) -> int | None:
    """Return the generation in which this live member's heartbeat is accepted; None if it is not a member.

    The heartbeat refreshes its session, and has no other effect.
    """

    async def ask(connection: Connection) -> int | None:
        for generation_id in range(since, GENERATIONS_MAX):
            heartbeat = {"group_id": group_id, "generation_id": generation_id, "member_id": member_id}
            error = (await connection.ask("Heartbeat", 2, **heartbeat))["error_code"]
            if error in ACCEPTED:
                return generation_id
            if error != ILLEGAL_GENERATION:
                return None
        raise AssertionError(f"no generation below {GENERATIONS_MAX} is accepted")

    return response_from(bootstrap, ask)


def remove(bootstrap: str, group_id: str, processes: Sequence[RealProcess]) -> None:
    """LeaveGroup for others, as administrators' tools send it."""
    members = [
        {
            "member_id": "" if each.is_static else each.member_id,
            "group_instance_id": each.given.instance,
            "reason": REMOVED,
        }
        for each in processes
    ]

    async def ask(connection: Connection) -> None:
        answer = await connection.ask("LeaveGroup", 5, group_id=group_id, members=members)
        assert answer["error_code"] == 0, answer
        assert all(each["error_code"] == 0 for each in answer["members"]), answer

    response_from(bootstrap, ask)


def delete(bootstrap: str, group_id: str) -> None:
    """DeleteGroups, as soon as it may be deleted."""

    async def ask(connection: Connection) -> int:
        answer = await connection.ask("DeleteGroups", 2, groups_names=[group_id])
        return int(answer["results"][0]["error_code"])

    until_so(lambda: response_from(bootstrap, ask) == 0, "the group cannot be deleted")
