"""A simulated topic, as Kafka keeps one for an event log: producer epochs that fence, batches that are repeated.

It has the broker's responses, and notes for the invariants.

    a batch of an older epoch, once a newer one has appended    Deposed (INVALID_PRODUCER_EPOCH)
    a batch that was appended already                           its first offset; nothing is appended twice
    a batch that leaves one out                                 LogUnavailable (OUT_OF_ORDER_SEQUENCE_NUMBER)
"""

from collections.abc import Callable, Sequence

import msgspec

from muster.events.log.base import Deposed, LogUnavailable
from muster.events.log.memory import MemoryStorage
from muster.events.records import StoredRecord, Transition

KEPT_BATCHES = 5
"""The number of a producer's last batches that are recognized when repeated, as in Kafka."""


class Appended(msgspec.Struct, frozen=True):
    """A batch in the log: its sender, when it was sent (the world's time), and when it arrived."""

    partition: int
    offsets: range
    process: str
    sent_s: float
    arrived_s: float


class _Producer(msgspec.Struct):
    next_sequence: int = 0
    last: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)


class LogBroker:
    """One topic."""

    fences = True
    """True if older epochs are refused, as they must be."""

    def __init__(self, partitions: int, now_s: Callable[[], float]) -> None:
        self.storage = MemoryStorage(partitions)
        self.storage.identity = "simulated"
        self._now_s = now_s
        self._producers: dict[tuple[int, int], _Producer] = {}
        self.appended: list[Appended] = []
        self.fenced = 0
        self.repeated = 0
        self.read_on = 0
        """Takeovers by what a standby had read before."""

    def claim(self, partition: int) -> int:
        """Hand out the next epoch."""
        self.storage.epochs[partition] += 1
        return self.storage.epochs[partition]

    def produce(
        self,
        partition: int,
        epoch: int,
        sequence: int,
        transitions: Sequence[Transition],
        *,
        timestamp_ms: int,
        process: str,
        sent_s: float,
    ) -> tuple[int, int]:
        """Append a batch; return its first offset and the one after its last. Raises Deposed, LogUnavailable."""
        storage = self.storage
        if self.fences and epoch < storage.fences[partition]:
            self.fenced += 1
            raise Deposed(partition, epoch)
        producer = self._producers.setdefault((partition, epoch), _Producer())
        if sequence in producer.last:
            self.repeated += 1
            return producer.last[sequence]
        if sequence != producer.next_sequence:
            raise LogUnavailable("OUT_OF_ORDER_SEQUENCE_NUMBER")
        storage.fences[partition] = epoch
        first = end = storage.end_offset(partition)
        for transition in transitions:
            for record in transition:
                storage.records[partition].append(StoredRecord(partition, end, timestamp_ms, record.key, record.value))
                end += 1
        producer.next_sequence += 1
        producer.last[sequence] = (first, end)
        while len(producer.last) > KEPT_BATCHES:
            del producer.last[next(iter(producer.last))]
        self.appended.append(Appended(partition, range(first, end), process, sent_s, self._now_s()))
        return first, end

    def leave_sign(self, owner: str, wall_ms: int) -> None:
        self.storage.signs_of_life = {**self.storage.signs_of_life, owner: wall_ms}
