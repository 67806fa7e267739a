"""Frames on connections of the standalone server, without sockets: each on its own connection, split anywhere.

It has a complete process with its log in memory, so everything that can be decoded reaches the rules.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, cast

from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.standalone.client_connection import ClientConnection
from muster.coordinator.standalone.server import Server, ServerSettings
from muster.coordinator.wire.registry import APIS
from muster.events.log.memory import MemoryStorage
from tests.coordinator.longest_callback import longest_callback
from tests.coordinator.scripted import ManualTimers, ScriptedGroups, new_service
from tests.frames.generator import Frame, Frames
from tests.frames.verdict import Verdict, no_errors_told
from tests.simulation.process import SimulatedProcess


class Wire(asyncio.Transport):
    """The transport of a connection, which is notified of its end in the next iteration of the event loop."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000)})
        self._protocol = protocol
        self.sent = 0
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += len(data)

    def writelines(self, list_of_data: Any) -> None:
        self.sent += sum(map(len, list_of_data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        """Do nothing: there is only one frame."""

    def resume_reading(self) -> None:
        """Do nothing: there is only one frame."""


class Stage:
    """A server, and what a test wants to know of it."""

    def __init__(self) -> None:
        self.timers, self.metrics, self.storage = ManualTimers(), ServerMetrics(APIS), MemoryStorage()
        self.process = SimulatedProcess(self.storage)
        self.service = new_service(cast("ScriptedGroups", self.process.runtime), self.timers)
        self.service.monotonic_ms, self.service.wall_ms = self.process.clock.monotonic_ms, self.process.clock.wall_ms
        self.server = Server(settings=ServerSettings(), service=self.service, apis=APIS, metrics=self.metrics)

    async def play(self, frame: Frame, pieces: tuple[bytes, ...], verdict: Verdict) -> None:
        """Send one frame on its own connection."""
        before = Counter(self.metrics.protocol_errors)
        connection = self.server._new_connection()
        wire = Wire(connection)
        connection.connection_made(wire)
        for piece in filter(None, pieces):
            if not wire.is_closing():
                asyncio.get_running_loop().call_soon(connection.data_received, piece)
                await asyncio.sleep(0)
        await self._settled()
        self.timers.pass_all()  # a Fetch that waits
        await self._settled()
        fault = next(iter(Counter(self.metrics.protocol_errors) - before), None)
        answered = wire.sent > 0 or (
            connection.is_parked and not wire.is_closing()
        )  # a join that waits for others is answered in time
        verdict.judge(frame, answered=answered, fault=fault, closed=wire.is_closing())
        wire.close()
        await asyncio.sleep(0)

    async def _settled(self) -> None:
        for _ in itertools.takewhile(lambda _: self._is_at_work, itertools.count()):
            await asyncio.sleep(0)

    @property
    def _is_at_work(self) -> bool:
        runtime = self.process.runtime
        is_storing = not all(each._outbox._idle.is_set() for each in runtime._owned.values())
        return bool(self.service.slices.waiting or runtime.slices.waiting or is_storing)

    async def lives(self) -> None:
        """The process has given nothing up, and what it wrote can be read again."""
        assert self.process.runtime.ready
        await self.process.runtime.stop()
        again = await SimulatedProcess(self.storage, offsets=self.process.offsets).start()
        assert again.runtime.ready
        assert not again.runtime.figures().quarantined
        await again.runtime.stop()
        assert self.process.lost == again.lost == []


async def play(frames: int, seed: int, report: Callable[[str], None]) -> Counter[str]:
    """Play this many; return the outcomes. Raises BadOutcome."""
    verdict, random, source, stage = Verdict(), Random(seed), Frames(APIS.values(), seed), Stage()
    await stage.process.start()
    with no_errors_told(), longest_callback() as longest:
        for number in range(frames):
            frame = source.next()
            size = len(frame.content)
            at = random.randrange(size + 1) if random.random() < 0.3 else size
            await stage.play(frame, (frame.content[:at], frame.content[at:]), verdict)
            if not (number + 1) % 50_000:
                report(f"{number + 1} frames: {dict(verdict.outcomes)}")
    verdict.nobody_waited(longest)
    await stage.lives()  # until then joins may wait for others, even those with disconnected clients
    await verdict.nothing_is_left(
        ClientConnection,
        lambda: {
            "connections": len(stage.server._listening.connections),
            "waiting": stage.service.slices.waiting,
            "timers": len(stage.timers.pending),
        },
    )
    return verdict.outcomes
