"""Commits that were given to a broker under a shadow's name, and are not answered yet.

A shadow that steps out for a moment takes its name along: the broker would refuse what comes a moment too late, and the
member would take that as its own removal. So commits of that group are held back first, and those under way waited for.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from weakref import WeakSet

from muster.events.ids import GroupId

COMMIT_TIMEOUT_S = 5.0
"""A broker that takes longer to answer a commit has more trouble than one that is refused."""


RESUME_TIMEOUT_S = 20.0
"""As long as a shadow is waited for."""


class InFlightCommits:
    """See the module. A commit is over when it was answered, or when the connection that it was sent on is lost."""

    def __init__(self, *, resume_timeout_s: float = RESUME_TIMEOUT_S) -> None:
        self._resume_timeout_s = resume_timeout_s
        self._commits: WeakSet[_Commit] = WeakSet()
        self._paused: Counter[GroupId] = Counter()
        self._resumed = asyncio.Event()

    def is_paused(self, group_id: GroupId) -> bool:
        """Whether the group's commits have to wait (`wait_resumed`)."""
        return group_id in self._paused

    async def wait_resumed(self, group_id: GroupId) -> None:
        """Return when the group's commits need not wait any more. Raises TimeoutError."""
        async with asyncio.timeout(self._resume_timeout_s):
            while self.is_paused(group_id):
                await self._resumed.wait()

    def track(self, group_id: GroupId, broker_lost: asyncio.Future[None]) -> Callable[[bytes], bytes]:
        """A commit is given to the broker, whose connection is lost when `broker_lost` is done: that the client is gone
        says nothing of what it has sent. Returns a Rewrite of the commit's answer that takes note of it.
        """
        commit = _Commit(group_id, broker_lost)
        self._commits.add(commit)
        return commit.answered

    @contextlib.asynccontextmanager
    async def paused(self, group_id: GroupId) -> AsyncIterator[None]:
        """No commit of the group is under way while the block runs, but what a broker has not answered in
        `COMMIT_TIMEOUT_S`.
        """
        self._paused[group_id] += 1
        try:
            unanswered = [each.done for each in self._commits if each.group_id == group_id and not each.done.done()]
            if unanswered:
                await asyncio.wait(unanswered, timeout=COMMIT_TIMEOUT_S)
            yield
        finally:
            self._paused[group_id] -= 1
            if not self._paused[group_id]:
                del self._paused[group_id]
            self._resumed.set()
            self._resumed = asyncio.Event()


class _Commit:
    def __init__(self, group_id: GroupId, broker_lost: asyncio.Future[None]) -> None:
        self.group_id = group_id
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._broker_lost = broker_lost
        broker_lost.add_done_callback(self._over)

    def answered(self, payload: bytes) -> bytes:
        """The answer is not changed."""
        self._broker_lost.remove_done_callback(self._over)
        self._over()
        return payload

    def _over(self, _lost: asyncio.Future[None] | None = None) -> None:
        if not self.done.done():
            self.done.set_result(None)
