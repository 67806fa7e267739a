"""A group member, step by step, in the terms of the protocol.

It has its requests, and the last response.
"""

import asyncio
from typing import Any, Final

from tests.conformance.member import subscription
from tests.conformance.wire import Connection, Fields, Pending, ms

SESSION_MS: Final = 120_000
HEARTBEAT_EVERY_S: Final = 0.05
ASK_AGAIN_S: Final = 0.02
NO_COORDINATOR_YET: Final = (14, 15, 16)
MEMBER_ID_REQUIRED: Final = 79
REJOIN: Final = (22, 27)
ASSIGNMENT: Final = b"\x00\x00all"


class Member:
    """See the module. `connection` may be replaced, as by a client after a hang."""

    def __init__(
        self,
        connection: Connection,
        group_id: str,
        topic: str,
        *,
        instance: str | None = None,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.connection = connection
        self.topic = topic
        self._session_ms = session_ms
        self.generation_id = -1
        self.leader_id = ""
        self.is_in = False
        """True while it has its assignment, and knows of no rebalance."""
        self.member_ids: list[str] = []
        """The ids of all members in the leader's join response."""
        self.group_id = group_id
        self._me: dict[str, Any] = {"group_id": group_id, "member_id": "", "group_instance_id": instance}

    @property
    def member_id(self) -> str:
        member_id: str = self._me["member_id"]
        return member_id

    @property
    def leads(self) -> bool:
        return bool(self.leader_id == self._me["member_id"])

    async def take_part(self) -> None:
        """Join and sync; if another rebalance starts meanwhile, it is not in."""
        await self.join()
        self.is_in = await self.sync() == 0

    async def join(self) -> None:
        """JoinGroup until there is a generation; without an id it gets one first."""
        joined = await self._join()
        while joined["error_code"] in NO_COORDINATOR_YET:
            await asyncio.sleep(ASK_AGAIN_S)
            joined = await self._join()
        if joined["error_code"] == MEMBER_ID_REQUIRED:
            self._me["member_id"] = joined["member_id"]
            joined = await self._join()
        assert joined["error_code"] == 0, joined
        self._me["member_id"] = joined["member_id"]
        self.generation_id, self.leader_id = joined["generation_id"], joined["leader"]
        self.member_ids = [each["member_id"] for each in joined["members"]]

    async def _join(self) -> Fields:
        return await self.connection.ask(
            "JoinGroup",
            9,
            **self._me,
            session_timeout=ms(self._session_ms),
            rebalance_timeout=ms(SESSION_MS),
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": subscription(self.topic)}],
            reason=None,
        )

    async def sync(self) -> int:
        """The error of a SyncGroup, if it is one that requires a rejoin; the leader assigns to all."""
        given = [{"member_id": each, "assignment": ASSIGNMENT} for each in self.member_ids if self.leads]
        synced = await self.connection.ask(
            "SyncGroup",
            5,
            **self._me,
            generation_id=self.generation_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )
        assert synced["error_code"] in (0, *REJOIN), synced
        return int(synced["error_code"])

    def send_commit(self, partition: int, offset: int) -> Pending:
        """Send an OffsetCommit without waiting; `commit_error` reads the response."""
        position = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        return self.connection.send(
            "OffsetCommit",
            9,
            **self._me,
            generation_id_or_member_epoch=self.generation_id,
            topics=[{"name": self.topic, "partitions": [position]}],
        )

    async def commit(self, partition: int, offset: int) -> int:
        """The error of an OffsetCommit."""
        return await commit_error(self.send_commit(partition, offset))

    async def heartbeat(self) -> int:
        """The error of a Heartbeat; a rejoin error means that it is not in any more."""
        answer = await self.send_heartbeat().get()
        assert answer["error_code"] in (0, *REJOIN), answer
        self.is_in = answer["error_code"] == 0
        return int(answer["error_code"])

    def send_heartbeat(self) -> Pending:
        """Send a Heartbeat without waiting."""
        return self.connection.send("Heartbeat", 4, **self._me, generation_id=self.generation_id)


async def commit_error(pending: Pending) -> int:
    """The error of the only partition."""
    answer = await pending.get()
    (topic,) = answer["topics"]
    (partition,) = topic["partitions"]
    return int(partition["error_code"])


async def settle(*members: Member) -> None:
    """All of them join, and take part in rebalances, until they are in one generation together."""

    def settled() -> bool:
        return all(member.is_in for member in members) and len({member.generation_id for member in members}) == 1

    async def live(member: Member) -> None:
        while not settled():
            if not member.is_in:
                await member.take_part()
            elif await member.heartbeat() == 0:
                await asyncio.sleep(HEARTBEAT_EVERY_S)

    await asyncio.gather(*(live(member) for member in members))
