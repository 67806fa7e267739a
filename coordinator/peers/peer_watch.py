"""Detects at once that another process is gone, by a connection to it, instead of waiting for its session to expire.

Connects to the other processes' addresses and decides what is evidence of an end; others act on it.

When a process exits, its machine closes its connections, and then its address refuses new ones. Only that is evidence,
and only after an established connection. A suspended process, a failed machine and a broken network refuse nothing, so
their sessions decide; an overloaded process closes connections, but accepts new ones. If the verdict is wrong after
all, the process finds itself out of the group and rejoins; the log's fence protects its partitions meanwhile
(runtime/ownership).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from muster.coordinator.peers.sharing import Peer
from muster.coordinator.tasks import BackgroundTasks

CONNECT_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.2
SOON_S: Final = 0.01
"""First pause after a connection broke, because a killed process may still accept for a few milliseconds. It doubles up
to RETRY_S.
"""
REPORT_AGAIN_AFTER_S: Final = 30.0
"""Minimum interval between reports of one process, so that a wrong verdict cannot keep it from its partitions."""


class EndSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of an end, by this process's wall clock: the connection broke, and the next one was refused."""

    link_lost_ms: int
    refused_ms: int


class PeerWatch:
    """Watches the other processes. `ended` receives each process that ended, `failed` the error that ended a watch."""

    def __init__(
        self,
        ended: Callable[[Peer, EndSeen], Awaitable[None]],
        *,
        wall_ms: Callable[[], int],
        failed: Callable[[Exception], None],
    ) -> None:
        self._peer_ended = ended
        self._wall_ms = wall_ms
        self._tasks = BackgroundTasks(failed)
        self._watches: dict[Peer, asyncio.Task[None]] = {}
        self._logged_s: dict[int, float] = {}
        self._connected: set[Peer] = set()

    def watch(self, peers: Iterable[Peer]) -> None:
        """Watch these processes from now on, and no others."""
        wanted = list(peers)
        for peer in [each for each in self._watches if each not in wanted]:
            self._watches.pop(peer).cancel()
        for peer in [each for each in wanted if each not in self._watches]:
            self._watches[peer] = self._tasks.start(self._watch(peer), f"watch-node-{peer.node.node_id}")

    def states(self) -> list[tuple[Peer, bool]]:
        """The other processes, and whether each is connected. Thread-safe."""
        return [(peer, peer in self._connected) for peer in list(self._watches)]

    async def close(self) -> None:
        """Stop watching."""
        await self._tasks.close()

    async def _watch(self, peer: Peer) -> None:
        now_s = asyncio.get_running_loop().time
        host, port = peer.node.host, peer.node.port
        lost_ms: int | None = None  # when the last established connection broke
        pause_s = RETRY_S
        while True:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    reader, writer = await asyncio.open_connection(host, port)
            except ConnectionRefusedError:
                if lost_ms is not None:
                    await self._report_end(peer, EndSeen(link_lost_ms=lost_ms, refused_ms=self._wall_ms()))
                lost_ms = None
            except (OSError, ValueError, OverflowError, TimeoutError):
                pass  # no evidence, nor is an invalid address
            else:
                # Later attempts go to the same IP address: another address of its host name would prove nothing. None:
                # the connection is already lost, e.g. to a process that is just being killed.
                host, port = (writer.get_extra_info("peername") or (host, port))[:2]
                since_s = now_s()
                self._connected.add(peer)
                try:
                    await _until_broken(reader, writer)
                finally:
                    self._connected.discard(peer)
                lost_ms = self._wall_ms()
                if now_s() - since_s > RETRY_S:
                    pause_s = SOON_S
                    continue
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S)

    async def _report_end(self, peer: Peer, seen: EndSeen) -> None:
        now_s, node_id = asyncio.get_running_loop().time(), peer.node.node_id
        if node_id in self._logged_s and now_s - self._logged_s[node_id] < REPORT_AGAIN_AFTER_S:
            return
        self._logged_s[node_id] = now_s
        await self._peer_ended(peer, seen)


async def _until_broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until the other end closes the connection, or it is lost; no data is exchanged."""
    try:
        with suppress(OSError):
            while await reader.read(1024):
                pass
    finally:
        writer.close()
