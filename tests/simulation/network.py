"""A simulated network: connections that deliver bytes in order with a delay, datagrams that may be lost, and cuts.

Decides how long things take, and what is lost; knows nothing of the bytes. A process connects and listens through its
event loop, as on a machine (`Sockets`). A host name resolves to the address at which a process listens under it, the
last one if several do, as with an orchestrator; a name without a listener refuses connections.

A cut is between two processes. While it lasts nothing gets through, and neither end is notified; connections across it
are reset when it heals. A killed process resets its connections, unless they are cut. The machine accepts connections
for a paused process.
"""

import asyncio
import errno
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import msgspec

from tests.simulation.world import SimulatedLoop, World

T = TypeVar("T")

LATENCY_S = (0.000_2, 0.002)
SLOW_SHARE = 0.01
SLOW_S = (0.05, 0.8)


def latency_s(random: Random) -> float:
    """The delivery time of a message."""
    return random.uniform(*(SLOW_S if random.random() < SLOW_SHARE else LATENCY_S))


class Departure(msgspec.Struct, frozen=True):
    """The time when bytes left the process that made them, and the partitions that it served then.

    `passed_s`: when they left the other end, which may only have passed them on. `before`: the departure of the bytes
    before them that it has passed on; it may continue to answer in that process's name.
    """

    at_s: float
    process: str
    serves: frozenset[int]
    passed_s: float
    before: "Departure | None" = None
    loads: frozenset[int] = frozenset()
    """The partitions that it is taking over: until then it accepts every heartbeat, as Kafka does."""


NOBODY: Final = frozenset[int]()

_SOCKET = SimpleNamespace(setsockopt=lambda *_: None)


class Wire(asyncio.Transport):
    """One end of a connection. `departed`: the departure of the last bytes that arrived here."""

    def __init__(self, network: "Network", sockets: "Sockets", peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "socket": _SOCKET})
        self._network = network
        self.loop = sockets.loop
        self.name = sockets.name
        self.protocol: asyncio.Protocol
        self.other: Wire
        self.serves, self.loads = sockets.serves, sockets.loads
        self.departed = Departure(0.0, "", NOBODY, 0.0)
        self._from: Departure | None = None
        self._from_before: Departure | None = None
        self._random = network.new_lots()
        self._arrives_s = 0.0
        self._is_closed = False
        self._is_told = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closed:
            self._network.carry(self, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def passes_on(self, departed: Departure) -> None:
        """Make the next bytes to be written count as another process's, with this departure."""
        self._from = self._from_before = departed

    def departing(self, now_s: float) -> Departure:
        """The departure of bytes written now."""
        made, self._from = self._from, None
        if made is None:
            return Departure(now_s, self.name, self.serves(), now_s, self._from_before, self.loads())
        return msgspec.structs.replace(made, passed_s=now_s)

    def delay_s(self, now_s: float) -> float:
        """The delay of bytes sent now: they arrive after those sent before."""
        self._arrives_s = max(self._arrives_s, now_s + latency_s(self._random))
        return self._arrives_s - now_s

    def deliver(self, data: bytes, departed: Departure) -> None:
        if not self._is_closed:
            self.departed = departed
            self.protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Close the connection, and notify the other end unless it is cut off."""
        if not self._is_closed:
            self._is_closed = True
            self._tell(None)
            self._network.hang_up(self)

    def abort(self) -> None:
        self.close()

    def reset(self) -> None:
        """The other end is gone."""
        self._is_closed = True
        self._tell(ConnectionResetError("reset by peer"))

    def _tell(self, error: Exception | None) -> None:
        if not self._is_told and not self.loop.is_dead:
            self._is_told = True
            self.loop.call_soon(lambda: self.protocol.connection_lost(error))

    def pause_reading(self) -> None:
        """Do nothing: no process sends that much. So with the following methods."""

    def resume_reading(self) -> None: ...

    def is_reading(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Sockets:
    """The network as one process has it. `address`: its machine's. `serves`: the partitions that it serves."""

    def __init__(
        self,
        network: "Network",
        loop: SimulatedLoop,
        name: str,
        address: str,
        serves: Callable[[], frozenset[int]],
    ) -> None:
        self._network = network
        self.loop = loop
        self.name = name
        self.address = address
        self.serves = serves
        self.loads: Callable[[], frozenset[int]] = lambda: NOBODY

    async def connect(
        self, new_protocol: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple["Wire", asyncio.Protocol]:
        """Connect; ConnectionRefusedError without a listener, and no response through a cut."""
        return await self._network.connect(self, new_protocol, host, port)

    def listen(self, new_protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> "Listener":
        """Listen at this machine's address, which is the host's from now on."""
        return self._network.listen(self, new_protocol, host, port)


class Listener:
    """A listening socket, as a server of asyncio's."""

    def __init__(
        self,
        network: "Network",
        sockets: Sockets,
        new_protocol: Callable[[], asyncio.Protocol],
        at: tuple[str, int],
    ) -> None:
        self._network = network
        self.owner = sockets
        self._new_protocol = new_protocol
        self.at = at
        self.sockets = [SimpleNamespace(getsockname=lambda: at)]

    def accept(self, wire: Wire) -> None:
        """Have the process accept, when its loop comes to it."""

        def accepted() -> None:
            wire.protocol = self._new_protocol()
            wire.protocol.connection_made(wire)

        self.owner.loop.call_soon(accepted)

    def close(self) -> None:
        self._network.listens_no_more(self)


class Network:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cuts: set[frozenset[str]] = set()
        self._wires: list[Wire] = []
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._addresses: dict[str, list[str]] = {}
        """The addresses that were listened at under a host's name, the latest last."""
        self.lost_answers = 0

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cuts

    def cut(self, one: str, other: str) -> None:
        self._cuts.add(frozenset((one, other)))

    def heal(self, one: str, other: str) -> None:
        """Heal a cut; connections across it are reset."""
        self._cuts.discard(frozenset((one, other)))
        for wire in list(self._wires):
            if {wire.name, wire.other.name} == {one, other}:
                self._reset(wire)

    def new_lots(self) -> Random:
        """A random generator for one route only, so that the order of simultaneous events elsewhere does not matter."""
        return Random(self._world.random.getrandbits(64))

    def listen(self, sockets: Sockets, new_protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> Listener:
        """Have a process listen; it takes the host's name. Raises OSError when another one has the address."""
        at = (sockets.address, port)
        if at in self._listeners:
            raise OSError(errno.EADDRINUSE, "address in use")
        self._addresses.setdefault(host, []).append(sockets.address)
        listener = self._listeners[at] = Listener(self, sockets, new_protocol, at)
        return listener

    def listens_no_more(self, listener: Listener) -> None:
        if self._listeners.get(listener.at) is listener:
            del self._listeners[listener.at]

    def connect(
        self, sockets: Sockets, new_protocol: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> "asyncio.Future[tuple[Wire, asyncio.Protocol]]":
        """See Sockets."""
        loop, at = sockets.loop, (self._address_of(host, port), port)
        connected: asyncio.Future[tuple[Wire, asyncio.Protocol]] = loop.create_future()

        def arrive() -> None:
            listener = self._listeners.get(at)
            if listener is None:
                loop.call_soon(_settle, connected, None)
            elif not self.is_cut(sockets.name, listener.owner.name):
                loop.call_soon(opened, listener)

        def opened(listener: Listener) -> None:
            if connected.done() or self._listeners.get(at) is not listener:
                _settle(connected, None)
                return
            near, far = Wire(self, sockets, at), Wire(self, listener.owner, (sockets.address, 40_000))
            near.other, far.other = far, near
            near.protocol = new_protocol()
            self._wires.append(near)
            listener.accept(far)
            near.protocol.connection_made(near)
            _settle(connected, (near, near.protocol))

        self._world.after(latency_s(self._world.random), arrive)
        return connected

    def _address_of(self, host: str, port: int) -> str:
        known = self._addresses.get(host, [host])
        return next((each for each in reversed(known) if (each, port) in self._listeners), known[-1])

    def carry(self, wire: Wire, data: bytes) -> None:
        """Carry bytes to the other end of a connection."""
        departed, other = wire.departing(self._world.now_s), wire.other

        def arrive() -> None:
            if not self.is_cut(wire.name, other.name) and not other.loop.is_dead:
                other.loop.call_soon(other.deliver, data, departed)

        if not self.is_cut(wire.name, other.name):
            self._world.after(wire.delay_s(departed.at_s), arrive)

    def hang_up(self, wire: Wire) -> None:
        """Notify the other end that this one has closed, after everything it has sent."""
        self._forget(wire)
        if not self.is_cut(wire.name, wire.other.name):
            self._world.after(wire.delay_s(self._world.now_s), wire.other.reset)

    def killed(self, name: str) -> None:
        """A process is dead: its machine resets its connections, and refuses new ones."""
        for listener in [each for each in self._listeners.values() if each.owner.name == name]:
            listener.close()
        for wire in list(self._wires):
            if name in {wire.name, wire.other.name} and not self.is_cut(wire.name, wire.other.name):
                self._reset(wire)

    def _reset(self, wire: Wire) -> None:
        self._forget(wire)
        for end in (wire, wire.other):
            self._world.after(end.delay_s(self._world.now_s), end.reset)

    def _forget(self, wire: Wire) -> None:
        self._wires = [each for each in self._wires if each is not wire and each is not wire.other]

    def ask(
        self,
        loop: SimulatedLoop,
        names: tuple[str, str],
        operation: Callable[[], T],
        *,
        random: Random,
        delay_s: float = 0.0,
        loses_answer: bool = False,
    ) -> "asyncio.Future[T]":
        """Have something done at the other name, now or `delay_s` late; the future may never be settled."""
        answered: asyncio.Future[T] = loop.create_future()

        def arrive() -> None:
            if self.is_cut(*names) and not delay_s:  # late bytes were sent before the cut
                return
            try:
                result, error = operation(), None
            except Exception as raised:  # noqa: BLE001 -- it is the answer
                result, error = None, raised
            if loses_answer:
                self.lost_answers += 1
            else:
                self._world.after(latency_s(random), lambda: back(result, error))

        def back(result: Any, error: Exception | None) -> None:
            if self.is_cut(*names):
                self.lost_answers += 1
            elif not loop.is_dead:
                loop.call_soon(_answer, answered, result, error)

        if not self.is_cut(*names):
            self._world.after(latency_s(random) + delay_s, arrive)
        return answered


def _settle(
    connected: "asyncio.Future[tuple[Wire, asyncio.Protocol]]", opened: tuple[Wire, asyncio.Protocol] | None
) -> None:
    if not connected.done():
        if opened is None:
            connected.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens"))
        else:
            connected.set_result(opened)


def _answer(answered: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if not answered.done():
        if error is None:
            answered.set_result(result)
        else:
            answered.set_exception(error)
