"""Relays one connection over a network that may be cut, or slow.

While it is cut, nothing passes in either direction, and nobody is told: bytes wait, as they do in a network that is
down, and go on when it is not. A delayed answer leaves so much later than it came; answers do not wait for each other.

Answers that name brokers are rewritten, so that whoever is behind the relay reaches every broker through it: by the
sidecar's own rules (coordinator/sidecar/messages/rewriting.py).
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Final

from muster.coordinator.sidecar.messages.rewriting import AnswerRewriter
from muster.events.steps import finished

_CHUNK: Final = 1 << 16
_SIZE: Final = struct.Struct(">i")
_START: Final = struct.Struct(">hhi")
"""API key, API version and correlation id, with which a request begins."""
_UNDER_WAY: Final = 1_000

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_Asked = dict[int, tuple[int, int]]
"""The API and its version of each request that has no answer yet, by correlation id."""


class Weather:
    """How the network is for all relays that share it: open or cut, and how slow."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self._open = asyncio.Event()
        self._open.set()

    def cut(self) -> None:
        """Let nothing pass."""
        self._open.clear()

    def heal(self) -> None:
        """Let everything pass again, what has waited first."""
        self._open.set()

    async def passable(self) -> None:
        """Wait until it is not cut."""
        await self._open.wait()


async def relay(down: Streams, up: Streams, weather: Weather, rewriter: AnswerRewriter | None) -> None:
    """Relay until one end closes; what it had sent is handed over. Without a rewriter the bytes may be any."""
    asked: _Asked = {}
    requests = _chunks(down[0]) if rewriter is None else _noted(_frames(down[0]), asked)
    answers = _chunks(up[0]) if rewriter is None else _rewritten(_frames(up[0]), asked, rewriter)
    parts = [
        asyncio.create_task(_pass(requests, up[1], weather, is_delayed=False)),
        asyncio.create_task(_pass(answers, down[1], weather, is_delayed=True)),
    ]
    try:
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for part in parts:
            part.cancel()
        for ended in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, OSError):
                raise ended
    await weather.passable()  # that a connection has ended is not heard over a network that is cut


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await reader.read(_CHUNK):
        yield chunk


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Whole messages, with their sizes before them."""
    while True:
        size = await reader.readexactly(_SIZE.size)
        yield size + await reader.readexactly(_SIZE.unpack(size)[0])


async def _noted(frames: AsyncIterator[bytes], asked: _Asked) -> AsyncIterator[bytes]:
    async for frame in frames:
        api_key, api_version, correlation_id = _START.unpack_from(frame, _SIZE.size)
        asked[correlation_id] = (api_key, api_version)
        yield frame


async def _rewritten(frames: AsyncIterator[bytes], asked: _Asked, rewriter: AnswerRewriter) -> AsyncIterator[bytes]:
    async for frame in frames:
        (correlation_id,) = _SIZE.unpack_from(frame, _SIZE.size)
        request = asked.pop(correlation_id, None)
        rewrite = None if request is None else rewriter.of(*request)
        if rewrite is None:
            yield frame
        else:
            body = finished(rewrite(frame[2 * _SIZE.size :]))
            yield _SIZE.pack(_SIZE.size + len(body)) + frame[_SIZE.size : 2 * _SIZE.size] + body


async def _pass(
    pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter, weather: Weather, *, is_delayed: bool
) -> None:
    """Hand over all that comes; what is late does not hold up what comes behind it any longer."""
    now_s = asyncio.get_running_loop().time
    waiting: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(_UNDER_WAY)

    async def take() -> None:
        try:
            async for piece in pieces:
                await waiting.put((now_s() + (weather.delay_s if is_delayed else 0.0), piece))
        except (EOFError, OSError):
            pass
        except Exception:
            await waiting.put(None)
            raise
        await waiting.put(None)

    taking = asyncio.create_task(take())
    try:
        while (next_one := await waiting.get()) is not None:
            due_s, piece = next_one
            if (left_s := due_s - now_s()) > 0:
                await asyncio.sleep(left_s)
            await weather.passable()
            writer.write(piece)
            await writer.drain()
        await taking
    finally:
        taking.cancel()
