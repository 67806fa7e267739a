"""Floods: many requests in flight on few connections, or one on each of many; and heartbeats one at a time.

All requests of a flood have the same correlation id, so all good responses are the same bytes: the sender just compares
them and sends as many again, which leaves the CPU to the server.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence

from benchmarks.measuring.groups import Failed, Member, form, links_to
from tests.coordinator.kio_client import frame, with_length

GOOD = bytes.fromhex("0000000c 00000000 00 00000000 0000 00")
"""The response to Heartbeat v4 with correlation id 0: length, correlation id, tags, throttle time, error, tags."""

WARMING = 0.2
"""The share of a flood's duration that is warm-up: the server already works, but nothing is counted."""


class Flood(asyncio.Protocol):
    """Keeps `window` requests in flight until it is told to stop."""

    def __init__(self, frames: Sequence[bytes], window: int, good: bytes) -> None:
        self._frames = itertools.cycle(frames)
        self._window = window
        self._good = good
        self._rest = b""
        self._stopping = False
        self.answered = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def start(self) -> None:
        self._send(self._window)

    def stop(self) -> None:
        self._stopping = True

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        count, rest = divmod(len(data), len(self._good))
        if data[: count * len(self._good)] != self._good * count:
            self.done.set_exception(Failed(f"an answer that is not good: {data[:60].hex()}"))
            self._transport.abort()
            return
        self._rest = data[len(data) - rest :]
        self.answered += count
        if not self._stopping:
            self._send(count)
        elif not self.done.done():
            self.done.set_result(None)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"connection lost: {exc}"))

    def _send(self, count: int) -> None:
        self._transport.write(b"".join(itertools.islice(self._frames, count)))


def heartbeat_frame(member: Member) -> bytes:
    return with_length(
        frame(
            "Heartbeat",
            4,
            correlation_id=0,
            group_id=member.group_id,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.instance,
        )
    )


async def form_groups(bootstrap: str, prefix: str, *, groups: int, size: int, static: bool) -> list[Member]:
    """Form many groups, four at a time; their connections are then closed."""
    members: list[Member] = []
    lanes = [await links_to(bootstrap, size) for _ in range(4)]

    async def lane(number: int) -> None:
        for group in range(number, groups, len(lanes)):
            members.extend(await form(lanes[number], f"{prefix}-{group}", static=static))

    await asyncio.gather(*(lane(number) for number in range(len(lanes))))
    for link in itertools.chain.from_iterable(lanes):
        link.close()
    return members


async def flood(bootstrap: str, members: Sequence[Member], *, connections: int, window: int, seconds: float) -> float:
    """Heartbeats answered per second. Each connection sends those of its own members, so there must be enough
    members.
    """
    if len(members) < connections:
        raise Failed(f"{connections} connections need as many members at least, there are {len(members)}")
    frames = [heartbeat_frame(member) for member in members]
    own = [frames[number::connections] for number in range(connections)]
    return await flood_with(bootstrap, own, good=GOOD, window=window, seconds=seconds)


async def flood_with(
    bootstrap: str, frames: Sequence[Sequence[bytes]], *, good: bytes, window: int, seconds: float
) -> float:
    """Requests answered per second; `frames` has those of each connection."""
    host, _, port = bootstrap.rpartition(":")
    loop = asyncio.get_running_loop()
    floods = []
    for each in frames:

        def protocol(own: Sequence[bytes] = each) -> Flood:
            return Flood(own, window, good)

        _, one = await loop.create_connection(protocol, host, int(port))
        floods.append(one)
    for one in floods:
        one.start()
    await asyncio.sleep(seconds * WARMING)
    before, started = _answered(floods), time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (_answered(floods) - before) / (time.perf_counter() - started)
    for one in floods:
        one.stop()
    await asyncio.gather(*(one.done for one in floods))
    return rate


def _answered(floods: Sequence[Flood]) -> int:
    return sum(one.answered for one in floods)


async def one_at_a_time(bootstrap: str, members: Sequence[Member], *, count: int) -> list[float]:
    """The latency of each request, in ms."""
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    latencies = []
    for request in _cycled([heartbeat_frame(member) for member in members], count):
        started = time.perf_counter()
        writer.write(request)
        answer = await reader.readexactly(len(GOOD))
        latencies.append((time.perf_counter() - started) * 1000)
        if answer != GOOD:
            raise Failed(f"an answer that is not good: {answer.hex()}")
    writer.close()
    return latencies


def _cycled(frames: Sequence[bytes], count: int) -> Iterator[bytes]:
    return itertools.islice(itertools.cycle(frames), count)
