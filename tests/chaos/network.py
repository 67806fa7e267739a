"""The network of the processes, the brokers and the clients: every connection goes through a relay here.

It decides what passes between any two of them; knows nothing of the requests. Each address of a party has a second one
before it, which relays to it. The process that connected is found by the pid of the other end, so one relay before a
broker is enough for all, and the connections between any two can be cut or slowed down.

* While two parties are cut off nothing passes in either direction, and neither is notified (`drills/service/proxy.py`).
  New connections are accepted and get no response.
* A party that is *gone* refuses connections, like a machine without a listener; existing connections are reset.

Responses that name brokers are rewritten, by the sidecar's own rules, so that no client can bypass the relays.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from muster.coordinator.sidecar.messages.rewriting import AnswerRewriter
from muster.drills.service.proxy import Streams, Weather
from muster.drills.service.proxy import relay as pass_on
from tests.brokers.broker import HOST, lasting_ports

CLIENTS: Final = "clients"
"""Any process that is not known by its pid."""

CHECK_INTERVAL_S: Final = 0.05

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with which a connection ends by a reset."""


class _Relay(msgspec.Struct, eq=False):
    """An address that relays. `name`: the party behind it; `rewrites`: its responses name brokers."""

    name: str
    port: int
    target: int
    rewrites: bool
    server: asyncio.Server | None = None
    connections: set[asyncio.StreamWriter] = msgspec.field(default_factory=set)


class Network:
    """See the module. Close it in the end."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        """The pids of the processes, by name; to be set after starting one."""
        self._looks = _Looks(self.pids)
        self._ways: dict[frozenset[str], Weather] = {}
        self._relays: dict[int, _Relay] = {}
        """The relays, by the port behind each."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._rewriter = AnswerRewriter(self._address_of, {})

    async def add(self, name: str, ports: Iterable[int], *, rewrites: bool) -> Mapping[int, int]:
        """Put relays before these ports of a party; return the ports to use instead."""
        wanted = list(ports)
        for target, port in zip(wanted, lasting_ports(len(wanted)), strict=True):
            self._relays[target] = _Relay(name, port, target, rewrites)
        await self.serve(name)
        return {target: self._relays[target].port for target in wanted}

    async def serve(self, name: str) -> None:
        """Accept connections for a party."""
        for relay in self._of(name):
            if relay.server is None:
                relay.server = await asyncio.start_server(self._taking(relay), HOST, relay.port)

    def refuse(self, name: str) -> None:
        """Take a party down: reset its connections, and refuse new ones."""
        for relay in self._of(name):
            if relay.server is not None:
                relay.server.close()
                relay.server = None
            for writer in list(relay.connections):
                _reset(writer)

    def way(self, one: str, other: str) -> Weather:
        return self._ways.setdefault(frozenset((one, other)), Weather())

    async def close(self) -> None:
        for name in {relay.name for relay in self._relays.values()}:
            self.refuse(name)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- relaying -----------------------------------------------------------------------------------

    def _of(self, name: str) -> list[_Relay]:
        return [relay for relay in self._relays.values() if relay.name == name]

    def _address_of(self, _node_id: int, host: str, port: int) -> tuple[str, int]:
        relay = self._relays.get(port)
        return (host, port) if relay is None else (HOST, relay.port)

    def _taking(self, relay: _Relay) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(relay, (reader, writer)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return take

    async def _serve(self, relay: _Relay, down: Streams) -> None:
        writers = [down[1]]
        relay.connections.add(down[1])
        try:
            way = self.way(await self._looks.name_at(down[1].get_extra_info("peername")[1], relay.port), relay.name)
            await way.passable()
            up = await asyncio.open_connection(HOST, relay.target)
            writers.append(up[1])
            relay.connections.add(up[1])
            await pass_on(down, up, way, self._rewriter if relay.rewrites else None)
        except OSError:
            pass
        finally:
            for writer in writers:
                relay.connections.discard(writer)
                writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


class _Looks:
    """Finds the process at the other end of a connection, from this host's tables; each look answers all pending
    lookups.

    A look takes some milliseconds, and a broker that returns has hundreds of connections at once.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._look: asyncio.Task[Mapping[tuple[int, int], str]] | None = None

    async def name_at(self, port: int, to: int) -> str:
        """The name of the process that is connected from a port to another one, or CLIENTS."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._looked())
        return (await asyncio.shield(self._look)).get((port, to), CLIENTS)

    async def _looked(self) -> Mapping[tuple[int, int], str]:
        await asyncio.sleep(CHECK_INTERVAL_S)  # lookups that arrive meanwhile wait for this one, too
        pids, self._look = dict(self._pids), None
        return await asyncio.to_thread(_names_of_connections, pids)


def _names_of_connections(pids: Mapping[str, int]) -> Mapping[tuple[int, int], str]:
    """Return the names of the processes, by both ports of each of their connections. Linux only."""
    names = {inode: name for name, pid in pids.items() for inode in _sockets_of(pid)}
    found = {}
    with Path("/proc/net/tcp").open(encoding="ascii") as table:
        next(table)
        for line in table:
            fields = line.split()
            if fields[9] in names:
                found[_port_in(fields[1]), _port_in(fields[2])] = names[fields[9]]
    return found


def _port_in(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _sockets_of(pid: int) -> Iterator[str]:
    """The inodes of a process's sockets."""
    with suppress(OSError):  # it has ended
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    yield target.removeprefix("socket:[").removesuffix("]")
