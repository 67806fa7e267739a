"""Groups of raw members: form a group, join it, leave it. Each member has its own connection."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import msgspec

from benchmarks.measuring.wire import Link, connect
from muster.events.consumer_protocol import encode_assignment, encode_subscription

TOPIC = "orders"
SESSION_TIMEOUT = timedelta(minutes=30)  # the longest that is allowed, since no member heartbeats during a measurement
REBALANCE_TIMEOUT = timedelta(minutes=1)
LOAD_IN_PROGRESS = 14
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
CHECK_INTERVAL_S = 0.005
COORDINATES_WITHIN_S = 60
RETRIABLE = frozenset({LOAD_IN_PROGRESS, 15, 16})

METADATA = encode_subscription([TOPIC])
ASSIGNMENT = encode_assignment({TOPIC: [0]})


class Failed(Exception):
    """A server gave a response with which the load cannot continue."""


class Member(msgspec.Struct, kw_only=True):
    """One member; `instance` is None for a dynamic one."""

    link: Link
    group_id: str
    instance: str | None
    member_id: str = ""
    generation_id: int = -1

    async def join(self) -> Any:
        """Join, and wait until the join phase is over; a new dynamic member needs two steps (KIP-394)."""
        while True:
            answer = await self.ask_to_join()
            code = answer.error_code.value
            if code == MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            elif code in RETRIABLE:
                await asyncio.sleep(0.05)
            elif code == 0:
                self.member_id, self.generation_id = answer.member_id, answer.generation_id
                return answer
            else:
                raise Failed(f"JoinGroup of {self.group_id}: {answer.error_code}")

    async def ask_to_join(self) -> Any:
        """Send one JoinGroup, and return any response."""
        return await self.link.ask(
            "JoinGroup",
            9,
            group_id=self.group_id,
            session_timeout=SESSION_TIMEOUT,
            rebalance_timeout=REBALANCE_TIMEOUT,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": METADATA}],
            reason=None,
        )

    async def sync(self, joined: Any) -> int:
        """Sync; the leader gives all members the same assignment."""
        answer = await self.link.ask(
            "SyncGroup",
            5,
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": member.member_id, "assignment": ASSIGNMENT} for member in joined.members],
        )
        code: int = answer.error_code.value
        return code

    async def settle(self) -> None:
        """Join and sync until the group is stable."""
        while await self.sync(await self.join()) != 0:
            pass

    async def heartbeat(self) -> int:
        answer = await self.link.ask(
            "Heartbeat",
            4,
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        code: int = answer.error_code.value
        return code

    async def follow(self) -> None:
        """Heartbeat until there is a rebalance, and take part in it."""
        while True:
            code = await self.heartbeat()
            if code == REBALANCE_IN_PROGRESS:
                return await self.settle()
            if code != 0:
                raise Failed(f"Heartbeat of {self.group_id}: {code}")

    async def leave(self) -> None:
        member = {"member_id": self.member_id, "group_instance_id": self.instance, "reason": None}
        await self.link.ask("LeaveGroup", 5, group_id=self.group_id, members=[member])
        self.member_id, self.generation_id = "", -1


def new_member(link: Link, group_id: str, number: int, *, static: bool) -> Member:
    return Member(link=link, group_id=group_id, instance=f"instance-{number}" if static else None)


async def form(links: list[Link], group_id: str, *, static: bool) -> list[Member]:
    """Form a stable group with a member on each link."""
    members = [new_member(link, group_id, number, static=static) for number, link in enumerate(links)]
    settled: set[int] = set()

    async def take_part(number: int) -> None:
        # A late member causes another rebalance, so settled members keep heartbeating until all have settled.
        member = members[number]
        await member.settle()
        settled.add(number)
        while len(settled) < len(members):
            await asyncio.sleep(CHECK_INTERVAL_S)
            if await member.heartbeat() == REBALANCE_IN_PROGRESS:
                settled.discard(number)
                await member.settle()
                settled.add(number)

    await asyncio.gather(*(take_part(number) for number in range(len(members))))
    return members


async def links_to(bootstrap: str, count: int) -> list[Link]:
    """Open connections to a server once it coordinates groups: Kafka creates its offsets topic at the first
    FindCoordinator.
    """
    links = list(await asyncio.gather(*(connect(bootstrap) for _ in range(count))))
    deadline = time.monotonic() + COORDINATES_WITHIN_S
    while True:
        answer = await links[0].ask("FindCoordinator", 3, key="bench", key_type=0)
        if answer.error_code.value == 0:
            return links
        if time.monotonic() > deadline:
            raise Failed(f"{bootstrap} does not coordinate: {answer.error_code}")
        await asyncio.sleep(CHECK_INTERVAL_S)
