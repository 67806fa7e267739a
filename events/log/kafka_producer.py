"""The writer of one partition: Kafka's own fence, without transactions.

What belongs here: claiming a partition with InitProducerId, and appending record batches under the producer id and
epoch it gives. What it must not know: what the records say, how topics are made.

How it works: the transactional.id names the partition, so each claim of the partition is handed the next epoch of one
producer id. The batches are plain idempotent ones, written with that id, that epoch and sequence numbers of our own:

  * the broker refuses a batch of an older epoch (INVALID_PRODUCER_EPOCH) as soon as *one batch* of a newer epoch has
    reached the partition. Until then it accepts it: so a claimer appends a fence record before it trusts what it reads;
  * a batch sent again with its sequence is answered as the first time and not appended twice. So an append whose
    outcome is not known is made again, the same bytes, until it is known.

One batch is in flight at a time, so the broker's memory of the last five batches is always long enough.

The epoch that the coordinator sees must grow with each claim. Kafka's is 16 bits wide, and begins again at 0, with
another producer id, when it is used up or when `transactional.id.expiration.ms` has passed without a claim. So ours is
counted from a base: 0 at first, and after each such turn the epoch after the last one in the partition. A base other
than 0 is written as a header of every record, where the next claimer finds it.

What is not ideal: the broker forgets a producer id, and with it the fence, `producer.id.expiration.ms` after its last
batch, and after a turn to another id the fence does not hold against the old one. An owner claims anew well inside
both times (`claim_renewal_ms` of the log); a deposed owner that slept longer is stopped by its lease alone.
"""

import time
from collections.abc import Sequence
from enum import Enum, auto

import msgspec
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from kio.schema.errors import ErrorCode

from events.log.base import AppendRefused, Deposed, LogError, LogUnavailable
from events.log.kafka_batches import Stamp, encode_batch, packed
from events.log.kafka_link import KafkaLink, named, retried
from events.log.kafka_reader import newest_stamp
from events.records import Transition

_TRANSACTION_TIMEOUT_MS = 60_000
"""Asked for with a transactional.id; no transaction is ever begun."""

_SEQUENCES = 2**31
_ALL_IN_SYNC = -1


class _Sent(Enum):
    APPENDED = auto()
    TOO_LARGE = auto()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a writer writes, and within which limits."""

    topic: str
    partition: int
    limit_bytes: int
    """On one batch, as it is sent."""
    append_limit_ms: int
    """On one batch, until its outcome is known."""
    origin: bytes = b""
    """What each batch notes of where it was written (see kafka_origin.py)."""

    @property
    def transactional_id(self) -> str:
        return f"muster-{self.topic}-{self.partition}"

    @property
    def lane(self) -> str:
        return f"append-{self.topic}-{self.partition}"


async def claim(link: KafkaLink, place: Place, *, transactional_id: str | None = None) -> "KafkaWriter":
    """A writer with the partition's next epoch. Raises LogUnavailable."""
    producer_id, producer_epoch = await _next_producer_epoch(link, place, transactional_id or place.transactional_id)
    newest = await newest_stamp(link, place.topic, place.partition, limit_ms=place.append_limit_ms)
    stamp = Stamp(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        epoch_base=_epoch_base(producer_id, newest),
        origin=place.origin,
    )
    return KafkaWriter(link, place, stamp)


def _epoch_base(producer_id: int, newest: Stamp | None) -> int:
    if newest is None:
        return 0
    if newest.producer_id == producer_id:
        return newest.epoch_base
    return newest.epoch_base + newest.producer_epoch + 1


async def _next_producer_epoch(link: KafkaLink, place: Place, transactional_id: str) -> tuple[int, int]:
    async def attempt() -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id, _TRANSACTION_TIMEOUT_MS)
        response = await link.ask_transaction_coordinator(transactional_id, request)
        error = link.settled(response.error_code, f"InitProducerId of {transactional_id}")
        if error is not ErrorCode.none:
            raise LogUnavailable(f"InitProducerId of {transactional_id}: {named(error, 'WRITE')}")
        return response.producer_id, response.producer_epoch

    return await retried(attempt, limit_ms=place.append_limit_ms)


class KafkaWriter:
    """Appends to one partition until a newer writer has; a LogWriter."""

    def __init__(self, link: KafkaLink, place: Place, stamp: Stamp) -> None:
        self._link = link
        self._place = place
        self._stamp = stamp
        self._sequence = 0
        self._fate: LogError | None = None

    @property
    def partition(self) -> int:
        return self._place.partition

    @property
    def epoch(self) -> int:
        return self._stamp.epoch_base + self._stamp.producer_epoch

    async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        """See LogWriter. After Deposed or LogUnavailable, or an append that was cancelled, every append raises."""
        if self._fate is not None:
            raise self._fate
        # A sequence number is used for one batch only, ever. Whatever ends this append early leaves it open whether
        # the batch is there, so the writer stays dead unless the end is reached.
        self._fate = LogUnavailable(f"{self._named()}: an append before this one did not end; its outcome is not known")
        verdicts: list[AppendRefused | None] = []
        try:
            for indices in packed(transitions, limit_bytes=self._place.limit_bytes):
                verdicts += await self._append_together(transitions[indices.start : indices.stop])
        except LogError as error:
            self._fate = error
            raise
        self._fate = None
        return verdicts

    async def _append_together(self, transitions: Sequence[Transition]) -> list[AppendRefused | None]:
        records = sum(map(len, transitions))
        if not records:
            return [None] * len(transitions)
        batch = encode_batch(
            transitions, self._stamp, base_sequence=self._sequence, timestamp_ms=time.time_ns() // 1_000_000
        )
        if len(batch) <= self._place.limit_bytes and await self._send(batch) is _Sent.APPENDED:
            self._sequence = (self._sequence + records) % _SEQUENCES
            return [None] * len(transitions)
        if len(transitions) == 1:
            # When the broker refused it, its limit was lowered after the log was opened.
            limit_bytes = min(self._place.limit_bytes, len(batch) - 1)
            return [AppendRefused(size_bytes=len(batch), limit_bytes=limit_bytes)]
        middle = len(transitions) // 2
        return [
            *await self._append_together(transitions[:middle]),
            *await self._append_together(transitions[middle:]),
        ]

    async def _send(self, batch: bytes) -> _Sent:
        sent_before = False

        async def attempt() -> _Sent:
            nonlocal sent_before
            again, sent_before = sent_before, True
            return self._outcome(await self._produce(batch), again=again)

        try:
            return await retried(attempt, limit_ms=self._place.append_limit_ms)
        except LogUnavailable as error:
            raise LogUnavailable(f"{self._named()}: {error}") from error

    async def _produce(self, batch: bytes) -> int:
        place = self._place
        # Half of the client's own limit, so that the broker's REQUEST_TIMED_OUT is heard before the link is cut.
        request = ProduceRequest(
            None,
            _ALL_IN_SYNC,
            self._link.request_timeout_ms // 2,
            [(place.topic, [(place.partition, batch)])],
        )
        response = await self._link.ask_leader(place.topic, place.partition, request, lane=place.lane)
        ((_, ((_, code, *_),)),) = response.topics
        return int(code)

    def _outcome(self, code: int, *, again: bool) -> _Sent:
        match self._link.settled(code, "Produce"):
            case ErrorCode.none | ErrorCode.duplicate_sequence_number:
                return _Sent.APPENDED
            case ErrorCode.invalid_producer_epoch | ErrorCode.producer_fenced:
                raise Deposed(self.partition, self.epoch)
            case ErrorCode.message_too_large | ErrorCode.record_list_too_large if not again:
                return _Sent.TOO_LARGE
            case error:
                # OUT_OF_ORDER_SEQUENCE_NUMBER too: the partition does not end with what we appended last.
                raise LogUnavailable(f"the broker refuses the batch: {named(error, 'WRITE')}")

    def _named(self) -> str:
        return f"partition {self.partition} of {self._place.topic}"
