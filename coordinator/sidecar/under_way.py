"""Commits that were given to a broker under a shadow's name, and are not answered yet.

A shadow that steps out for a moment takes its name along: the broker would refuse what comes a moment too late, and the
member would take that as its own removal. So commits of that group are held back first, and those under way waited for.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from weakref import WeakSet

from events.ids import GroupId

WAIT_LIMIT_S = 5.0
"""A broker that takes longer to answer a commit has more trouble than one that is refused."""


class CommitsUnderWay:
    """See the module. It forgets commits whose connections are gone."""

    def __init__(self) -> None:
        self._commits: WeakSet[_Commit] = WeakSet()
        self._held_back: Counter[GroupId] = Counter()
        self._let_go = asyncio.Event()

    def is_held_back(self, group_id: GroupId) -> bool:
        """Whether the group's commits have to wait (`until_let_go`)."""
        return group_id in self._held_back

    async def until_let_go(self, group_id: GroupId) -> None:
        """Return when the group's commits need not wait any more."""
        while self.is_held_back(group_id):
            await self._let_go.wait()

    def given(self, group_id: GroupId, is_open: Callable[[], bool]) -> Callable[[bytes], bytes]:
        """A commit is given to the broker; `is_open`: whether its connection still is. Returns a Rewrite of its answer
        that takes note of it.
        """
        commit = _Commit(group_id, is_open)
        self._commits.add(commit)
        return commit.answered

    @contextlib.asynccontextmanager
    async def held_back(self, group_id: GroupId) -> AsyncIterator[None]:
        """No commit of the group is under way while the block runs."""
        self._held_back[group_id] += 1
        try:
            unanswered = [each.done for each in self._commits if each.group_id == group_id and each.is_open()]
            if unanswered:
                await asyncio.wait(unanswered, timeout=WAIT_LIMIT_S)
            yield
        finally:
            self._held_back[group_id] -= 1
            if not self._held_back[group_id]:
                del self._held_back[group_id]
            self._let_go.set()
            self._let_go = asyncio.Event()


class _Commit:
    def __init__(self, group_id: GroupId, is_open: Callable[[], bool]) -> None:
        self.group_id = group_id
        self.is_open = is_open
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, payload: bytes) -> bytes:
        """The answer is not changed."""
        self.done.set_result(None)
        return payload
