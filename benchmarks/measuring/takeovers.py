"""Groups whose coordinator is killed, and how long each group then waits for a response, by kind of request."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from benchmarks.measuring.groups import RETRIABLE, TOPIC, Failed, Member, form
from benchmarks.measuring.wire import Link, connect

SIZE = 10
LANES = 4
ASK_EVERY_S = 0.1
"""As clients do by default (retry.backoff.ms)."""

ASKED_GROUPS = 100
"""The number of groups that are measured: with more, the load itself would be measured."""

KEYS_AT_ONCE = 100
ANSWERED_WITHIN_S = 120


class Coordinated(msgspec.Struct, frozen=True):
    """Groups of static members, and the address at which they were formed."""

    address: str
    groups: Sequence[Sequence[Member]]


async def form_at_one(bootstrap: str, prefix: str, *, groups: int) -> Coordinated:
    """Form this many stable groups of ten with the same coordinator: that of the first one."""
    asked = await connect(bootstrap)
    address = await _coordinator_of(asked, f"{prefix}-0")
    group_ids: list[str] = []
    tried = 0
    while len(group_ids) < groups:
        keys = [f"{prefix}-{number}" for number in range(tried, tried + KEYS_AT_ONCE)]
        tried += KEYS_AT_ONCE
        group_ids += [key for key, at in (await coordinators(asked, keys)).items() if at == address]
    asked.close()
    return Coordinated(address, await _form(dict.fromkeys(group_ids[:groups], address)))


async def form_through(bootstrap: str, group_ids: Sequence[str]) -> Coordinated:
    """Form stable groups of ten with these ids, each at the coordinator that this address names."""
    asked = await connect(bootstrap)
    for group_id in group_ids[:1]:
        await _coordinator_of(asked, group_id)
    at = await coordinators(asked, group_ids)
    asked.close()
    return Coordinated(bootstrap, await _form({group_id: str(address) for group_id, address in at.items()}))


async def _form(addresses: Mapping[str, str]) -> list[list[Member]]:
    """Form groups, by id, whose members join at these addresses."""
    formed: list[list[Member]] = []

    async def lane(number: int) -> None:
        links: dict[str, list[Link]] = {}
        for group_id in list(addresses)[number::LANES]:
            address = addresses[group_id]
            if address not in links:
                links[address] = [await connect(address) for _ in range(SIZE)]
            formed.append(await form(links[address], group_id, static=True))
        for link in itertools.chain(*links.values()):
            link.close()

    await asyncio.gather(*(lane(number) for number in range(LANES)))
    return formed


async def coordinators(asked: Link, group_ids: Sequence[str]) -> dict[str, str | None]:
    """The address of each group's coordinator; None: there is currently none."""
    found: dict[str, str | None] = {}
    for at in range(0, len(group_ids), KEYS_AT_ONCE):
        keys = list(group_ids[at : at + KEYS_AT_ONCE])
        answer = await asked.ask("FindCoordinator", 4, key_type=0, coordinator_keys=keys)
        found |= {
            each.key: None if each.error_code.value else f"{each.host}:{each.port}" for each in answer.coordinators
        }
    return found


async def _coordinator_of(asked: Link, group_id: str) -> str:
    deadline = time.monotonic() + ANSWERED_WITHIN_S
    while (found := (await coordinators(asked, [group_id]))[group_id]) is None:
        if time.monotonic() > deadline:
            raise Failed("nobody coordinates")
        await asyncio.sleep(ASK_EVERY_S)
    return found


async def heartbeat(link: Link, group: Sequence[Member]) -> int:
    """Send a heartbeat of the group's first member; REBALANCE_IN_PROGRESS would be an error here."""
    return await msgspec.structs.replace(group[0], link=link).heartbeat()


async def restart(link: Link, group: Sequence[Member]) -> int:
    """Send the JoinGroup of the second member's restarted process, which must not cause a rebalance (KIP-345)."""
    member = msgspec.structs.replace(group[1], link=link, member_id="")
    answer = await member.ask_to_join()
    code: int = answer.error_code.value
    if code == 0 and answer.generation_id != member.generation_id:
        raise Failed(f"{member.group_id} rebalanced")
    return code


async def commit(link: Link, group: Sequence[Member]) -> int:
    """Commit an offset of the third member."""
    member = group[2]
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    answer = await link.ask(
        "OffsetCommit",
        8,
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.instance,
        topics=[{"name": TOPIC, "partitions": [partition]}],
    )
    code: int = answer.topics[0].partitions[0].error_code.value
    return code


Ask = Callable[[Link, Sequence[Member]], Awaitable[int]]


class Outage:
    """Sends requests of groups, from when their coordinator was killed until each gets a good response."""

    def __init__(self, survivor: str, coordinated: Coordinated) -> None:
        self._survivor = survivor
        asked = coordinated.groups[:: max(1, len(coordinated.groups) // ASKED_GROUPS)]
        self._groups = {group[0].group_id: group for group in asked}
        self._found: Mapping[str, str | None] = {}

    async def waits_ms(self, asks: Mapping[str, Ask], *, since_s: float) -> dict[str, list[float]]:
        """The wait of each group since `since_s` (time.perf_counter), by kind of request.

        Raises ExceptionGroup of Failed if a group gets an error that a client would show.
        """
        waits: dict[str, list[float]] = {kind: [] for kind in asks}
        unanswered = dict.fromkeys(self._groups, len(asks))
        looking = asyncio.create_task(self._look(unanswered))

        async def until_answered(kind: str, ask: Ask, group_id: str) -> None:
            links: dict[str, Link] = {}  # separate links, since requests on one connection wait for each other
            while (code := await self._asked(ask, group_id, links)) != 0:
                if code is not None and code not in RETRIABLE:
                    raise Failed(f"{kind} of {group_id}: error {code}")
                await asyncio.sleep(ASK_EVERY_S)
            for link in links.values():
                link.close()
            waits[kind].append((time.perf_counter() - since_s) * 1_000)
            unanswered[group_id] -= 1

        try:
            async with asyncio.timeout(ANSWERED_WITHIN_S), asyncio.TaskGroup() as tasks:
                for kind, ask in asks.items():
                    for group_id in self._groups:
                        tasks.create_task(until_answered(kind, ask, group_id))
        finally:
            looking.cancel()
        return waits

    async def _look(self, unanswered: Mapping[str, int]) -> None:
        link = await connect(self._survivor)
        while True:
            self._found = await coordinators(link, [group_id for group_id, left in unanswered.items() if left])
            await asyncio.sleep(ASK_EVERY_S)

    async def _asked(self, ask: Ask, group_id: str, links: dict[str, Link]) -> int | None:
        """The error in the response; None: there was no response."""
        address = self._found.get(group_id)
        if address is None:
            return None
        try:
            if address not in links:
                links[address] = await connect(address)
            return await ask(links[address], self._groups[group_id])
        except OSError:
            links.pop(address, None)
            return None
