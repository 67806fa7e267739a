"""An event log on a simulated broker, which like `events/log/kafka` repeats requests that get no response.

Has the attempts, and their limit; knows nothing of the broker's responses.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from muster.events.log.base import (
    AppendRefused,
    Deposed,
    Ends,
    LogError,
    LogUnavailable,
    LogWriter,
    Repeated,
    Repeats,
    SignOfLife,
)
from muster.events.log.limits import CHUNK_RECORDS_MAX
from muster.events.log.memory import MemoryEventLog
from muster.events.records import StoredRecord, Transition
from tests.simulation.log_broker import LogBroker
from tests.simulation.network import Network
from tests.simulation.world import LoopClock, SimulatedLoop, World

T = TypeVar("T")

BROKER = "broker"
ATTEMPT_TIMEOUT_S = 2.0
DELIVERY_TIMEOUT_S = 8.0
RETRY_PAUSE_S = 0.1


class LogFaults(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of batches that are late (for some seconds, perhaps beyond every limit), lost, or not answered."""

    late_share: float = 0.004
    late_s: tuple[float, float] = (0.5, 15.0)
    lost_share: float = 0.006
    lost_answer_share: float = 0.01


NO_FAULTS: Final = LogFaults(late_share=0, lost_share=0, lost_answer_share=0)


class LogLink:
    """The way of one process to the broker."""

    def __init__(self, world: World, network: Network, loop: SimulatedLoop, name: str, faults: LogFaults) -> None:
        self.world = world
        self.name = name
        self.clock = LoopClock(loop, world)
        self._network = network
        self._loop = loop
        self._faults = faults
        self._random = network.new_lots()

    async def ask(self, operation: Callable[[], T]) -> T:
        """Ask until there is a response. Raises what the broker raises, and LogUnavailable if none arrives in time."""
        ends_s = self._loop.time() + DELIVERY_TIMEOUT_S
        while self._loop.time() < ends_s:
            try:
                async with asyncio.timeout(min(ATTEMPT_TIMEOUT_S, ends_s - self._loop.time())):
                    return await self.ask_once(operation)
            except TimeoutError:
                await asyncio.sleep(RETRY_PAUSE_S)
        raise LogUnavailable("the simulated broker has not answered in time")

    def ask_once(self, operation: Callable[[], T]) -> "asyncio.Future[T]":
        random, faults = self._random, self._faults
        lot, delay_s = random.random(), 0.0
        if lot < faults.lost_share:
            return self._loop.create_future()
        if lot < faults.lost_share + faults.late_share:
            delay_s = random.uniform(*faults.late_s)
        loses_answer = random.random() < faults.lost_answer_share
        names = (self.name, BROKER)
        return self._network.ask(
            self._loop, names, operation, random=random, delay_s=delay_s, loses_answer=loses_answer
        )


class RemoteLog(MemoryEventLog):
    """The log of one process. The records are at the broker, and are read through the link."""

    def __init__(self, broker: LogBroker, link: LogLink, *, claim_renewal_ms: int | None = None) -> None:
        super().__init__(broker.storage, claim_renewal_ms=claim_renewal_ms)
        self.broker = broker
        self.link = link

    async def claim(self, partition: int) -> "RemoteWriter":  # type: ignore[override]
        epoch, was_owned = await self.link.ask(
            lambda: (self.broker.claim(partition), bool(self.storage.records[partition]))
        )
        return RemoteWriter(self.broker, self.link, partition, epoch, was_owned=was_owned)

    async def repeat(self, writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:
        """See the contract: one request, sent once."""
        batches = [(writer, writer.last_batch()) for writer in writers if isinstance(writer, RemoteWriter)]
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                yield await self.link.ask_once(lambda: {w.partition: self._sent_again(again) for w, again in batches})
        except TimeoutError:
            yield dict.fromkeys((writer.partition for writer in writers), False)

    def _sent_again(self, again: Callable[[], object]) -> Repeated:
        try:
            again()
        except Deposed as deposed:
            return deposed
        except LogUnavailable:
            return False
        return True

    async def leave_sign_of_life(self, sign: SignOfLife, *, timeout_ms: int) -> None:
        await self.link.ask(lambda: self.broker.leave_sign(sign.owner, sign.wall_ms))

    async def last_signs_of_life(self, *, timeout_ms: int) -> Mapping[str, int]:
        return await self.link.ask(lambda: dict(self.storage.signs_of_life))

    async def has_owners_record(self, partition: int) -> bool:
        return await self.link.ask(lambda: bool(self.storage.records[partition]))

    async def end_offset(self, partition: int) -> int:
        return await self.link.ask(lambda: self.storage.end_offset(partition))

    async def prepare_claim(self, partition: int) -> None:
        """See the contract: there is nothing to open."""

    async def end_offsets(self, partitions: Sequence[int], *, timeout_ms: int) -> Ends:
        """See the contract: one request, sent once."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                yield await self.link.ask_once(lambda: {each: self.storage.end_offset(each) for each in partitions})
        except TimeoutError:
            yield {}

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See the contract: the default end is the end at the call, and more may be appended until the last is read."""
        until = await self.end_offset(partition) if end is None else end
        while start < until:
            at = start
            chunk = await self.link.ask(lambda: self.storage.between(partition, at, until)[:CHUNK_RECORDS_MAX])  # noqa: B023 -- awaited
            if not chunk:
                return
            yield chunk
            start = chunk[-1].offset + 1


class RemoteWriter:
    """A `LogWriter` that sends a batch again, the same, until its outcome is known or the limit has come."""

    def __init__(self, broker: LogBroker, link: LogLink, partition: int, epoch: int, *, was_owned: bool) -> None:
        self.was_owned = was_owned
        self.partition = partition
        self.epoch = epoch
        self.next_offset: int | None = None
        self._broker = broker
        self._link = link
        self._sequence = 0
        self._last: Sequence[Transition] = ()
        self._fate: LogError | None = None

    async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        """See LogWriter. After an append whose outcome stayed unknown, every append raises."""
        self.next_offset = await self._send(self._sequence, transitions)
        self._sequence += 1
        self._last = transitions
        return [None] * len(transitions)

    def last_batch(self) -> Callable[[], tuple[int, int]]:
        """Send the last acknowledged batch to the broker again."""
        return self._batch(self._sequence - 1, self._last)

    def _batch(self, sequence: int, transitions: Sequence[Transition]) -> Callable[[], tuple[int, int]]:
        return partial(
            self._broker.produce,
            self.partition,
            self.epoch,
            sequence,
            transitions,
            timestamp_ms=self._link.clock.wall_ms(),
            process=self._link.name,
            sent_s=self._link.world.now_s,
        )

    async def _send(self, sequence: int, transitions: Sequence[Transition]) -> int:
        """Send a batch until it is acknowledged; return the offset after it."""
        if self._fate is not None:
            raise self._fate
        self._fate = LogUnavailable("an earlier append did not complete; its outcome is not known")
        try:
            _, end = await self._link.ask(self._batch(sequence, transitions))
        except LogError as error:
            self._fate = error
            raise
        self._fate = None
        return end
