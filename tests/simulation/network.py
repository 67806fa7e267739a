"""A simulated network: connections that carry bytes in order and late, questions that may be lost, and cuts.

What belongs here: how long things take, and what is lost. What it must not know: what the bytes mean.

A cut is between two names. While it lasts nothing goes through, and nobody is told; connections that went through it
are reset when it heals. Who is killed resets its connections, unless they are cut.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol, TypeVar

import msgspec

from tests.simulation.world import SimulatedLoop, World

T = TypeVar("T")

LATENCY_S = (0.000_2, 0.002)
SLOW_SHARE = 0.01
SLOW_S = (0.05, 0.8)


def latency_s(random: Random) -> float:
    """The time that something is on its way."""
    return random.uniform(*(SLOW_S if random.random() < SLOW_SHARE else LATENCY_S))


class Host(Protocol):
    """A process that others can connect to."""

    name: str
    loop: SimulatedLoop

    def accept(self) -> asyncio.Protocol | None:
        """The protocol of a new connection, made in its own loop; None: nobody listens."""
        ...

    def serves(self) -> frozenset[int]:
        """The partitions that it serves at the moment."""
        ...


class Departure(msgspec.Struct, frozen=True):
    """The moment when bytes left the other end, and which partitions that one served then."""

    at_s: float
    serves: frozenset[int]


NOBODY: Final = frozenset[int]()


class Wire(asyncio.Transport):
    """One end of a connection. `departed`: the departure of the last bytes that arrived here."""

    def __init__(
        self,
        network: "Network",
        loop: SimulatedLoop,
        name: str,
        address: str,
        serves: Callable[[], frozenset[int]] = lambda: NOBODY,
    ) -> None:
        super().__init__({"peername": (address, 40_000)})
        self._network = network
        self.loop = loop
        self.name = name
        self.protocol: asyncio.Protocol
        self.other: Wire
        self.serves = serves
        self.departed = Departure(0.0, NOBODY)
        self._random = network.new_lots()
        self._arrives_s = 0.0
        self._is_closed = False
        self._is_told = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closed:
            self._network.carry(self, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def delay_s(self, now_s: float) -> float:
        """The time that what is sent now is on its way: it arrives behind what was sent before."""
        self._arrives_s = max(self._arrives_s, now_s + latency_s(self._random))
        return self._arrives_s - now_s

    def deliver(self, data: bytes, departed: Departure) -> None:
        if not self._is_closed:
            self.departed = departed
            self.protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """End the connection, and tell the other end if nothing is cut."""
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
            self.loop.call_soon(self.protocol.connection_lost, error)

    def pause_reading(self) -> None:
        """Nobody sends so much."""

    def resume_reading(self) -> None:
        """As above."""


class Network:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cuts: set[frozenset[str]] = set()
        self._wires: list[Wire] = []
        self.lost_answers = 0

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cuts

    def cut(self, one: str, other: str) -> None:
        self._cuts.add(frozenset((one, other)))

    def heal(self, one: str, other: str) -> None:
        """End a cut; connections that went through it are reset."""
        self._cuts.discard(frozenset((one, other)))
        for wire in list(self._wires):
            if {wire.name, wire.other.name} == {one, other}:
                self._reset(wire)

    def new_lots(self) -> Random:
        """Lots for one way alone, so that the order of what happens at once elsewhere does not matter."""
        return Random(self._world.random.getrandbits(64))

    def connect(self, loop: SimulatedLoop, name: str, host: Host, protocol: asyncio.Protocol) -> "asyncio.Future[Wire]":
        """Connect; ConnectionRefusedError when nobody listens, and no answer through a cut."""
        connected: asyncio.Future[Wire] = loop.create_future()

        def arrive() -> None:
            if self.is_cut(name, host.name):
                return
            accepted = None if host.loop.is_dead else host.accept()
            if accepted is None:
                loop.call_soon(_settle, connected, None)
                return
            near, far = Wire(self, loop, name, "10.0.0.1"), Wire(self, host.loop, host.name, "10.1.0.1", host.serves)
            near.protocol, far.protocol, near.other, far.other = protocol, accepted, far, near
            self._wires.append(near)
            host.loop.call_soon(accepted.connection_made, far)
            loop.call_soon(protocol.connection_made, near)
            loop.call_soon(_settle, connected, near)

        self._world.after(latency_s(self._world.random), arrive)
        return connected

    def carry(self, wire: Wire, data: bytes) -> None:
        """Carry bytes to the other end of a connection."""
        departed, other = Departure(self._world.now_s, wire.serves()), wire.other

        def arrive() -> None:
            if not self.is_cut(wire.name, other.name) and not other.loop.is_dead:
                other.loop.call_soon(other.deliver, data, departed)

        if not self.is_cut(wire.name, other.name):
            self._world.after(wire.delay_s(departed.at_s), arrive)

    def hang_up(self, wire: Wire) -> None:
        """Tell the other end that this one has closed, behind all that it has sent."""
        self._forget(wire)
        if not self.is_cut(wire.name, wire.other.name):
            self._world.after(wire.delay_s(self._world.now_s), wire.other.reset)

    def killed(self, name: str) -> None:
        """A process is no more: the machine that it was on resets its connections."""
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
            if self.is_cut(*names) and not delay_s:  # what is late was sent before the cut
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


def _settle(connected: "asyncio.Future[Wire]", wire: Wire | None) -> None:
    if not connected.done():
        if wire is None:
            connected.set_exception(ConnectionRefusedError("nobody listens"))
        else:
            connected.set_result(wire)


def _answer(answered: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if not answered.done():
        if error is None:
            answered.set_result(result)
        else:
            answered.set_exception(error)
