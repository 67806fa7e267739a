"""Notices at once that another process is gone, by a connection to it, and not only when its session is over.

What belongs here: connections to the other processes' addresses, and what is evidence of an end. What it must not know:
what is done about it.

A process that ends has its connections closed by its machine, and then its address refuses new ones. Only that is
evidence, and only where a connection stood before. A process that is stopped, a machine that is gone and a network that
is cut refuse nothing, so their sessions decide; a full process closes connections, but lets them be made. If it is
wrong after all, the process finds itself out of the group, joins again, and the log's fence has kept its partitions
whole (runtime/ownership).
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
"""The first pause after a connection broke: a process that is killed may accept for some milliseconds more. It doubles
up to RETRY_S."""
GONE_AGAIN_AFTER_S: Final = 30.0
"""A process is not told as gone more often, so that a wrong sign cannot keep it from its partitions."""


class EndSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The signs of an end, by this process's wall clock: the connection broke, and the next one was refused."""

    link_lost_ms: int
    refused_ms: int


class PeerWatch:
    """Watches the other processes. `gone` receives each process that ended, `failed` the error that ended a watch."""

    def __init__(
        self,
        gone: Callable[[Peer, EndSeen], Awaitable[None]],
        *,
        wall_ms: Callable[[], int],
        failed: Callable[[Exception], None],
    ) -> None:
        self._gone = gone
        self._wall_ms = wall_ms
        self._tasks = BackgroundTasks(failed)
        self._watches: dict[Peer, asyncio.Task[None]] = {}
        self._told_s: dict[int, float] = {}
        self._connected: set[Peer] = set()

    def watch(self, peers: Iterable[Peer]) -> None:
        """Watch these processes from now on, and no others."""
        wanted = list(peers)
        for peer in [each for each in self._watches if each not in wanted]:
            self._watches.pop(peer).cancel()
        for peer in [each for each in wanted if each not in self._watches]:
            self._watches[peer] = self._tasks.start(self._watch(peer), f"watch-node-{peer.node.node_id}")

    def states(self) -> list[tuple[Peer, bool]]:
        """The other processes, and whether the connection to each stands. Thread-safe."""
        return [(peer, peer in self._connected) for peer in list(self._watches)]

    async def close(self) -> None:
        """Watch nobody any more."""
        await self._tasks.close()

    async def _watch(self, peer: Peer) -> None:
        now_s = asyncio.get_running_loop().time
        host, port = peer.node.host, peer.node.port
        lost_ms: int | None = None  # when the last connection that stood broke
        pause_s = RETRY_S
        while True:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    reader, writer = await asyncio.open_connection(host, port)
            except ConnectionRefusedError:
                if lost_ms is not None:
                    await self._tell(peer, EndSeen(link_lost_ms=lost_ms, refused_ms=self._wall_ms()))
                lost_ms = None
            except (OSError, ValueError, OverflowError, TimeoutError):
                pass  # no evidence, and so is an address that is none
            else:
                # Later attempts go to where this process was: another address of its name would prove nothing.
                # None: the connection is lost already, as one to a process that is killed at this moment.
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

    async def _tell(self, peer: Peer, seen: EndSeen) -> None:
        now_s, node_id = asyncio.get_running_loop().time(), peer.node.node_id
        if node_id in self._told_s and now_s - self._told_s[node_id] < GONE_AGAIN_AFTER_S:
            return
        self._told_s[node_id] = now_s
        await self._gone(peer, seen)


async def _until_broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until a connection is closed by its other end, or lost; nothing is said on it."""
    try:
        with suppress(OSError):
            while await reader.read(1024):
                pass
    finally:
        writer.close()
