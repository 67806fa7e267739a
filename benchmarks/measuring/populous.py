"""Memory: many members that really join owned groups; many idle connections."""

import asyncio
import itertools

from benchmarks.measuring.groups import Failed, Member, links_to, new_member
from benchmarks.measuring.wire import Link, connect

SIZE = 100
LANES = 4
CONNECTS_AT_ONCE = 50


async def populate(bootstrap: str, prefix: str, *, members: int) -> int:
    """Form groups of 100 dynamic members, four at a time, and close the connections; return how many members joined."""
    lanes = [await links_to(bootstrap, SIZE) for _ in range(LANES)]
    groups = members // SIZE
    formed: list[list[Member]] = []

    async def lane(number: int) -> None:
        for group in range(number, groups, LANES):
            members_of_group = await _form(lanes[number], f"{prefix}-{group}")
            formed.append(members_of_group)

    await asyncio.gather(*(lane(number) for number in range(LANES)))
    if any(await asyncio.gather(*(member.heartbeat() for member in formed[0]))):
        raise Failed("joining took so long that the first members have expired")
    for link in itertools.chain.from_iterable(lanes):
        link.close()
    return groups * SIZE


async def _form(links: list[Link], group_id: str) -> list[Member]:
    """All members join at once, so the initial delay gathers them; a late one makes all settle again."""
    members = [new_member(link, group_id, number, static=False) for number, link in enumerate(links)]
    await asyncio.gather(*(member.settle() for member in members))
    while any(await asyncio.gather(*(member.heartbeat() for member in members))):
        await asyncio.gather(*(_again(member) for member in members))
    return members


async def _again(member: Member) -> None:
    if await member.heartbeat() != 0:
        await member.settle()


async def idle_connections(bootstrap: str, count: int) -> list[Link]:
    """Open connections that send one ApiVersions, as clients do, and then are idle; the caller closes them."""
    links: list[Link] = []
    while len(links) < count:
        some = min(CONNECTS_AT_ONCE, count - len(links))
        links += await asyncio.gather(*(connect(bootstrap) for _ in range(some)))
        answers = await asyncio.gather(
            *(
                link.ask("ApiVersions", 3, client_software_name="bench", client_software_version="1")
                for link in links[-some:]
            )
        )
        if any(answer.error_code.value for answer in answers):
            raise Failed(f"{bootstrap} does not say which APIs it has")
    return links
