"""Commits that were relayed with a shadow's identity and have no response yet.

When a shadow is withdrawn, the broker refuses commits with its identity, and a member would take that for its own
removal. So the group's commits are paused first, until those in flight are answered.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from weakref import WeakSet

from muster.coordinator.upstream.shadows import WAIT_TIMEOUT_MS
from muster.events.ids import GroupId

COMMIT_TIMEOUT_S = 5.0
"""How long `paused` waits for responses: a broker slower than this has worse problems than a refused commit."""


class InFlightCommits:
    """Tracks relayed commits from request to response, or to the loss of their connection."""

    def __init__(self, *, resume_timeout_s: float = WAIT_TIMEOUT_MS / 1000) -> None:
        self._resume_timeout_s = resume_timeout_s
        self._commits: WeakSet[_Commit] = WeakSet()
        self._paused: Counter[GroupId] = Counter()
        self._resumed = asyncio.Event()

    def is_paused(self, group_id: GroupId) -> bool:
        """Return whether the group's commits have to wait (`wait_resumed`)."""
        return group_id in self._paused

    async def wait_resumed(self, group_id: GroupId) -> None:
        """Wait until the group's commits are not paused. Raises TimeoutError."""
        async with asyncio.timeout(self._resume_timeout_s):
            while self.is_paused(group_id):
                await self._resumed.wait()

    def track(self, group_id: GroupId, broker_lost: asyncio.Future[None]) -> Callable[[bytes], bytes]:
        """Track a commit until its response, or until `broker_lost` completes.

        A client that disconnects leaves its commit in flight. Returns a function that passes the response through.
        """
        commit = _Commit(group_id, broker_lost)
        self._commits.add(commit)
        return commit.answered

    @contextlib.asynccontextmanager
    async def paused(self, group_id: GroupId) -> AsyncIterator[None]:
        """Pause the group's commits during the block.

        The block begins when those in flight are answered, after `COMMIT_TIMEOUT_S` at the latest.
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
        """Note the response, and return it unchanged."""
        self._broker_lost.remove_done_callback(self._over)
        self._over()
        return payload

    def _over(self, _lost: asyncio.Future[None] | None = None) -> None:
        if not self.done.done():
            self.done.set_result(None)
