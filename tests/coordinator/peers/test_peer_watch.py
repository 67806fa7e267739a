"""Evidence that another process is gone, and observations that are none."""

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import pytest

from muster.coordinator.cluster import Node
from muster.coordinator.peers import peer_watch
from muster.coordinator.peers.peer_watch import EndSeen, PeerWatch
from muster.coordinator.peers.sharing import MemberIdentity, Peer
from tests.coordinator.peers.addresses import ProcessAddress, listening
from tests.waiting import until

ATTEMPTS: Final = 5
"""Attempts after which weak evidence still proves nothing."""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_watch, "RETRY_S", 0.01)


def peer_at(port: int, *, host: str = "127.0.0.1", member_id: str = "m-1") -> Peer:
    node = Node(node_id=1, host=host, port=port)
    return Peer(node=node, member=MemberIdentity(member_id=member_id, group_instance_id="muster-1"))


class Watched:
    def __init__(self) -> None:
        self.gone: list[str] = []
        self.failures: list[Exception] = []
        self.seen: list[EndSeen] = []
        self._wall_ms = itertools.count(1)
        self.watch = PeerWatch(self._gone, wall_ms=lambda: next(self._wall_ms), failed=self.failures.append)

    async def _gone(self, peer: Peer, seen: EndSeen) -> None:
        self.gone.append(peer.member.member_id)
        self.seen.append(seen)


@asynccontextmanager
async def watching(*peers: Peer) -> AsyncIterator[Watched]:
    watched = Watched()
    watched.watch.watch(peers)
    try:
        yield watched
    finally:
        await watched.watch.close()
        assert watched.failures == []


def has_accepted(address: ProcessAddress, count: int) -> bool:
    """True after this many accepted connections, the last of which is open."""
    return (address.accepted, address.connections) == (count, 1)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that refused a connection, one for each attempt."""
    found: list[str] = []
    connect = asyncio.open_connection

    async def counted(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await connect(host, port)
        except ConnectionRefusedError:
            found.append(host)
            raise

    monkeypatch.setattr(asyncio, "open_connection", counted)
    return found


async def test_a_connection_that_broke_to_an_address_that_refuses(
    refused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is gone; that is reported once, however often its address refuses afterwards.

    The process at that address is meant, not another one with its name.
    """
    monkeypatch.setattr(peer_watch, "REPORT_AGAIN_AFTER_S", 0)
    async with listening() as address, watching(peer_at(address.port, host="localhost")) as watched:
        await until(lambda: address.connections == 1)
        address.end()
        await until(lambda: watched.gone == ["m-1"])
        await until(lambda: len(refused) > ATTEMPTS)
        assert watched.gone == ["m-1"]
        assert watched.seen == [EndSeen(link_lost_ms=1, refused_ms=2)]
        assert set(refused) == {"127.0.0.1"}


async def test_a_connection_that_a_dying_process_accepts_and_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel closes a killed process's connections before its address: a client that connects in between is reset.

    Then it is not known which process the connection was to.
    """
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect
    listener = socket.create_server(("127.0.0.1", 0))

    async def connect_and_be_reset(connecting: socket.socket, address: tuple[str, int]) -> None:
        await connect(connecting, address)
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        listener.close()
        monkeypatch.setattr(loop, "sock_connect", connect)
        await until(lambda: not _has_peer(connecting))

    monkeypatch.setattr(loop, "sock_connect", connect_and_be_reset)
    async with watching(peer_at(listener.getsockname()[1])) as watched:
        await until(lambda: watched.gone == ["m-1"] or watched.failures)


def _has_peer(connecting: socket.socket) -> bool:
    try:
        connecting.getpeername()
    except OSError:
        return False
    return True


async def test_an_address_that_refuses_from_the_beginning_proves_nothing(refused: list[str]) -> None:
    """It may only be meant for clients."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with watching(peer_at(port)) as watched:
        await until(lambda: len(refused) > ATTEMPTS)
        assert watched.gone == []


async def test_a_process_that_hangs_up_is_not_gone() -> None:
    """Idle connections are closed, and full processes close new ones; both are tried again."""
    async with listening() as address, watching(peer_at(address.port)) as watched:
        for n in range(1, ATTEMPTS):
            await until(partial(has_accepted, address, n))
            address.hang_up()
        await until(lambda: address.connections == 1)
        await until(lambda: watched.watch.states() == [(peer_at(address.port), True)])
        assert watched.gone == []
    async with listening(full=True) as address, watching(peer_at(address.port)) as watched:
        await until(lambda: address.accepted > ATTEMPTS)
        assert watched.gone == []


async def test_a_missing_response_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that failed after a connection was made, or a name that no longer resolves: only sessions decide."""
    attempts = 0

    async def cut(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        nonlocal attempts
        attempts += 1
        if attempts % 2:
            raise socket.gaierror("Name or service not known")
        await asyncio.sleep(3_600)
        raise AssertionError

    async with listening() as address, watching(peer_at(address.port)) as watched:
        await until(lambda: address.connections == 1)
        monkeypatch.setattr(peer_watch, "CONNECT_TIMEOUT_S", 0.01)
        monkeypatch.setattr(asyncio, "open_connection", cut)
        address.hang_up()
        await until(lambda: attempts > ATTEMPTS)
        assert watched.gone == []


async def test_a_process_is_gone_once_in_a_while(refused: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash loop, or an address that refuses now and then, does not lose its share again and again."""
    async with listening() as address, watching(peer_at(address.port)) as watched:
        for _ in range(3):
            await until(lambda: address.connections == 1)
            refused.clear()
            address.end()
            await until(lambda: len(refused) > 1)
            await address.listen()
        assert watched.gone == ["m-1"]
        monkeypatch.setattr(peer_watch, "REPORT_AGAIN_AFTER_S", 0)
        await until(lambda: address.connections == 1)
        address.end()
        await until(lambda: watched.gone == ["m-1", "m-1"])


async def test_only_sharing_processes_are_watched(refused: list[str]) -> None:
    """A restarted process is another one: it is identified by its current member id."""
    async with listening() as address, watching(peer_at(address.port)) as watched:
        await until(lambda: address.connections == 1)
        watched.watch.watch([peer_at(address.port, member_id="m-2")])
        await until(lambda: address.accepted == 2 and address.connections == 1)
        address.end()
        await until(lambda: watched.gone == ["m-2"])
        watched.watch.watch([])
        await until(lambda: not watched.watch._tasks.running)


async def test_an_invalid_address_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may advertise any address."""
    connect, tried = asyncio.open_connection, list[int]()

    async def noted(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tried.append(port)
        return await connect(host, port)

    monkeypatch.setattr(asyncio, "open_connection", noted)
    async with watching(peer_at(70_000)) as watched:
        await until(lambda: len(tried) > 1 or watched.failures)
        assert not watched.failures
