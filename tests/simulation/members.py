"""Simulated consumers: what a member does, correctly or not. Knows nothing of owners (`client.py` finds them).

A member joins, syncs, and then heartbeats and commits until it has to rejoin. Randomly it leaves, is killed, or is
silent for longer than its session; some send invalid requests. Each partition's offsets grow with each commit, and each
commit has in its metadata the generation under which it was made.
"""

import asyncio
from typing import Any, Final

from tests.conformance.wire import Fields, ms
from tests.simulation.client import (
    FENCED,
    ID_REQUIRED,
    NONE,
    NOT_AVAILABLE,
    NOT_COORDINATOR,
    PAUSE_S,
    REBALANCING,
    UNKNOWN_MEMBER,
    Client,
    Members,
    NoAnswer,
)
from tests.simulation.ledger import ClientReply, CommitReply, FetchReply, JoinReply, SyncReply
from tests.simulation.muster_server import TOPIC, TOPIC_PARTITIONS

SESSION_S: Final = 6.0
REBALANCE_S: Final = 5.0
HEARTBEAT_S: Final = 1.5
OLD_JOIN: Final = 3
"""The last version in which a new member's first JoinGroup makes it one (KIP-394)."""
OLD_EACH: Final = 3


class Member(Client):
    """A sequence of consumer processes under one name; `instance` makes it a static member.

    `commits`: the share of its heartbeats before which it commits; without any it writes nothing for a long time.
    `is_old`: its client creates a member with the first JoinGroup, not with the second. `is_rival`: another member has
    the same instance id; it leaves when the faults are over.
    """

    def __init__(
        self,
        shared: Members,
        name: str,
        group_id: str,
        instance: str | None,
        *,
        is_wrong: bool,
        commits: float,
        is_rival: bool = False,
    ) -> None:
        super().__init__(shared, name, group_id)
        self.instance = instance
        self.is_wrong = is_wrong
        self.commits = commits
        self.is_rival = is_rival
        self.is_old = shared.has_old_clients and instance is None and sum(name.encode()) % OLD_EACH == 0
        self.member_id = ""
        self.generation_id = -1
        self.last_heartbeat_s = -1.0
        self._assigned: tuple[int, ...] = ()
        self.task = shared.loop.create_task(self._live())

    async def _live(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 3))
        while not (self.is_rival and self._shared.is_calm):
            try:
                if await self._join() and await self._sync():
                    await self._fetch()
                    await self._stay()
            except NoAnswer:
                await asyncio.sleep(PAUSE_S)

    def _told(self, asked_s: float) -> dict[str, Any]:
        by, is_delegated = self._answered_by
        passed_s = self._wire.departed.passed_s
        return {
            "process": by.process,
            "group_id": self.group_id,
            "member_id": self.member_id,
            "instance": self.instance,
            "generation_id": self.generation_id,
            "asked_s": asked_s,
            "left_s": passed_s if is_delegated else by.at_s,
            "passed_s": passed_s,
            "is_delegated": is_delegated,
            "heard_s": self._world.now_s,
        }

    def _forgotten(self, error: int) -> None:
        if error in {UNKNOWN_MEMBER, FENCED}:
            self.member_id = ""
        self.generation_id = -1

    # ---- a member's life -----------------------------------------------------------------------------

    async def _join(self) -> bool:
        asked_s, is_new = self._world.now_s, not self.member_id
        self._ledger.lost_joins[self.group_id] += is_new  # unless it has an answer
        answer = await self._ask_to_join()
        error = answer["error_code"]
        if error in {NONE, ID_REQUIRED}:
            self._ledger.lost_joins[self.group_id] -= is_new
            self.member_id = answer["member_id"]
            self._ledger.member_ids.add(self.member_id)
        if error == ID_REQUIRED:
            return await self._join()
        if error != NONE:
            self._ledger.counts["joins asked again"] += 1
            self._forgotten(error)
            await asyncio.sleep(PAUSE_S)
            return False
        self.generation_id = answer["generation_id"]
        self._ledger.joins.append(JoinReply(leader=answer["leader"], **self._told(asked_s)))
        self._members = [member["member_id"] for member in answer["members"]]
        return True

    async def _ask_to_join(self) -> Fields:
        return await self._ask(
            "JoinGroup",
            OLD_JOIN if self.is_old else 5,
            REBALANCE_S + 2,
            session_timeout=ms(round(SESSION_S * 1000)),
            rebalance_timeout=ms(round(REBALANCE_S * 1000)),
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"topics"}],
        )

    async def _sync(self) -> bool:
        asked_s, made = self._world.now_s, []
        for index, member_id in enumerate(self._members):
            share = range(index, TOPIC_PARTITIONS, len(self._members))
            text = f"{self.member_id} {self.generation_id} {','.join(map(str, share))}"
            made.append({"member_id": member_id, "assignment": text.encode()})
        answer = await self._ask(
            "SyncGroup",
            3,
            REBALANCE_S + 2,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=made,
        )
        if answer["error_code"] != NONE:
            self._forgotten(answer["error_code"])
            return False
        assignment = answer["assignment"]
        self._assigned = partitions_of(assignment)
        self._ledger.syncs.append(SyncReply(assignment=assignment, **self._told(asked_s)))
        return True

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.8, 1.0) * HEARTBEAT_S)
            lot = 1.0 if self._shared.is_calm else self._random.random()
            if lot < 0.010:
                await self._leave()
                return
            if lot < 0.025:
                self._killed()
                return
            if lot < 0.030:
                await asyncio.sleep(SESSION_S * self._random.uniform(0.5, 2.5))
            elif lot < 0.10 and self.is_wrong:
                await self._do_wrong()
            elif lot < self.commits:
                await self._commit()
            if not await self._heartbeat():
                return

    async def _heartbeat(self) -> bool:
        asked_s = self._world.now_s
        try:
            answer = await self._ask("Heartbeat", 3, **self._identity())
        except NoAnswer:
            await asyncio.sleep(PAUSE_S)
            return await self._heartbeat()
        error = answer["error_code"]
        if error == NONE:
            self.last_heartbeat_s = self._world.now_s
            if self._is_heard_since(asked_s):
                self._ledger.heartbeats.append(ClientReply(**self._told(asked_s)))
        elif error != REBALANCING:
            self._forgotten(error)
        return bool(error == NONE)

    def _identity(self) -> dict[str, Any]:
        return {
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }

    async def _commit(self) -> None:
        if not self._assigned:
            return
        partition, offset, asked_s = self._random.choice(self._assigned), next(self._shared.offsets), self._world.now_s
        try:
            answer = await self._ask(
                "OffsetCommit",
                8,
                generation_id_or_member_epoch=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance,
                topics=[_commit_of(partition, offset, self.generation_id)],
            )
        except NoAnswer:
            return
        error = answer["topics"][0]["partitions"][0]["error_code"]
        if error == NONE:
            self._ledger.commits.append(CommitReply(partition=partition, offset=offset, **self._told(asked_s)))
        elif error in {NOT_AVAILABLE, NOT_COORDINATOR}:
            self._drop()

    async def _fetch(self) -> None:
        asked_s = self._world.now_s
        answer = await self._ask("OffsetFetch", 7, topics=None, require_stable=True)
        for topic in answer["topics"]:
            for found in topic["partitions"]:
                reported = FetchReply(
                    partition=found["partition_index"], offset=found["committed_offset"], **self._told(asked_s)
                )
                self._ledger.fetches.append(reported)

    async def _leave(self) -> None:
        asked_s = self._world.now_s
        member = {"member_id": self.member_id, "group_instance_id": self.instance}
        answer = await self._ask("LeaveGroup", 4, members=[member])
        (left,) = answer["members"]
        if left["error_code"] == NONE:
            self._ledger.leaves.append(ClientReply(**self._told(asked_s)))
        self._killed()
        await asyncio.sleep(self._random.uniform(0.5, 6))

    def _killed(self) -> None:
        """Be another process from now on, which knows nothing of this one."""
        self._drop()
        self.member_id, self.generation_id, self._assigned = "", -1, ()

    async def _do_wrong(self) -> None:
        own, asked_s = self._identity(), self._world.now_s
        what = self._random.choice(("generation", "member", "sync"))
        if what == "sync":
            wrong = own | {"generation_id": own["generation_id"] + 1}
            answer = await self._ask("SyncGroup", 3, assignments=[], **wrong)
        elif what == "generation":
            answer = await self._ask("Heartbeat", 3, **own | {"generation_id": own["generation_id"] - 1})
        else:
            answer = await self._ask("Heartbeat", 3, **own | {"member_id": "nobody"})
        if answer["error_code"] == NONE and self._is_heard_since(asked_s):
            by, at_s = self._wire.departed.process, self._world.now_s
            self._ledger.wrongs.append(
                f"{self.name}: a wrong {what} was accepted by {by} through {self._server} at {at_s:.3f}"
            )


def _commit_of(partition: int, offset: int, generation_id: int) -> Fields:
    one = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": str(generation_id),
    }
    return {"name": TOPIC, "partitions": [one]}


def partitions_of(assignment: bytes) -> tuple[int, ...]:
    """The partitions that an assignment of a simulated leader names."""
    if not assignment:
        return ()
    _, _, numbers = assignment.decode().split(" ")
    return tuple(int(number) for number in numbers.split(",") if number)
