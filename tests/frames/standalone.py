"""Frames on connections of the standalone server, without sockets: each on one of its own, cut anywhere."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from coordinator.client_connection import ClientConnection
from coordinator.group.commands import AnyRequest
from coordinator.group.decide import failed
from coordinator.group.outcomes import Outcome
from coordinator.metrics import ServerMetrics
from coordinator.server import Server, ServerSettings
from coordinator.wire.registry import APIS
from tests.coordinator.longest_callback import longest_callback
from tests.coordinator.scripted import ManualTimers, ScriptedGroups, new_service
from tests.frames.generator import Frame, Frames
from tests.frames.verdict import Verdict


class Wire(asyncio.Transport):
    """What a connection writes, and whether it has closed. It is told of its end with the next turn of the loop."""

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
        """There is no more than one frame."""

    def resume_reading(self) -> None:
        """As above."""


def refuses(command: AnyRequest) -> Outcome:
    """Nobody is known here."""
    return failed(command, ErrorCode.unknown_member_id)[0].outcome


class Stage:
    """A server, and what a test wants to know of it."""

    def __init__(self) -> None:
        self.timers, self.metrics, self.groups = ManualTimers(), ServerMetrics(APIS), ScriptedGroups(refuses)
        self.service = new_service(self.groups, self.timers)
        self.server = Server(settings=ServerSettings(), service=self.service, apis=APIS, metrics=self.metrics)

    async def play(self, frame: Frame, pieces: tuple[bytes, ...], verdict: Verdict) -> None:
        """One frame on a connection of its own."""
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
        verdict.judge(frame, answered=wire.sent > 0, fault=fault, closed=wire.is_closing())
        wire.close()
        await asyncio.sleep(0)
        self.groups.commands.clear()

    async def _settled(self) -> None:
        for _ in itertools.takewhile(lambda _: self.service.slices.waiting, itertools.count()):
            await asyncio.sleep(0)


async def play(frames: int, seed: int, report: Callable[[str], None]) -> Counter[str]:
    """Play so many; returns what became of them. Raises BadOutcome."""
    verdict, random, source, stage = Verdict(), Random(seed), Frames(APIS.values(), seed), Stage()
    with longest_callback() as longest:
        for number in range(frames):
            frame = source.next()
            size = len(frame.content)
            at = random.randrange(size + 1) if random.random() < 0.3 else size
            await stage.play(frame, (frame.content[:at], frame.content[at:]), verdict)
            if not (number + 1) % 50_000:
                report(f"{number + 1} frames: {dict(verdict.outcomes)}")
    verdict.nobody_waited(longest)
    await verdict.nothing_is_left(
        ClientConnection,
        connections=len(stage.server._listening.connections),
        waiting=stage.service.slices.waiting,
        timers=len(stage.timers.pending),
    )
    return verdict.outcomes
