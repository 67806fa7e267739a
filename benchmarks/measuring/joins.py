"""An eleventh member joins a stable group of ten: from its join until all eleven have their assignment."""

import asyncio
import time

from benchmarks.measuring.groups import Failed, form, links_to, new_member

SIZE = 10


class JoiningGroup:
    """A group on one server; `round` makes one measurement, after which the eleventh member leaves and the ten settle
    again.
    """

    def __init__(self, bootstrap: str, group_id: str, *, static: bool) -> None:
        self._bootstrap = bootstrap
        self._group_id = group_id
        self._static = static

    async def form(self) -> None:
        links = await links_to(self._bootstrap, SIZE + 1)
        self._members = await form(links[:SIZE], self._group_id, static=self._static)
        self._eleventh = new_member(links[SIZE], self._group_id, SIZE, static=self._static)

    async def round(self) -> float:
        """Measure once; return the time in ms."""
        started = time.perf_counter()
        await asyncio.gather(self._eleventh.settle(), *(member.follow() for member in self._members))
        elapsed_ms = (time.perf_counter() - started) * 1000
        await self._eleventh.leave()
        await asyncio.gather(*(member.follow() for member in self._members))
        codes = await asyncio.gather(*(member.heartbeat() for member in self._members))
        if any(codes):
            raise Failed(f"the ten did not settle: {codes}")
        return elapsed_ms
