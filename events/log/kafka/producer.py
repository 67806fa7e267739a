"""The writer of one partition: Kafka's own fencing, without transactions.

It claims a partition with InitProducerId, and appends record batches under that producer id and epoch. Knows nothing of
the meaning of records, or of creating topics.

How it works: the transactional.id names the partition, so each claim of the partition gets the next epoch of one
producer id. The batches are plain idempotent ones, written with that id, that epoch and sequence numbers of our own:

* the broker refuses a batch of an older epoch (INVALID_PRODUCER_EPOCH) as soon as *one batch* of a newer epoch has
  reached the partition. Until then it accepts it, so a new owner appends a fence record before it trusts what it reads;
* a batch that is sent again with its sequence number gets the same response and is not appended twice. So an append
  with an unknown outcome is repeated, with the same bytes, until the outcome is known.

One batch is in flight at a time, so the broker's memory of the last five batches is always sufficient.

The epoch that the coordinator sees must grow with each claim. Kafka's epoch has 16 bits, and restarts at 0 with a new
producer id when it is exhausted or when `transactional.id.expiration.ms` has passed without a claim. So ours is Kafka's
plus a base: 0 at first, and after each such restart the epoch after the last one in the partition. A base other than 0
is written as a header of every record, where the next claim finds it.

Foreign records may be appended between two batches (marks.py); `next_offset` is the end of the last batch, so that a
gap is noticed.

The drawback: the broker forgets a producer id, and with it the fence, `producer.id.expiration.ms` after its last batch,
and a claim that gets another producer id does not fence the old one. So an owner renews its claim well before either
expiration (`claim_renewal_ms` of the log). A deposed owner that was suspended for longer than that is not fenced.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from kio.schema.errors import ErrorCode

from muster.events.kafka.errors import TryAgain
from muster.events.kafka.requests import init_producer_id, produce, produced
from muster.events.log.base import AppendRefused, Deposed, LogError, LogMismatch, LogUnavailable
from muster.events.log.kafka.batches import UNCOMPRESSED_BYTES_MAX, Stamp, encode_batch, pack, uncompressed_bytes
from muster.events.log.kafka.client.errors import refusal_error, retry
from muster.events.log.kafka.client.followed import MADE_ANEW
from muster.events.log.kafka.client.link import KafkaLink, PartitionLane
from muster.events.log.kafka.client.settings import CLOCK_CONFIGS, alter_command
from muster.events.log.kafka.marks import Marks, decode_origin
from muster.events.log.kafka.names import owner_id, owner_id_prefix
from muster.events.log.kafka.reader import end_offset, newest_stamp, open_for_reading
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import Transition

_TRANSACTION_TIMEOUT_MS = 60_000
"""The transaction timeout in InitProducerId; no transaction is ever begun."""

_ENCODED_AT_ONCE_BYTES = 256 * 1024
"""Larger batches are encoded in a thread: encoding takes about 10 ms per MB, and 64 MB may arrive at once."""

_REPEATED_BYTES_MAX = 16 * 1024
"""Batches up to this size are kept, to be sent again while there is nothing else to send."""

_SEQUENCES = 2**31
ALL_IN_SYNC = -1


class WriterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The partition that a writer writes, and its limits."""

    topic: str
    partition: int
    limit_bytes: int
    """The limit on one batch, as it is sent."""
    delivery_timeout_ms: int
    """The time limit for the outcome of one batch to become known."""
    origin: bytes = b""
    """The origin that each record notes (see marks.py)."""
    partitions: int | None = None
    """The topic's number of partitions, which each batch notes."""
    is_new: bool = False
    """True if the topic was empty when it was opened: then no earlier version has written unmarked records."""
    wall_ms: Callable[[], int] = wall_clock_ms
    """The clock of records' timestamps."""

    @property
    def home(self) -> str | None:
        """The cluster that is noted."""
        origin = decode_origin(self.origin)
        return None if origin is None else origin.cluster_id or None

    @property
    def transactional_id(self) -> str:
        return owner_id(self.topic, self.partition)

    @property
    def lane(self) -> PartitionLane:
        return PartitionLane("append", self.topic, self.partition)


async def claim(link: KafkaLink, config: WriterConfig, *, transactional_id: str | None = None) -> "KafkaWriter":
    """Claim the partition: create a writer with its next epoch. Raises LogUnavailable.

    Raises LogMismatch if the log was upgraded since it was opened; the claim has no effect until something is appended.
    """
    producer_id, producer_epoch = await _next_producer_epoch(link, config, transactional_id or config.transactional_id)
    end = await end_offset(link, config.topic, config.partition, timeout_ms=config.delivery_timeout_ms)
    newest = await last_owner(link, config, end=end)
    _refuse_upgraded(config, newest)
    stamp = Stamp(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        epoch_base=_epoch_base(producer_id, newest),
        origin=config.origin,
        # If no owner ever wrote, all unmarked records are foreign.
        marked_from=0 if newest is None else newest.marked_from,
        native_from=0 if newest is None else newest.native_from,
        partitions=config.partitions,
    )
    return KafkaWriter(link, config, stamp, was_owned=newest is not None, end_offset=end)


async def prepare_claim(link: KafkaLink, config: WriterConfig) -> None:
    """Open the connections that `claim` and the first append use, and look up the coordinator.

    Connections that are already open cost nothing. Raises TryAgain and LogError.
    """
    topic, partition, timeouts = config.topic, config.partition, link.timeouts
    coordinator = await link.find_transaction_coordinator(config.transactional_id, prefix=owner_id_prefix(topic))
    await link.open_lane(coordinator)
    await open_for_reading(link, topic, partition)
    await link.open_lane_of_leader(topic, partition, lane=config.lane, timeout_ms=timeouts.produce_timeout_ms)


async def last_owner(link: KafkaLink, config: WriterConfig, *, end: int | None = None) -> Stamp | None:
    """Return the stamp of an owner's last batch, before `end` if given; None: there is none. Raises LogUnavailable."""
    newest = await newest_stamp(
        link, config.topic, config.partition, home=config.home, timeout_ms=config.delivery_timeout_ms, end=end
    )
    return None if newest is not None and config.is_new and not newest.is_marked else newest


def _refuse_upgraded(config: WriterConfig, newest: Stamp | None) -> None:
    if config.partitions is None:
        return  # the probe's topic, of which nothing is read
    ours, noted = decode_origin(config.origin), None if newest is None else decode_origin(newest.origin)
    if ours is not None and noted is not None and noted.format_level > ours.format_level:
        raise LogMismatch(
            f"topic {config.topic} was upgraded to format level {noted.format_level} while this process had it open"
            f" at level {ours.format_level}: restart this process"
        )


def _epoch_base(producer_id: int, newest: Stamp | None) -> int:
    if newest is None:
        return 0
    if newest.producer_id == producer_id:
        return newest.epoch_base
    return newest.epoch_base + newest.producer_epoch + 1


async def _next_producer_epoch(link: KafkaLink, config: WriterConfig, transactional_id: str) -> tuple[int, int]:
    prefix = owner_id_prefix(config.topic)

    async def attempt() -> tuple[int, int]:
        request = init_producer_id(transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        response = await link.ask_transaction_coordinator(transactional_id, request, prefix=prefix)
        error = link.settled(response.error_code, f"InitProducerId of {transactional_id}")
        if error is not ErrorCode.none:
            raise refusal_error("InitProducerId", error, "WRITE", prefix, who=link.who)
        return response.producer_id, response.producer_epoch

    return await retry(attempt, timeout_ms=config.delivery_timeout_ms)


class KafkaWriter:
    """Appends to one partition until a newer writer has; a LogWriter."""

    def __init__(
        self, link: KafkaLink, config: WriterConfig, stamp: Stamp, *, was_owned: bool = False, end_offset: int = 0
    ) -> None:
        """`end_offset`: one past a record that is known to be in the partition."""
        self.was_owned = was_owned
        self._link = link
        self._config = config
        self._lane = config.lane
        self._stamp = stamp
        self._sequence = 0
        self._end_offset = end_offset
        self._next_offset: int | None = None
        self._fate: LogError | None = None
        self.last_batch: bytes | None = None
        """The last batch, if it is small enough to be kept, to be sent again (resent_batches.py)."""

    @property
    def partition(self) -> int:
        return self._config.partition

    @property
    def epoch(self) -> int:
        return self._stamp.epoch_base + self._stamp.producer_epoch

    @property
    def next_offset(self) -> int | None:
        return self._next_offset

    @property
    def marks(self) -> Marks | None:
        """The marks that earlier owners have noted; None: not known, before the first append."""
        stamp = self._stamp
        if stamp.marked_from is None or stamp.native_from is None:
            return None
        return Marks(since=stamp.marked_from, native_from=stamp.native_from, home=self._config.home)

    async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        """See LogWriter. After Deposed or LogUnavailable, or a cancelled append, every further append raises."""
        if self._fate is not None:
            raise self._fate
        # A sequence number is used for one batch only. If this append ends early, for whatever reason, it is unknown
        # whether the batch was stored, so the writer stays unusable unless the append completes.
        self._fate = LogUnavailable(f"{self._named()}: an earlier append did not complete; its outcome is not known")
        verdicts: list[AppendRefused | None] = []
        try:
            for indices in pack(transitions, limit_bytes=self._config.limit_bytes):
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
        size_bytes = sum(map(uncompressed_bytes, transitions))
        if size_bytes > UNCOMPRESSED_BYTES_MAX and len(transitions) == 1:
            return [AppendRefused(size_bytes=size_bytes, limit_bytes=UNCOMPRESSED_BYTES_MAX)]
        encode = partial(
            encode_batch,
            transitions,
            self._stamp,
            base_sequence=self._sequence,
            timestamp_ms=self._config.wall_ms(),
        )
        batch = encode() if size_bytes <= _ENCODED_AT_ONCE_BYTES else await asyncio.to_thread(encode)
        if len(batch) <= self._config.limit_bytes and (base_offset := await self._send(batch)) is not None:
            self._sequence = (self._sequence + records) % _SEQUENCES
            self.last_batch = batch if len(batch) <= _REPEATED_BYTES_MAX else None
            if 0 <= base_offset < self._end_offset:
                raise await self._lost_its_end(base_offset)
            self._note_position(base_offset, records)
            return [None] * len(transitions)
        if len(transitions) == 1:
            # If the broker refused it, its limit was lowered after the log was opened.
            limit_bytes = min(self._config.limit_bytes, len(batch) - 1)
            return [AppendRefused(size_bytes=len(batch), limit_bytes=limit_bytes)]
        middle = len(transitions) // 2
        return [
            *await self._append_together(transitions[:middle]),
            *await self._append_together(transitions[middle:]),
        ]

    def _note_position(self, base_offset: int, records: int) -> None:
        """Note the offset of a batch; -1: the broker does not report it. Foreign records may precede it."""
        if base_offset >= 0 and None in {self._stamp.marked_from, self._stamp.native_from}:
            marked_from, native_from = (
                base_offset if noted is None else noted for noted in (self._stamp.marked_from, self._stamp.native_from)
            )
            self._stamp = msgspec.structs.replace(self._stamp, marked_from=marked_from, native_from=native_from)
        self._end_offset = max(self._end_offset, base_offset) + records
        self._next_offset = self._end_offset if base_offset >= 0 else None

    async def _lost_its_end(self, base_offset: int) -> LogMismatch:
        with contextlib.suppress(TryAgain):
            await self._link.refresh()
        return self._link.refusal(self._config.topic) or LogMismatch(
            f"{self._named()} ended at offset {self._end_offset} but accepted an append at {base_offset}: it has"
            f" lost acknowledged records, or the topic was deleted and recreated. {MADE_ANEW}"
        )

    async def _send(self, batch: bytes) -> int | None:
        """Send a batch; return its first offset, -1 if the broker does not report it, None if the batch is too
        large.
        """
        sent_before = False

        async def attempt() -> int | None:
            nonlocal sent_before
            again, sent_before = sent_before, True
            code, base_offset = await self._produce(batch)
            return self._outcome(code, base_offset, again=again)

        try:
            return await retry(attempt, timeout_ms=self._config.delivery_timeout_ms)
        except LogUnavailable as error:
            raise type(error)(f"{self._named()}: {error}") from error

    async def _produce(self, batch: bytes) -> tuple[ErrorCode, int]:
        config, timeout_ms = self._config, self._link.timeouts.produce_timeout_ms
        # Half of our own limit, so that the broker's REQUEST_TIMED_OUT arrives before the connection is closed.
        request = produce(config.topic, [(config.partition, batch)], acks=ALL_IN_SYNC, timeout_ms=timeout_ms // 2)
        response = await self._link.ask_leader(
            config.topic, config.partition, request, lane=self._lane, timeout_ms=timeout_ms
        )
        return produced(response)[config.partition]

    def _outcome(self, code: ErrorCode, base_offset: int, *, again: bool) -> int | None:
        match self._link.settled(code, "Produce"):
            case ErrorCode.none | ErrorCode.duplicate_sequence_number:
                return base_offset
            case ErrorCode.invalid_producer_epoch | ErrorCode.producer_fenced:
                raise Deposed(self.partition, self.epoch)
            case ErrorCode.message_too_large | ErrorCode.record_list_too_large if not again:
                return None
            case ErrorCode.invalid_topic_exception:  # which a broker returns only for its own internal topics
                raise LogMismatch(
                    f"{self._named()}: no client may write there through a Muster sidecar,"
                    f" and {self._link.asked_at} is a sidecar, not a broker. Name the brokers behind it"
                )
            case ErrorCode.invalid_timestamp:
                raise LogUnavailable(self._clock_is_off())
            case error:
                # Including OUT_OF_ORDER_SEQUENCE_NUMBER: the partition does not end with our last append.
                raise refusal_error(
                    "the broker refuses the batch", error, "WRITE", self._config.topic, who=self._link.who
                )

    def _clock_is_off(self) -> str:
        """Explain INVALID_TIMESTAMP; the response does not say by how much."""
        topic = self._config.topic
        return (
            "the broker refuses the batch: INVALID_TIMESTAMP: by the clock of this machine it is"
            f" {_utc(self._config.wall_ms())}, and topic {topic} does not allow this difference from"
            " the broker's (message.timestamp.after.max.ms, message.timestamp.before.max.ms). Correct the clock that is"
            f" off, or run `{alter_command(topic, self._link.asked_at, CLOCK_CONFIGS)}`"
        )

    def _named(self) -> str:
        return f"partition {self.partition} of {self._config.topic}"


def _utc(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="seconds")
