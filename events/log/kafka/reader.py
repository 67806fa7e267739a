"""Reads a partition of the event topic: its end, the records between two offsets, its last writer.

Uses ListOffsets and Fetch. Knows nothing of the meaning of records.

How it works: no consumer and no group, just Fetch requests to the partition's leader, one after another, up to an end
that is known beforehand. aiokafka's own consumer creates a Python object per record and is three times slower. A fetch
returns the first batch whole however large it is (KIP-74), so no batch is too large to be read. The end may be after a
gap that compaction left: an empty response from a leader that knows the end means that there is no more.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from muster.events.kafka.errors import LinkError, TryAgain
from muster.events.kafka.exchange import Question
from muster.events.kafka.requests import Fetched, fetch, fetched_partition, list_offsets, listed_offsets
from muster.events.log.base import Ends, LogError, LogUnavailable, OddAnswer
from muster.events.log.kafka.batches import Stamp
from muster.events.log.kafka.client.errors import refusal_error, retry
from muster.events.log.kafka.client.link import KafkaLink, PartitionLane
from muster.events.log.kafka.decoding import decode_batches, decode_raw, writers_of
from muster.events.log.kafka.marks import LastOwnerSearch, Marks, Written
from muster.events.log.limits import CHUNK_RECORDS_MAX
from muster.events.records import BrokenBatch, RawRecord, StoredRecord

R = TypeVar("R")
_Decode = Callable[[bytes, int], Iterator[tuple[list[R], int]]]
"""Decodes fetched bytes from a position on; yields records in pieces, each with the offset after it."""

_EARLIEST = -2
_LATEST = -1
_LOOK_AGAIN_AFTER_MS = 200
_ENDS_LANE = "ends"
_DECODED_WITHIN_S = 0.004
"""How long decoding may block the loop."""

FETCH_BYTES = 1024 * 1024
"""The size of one fetch: large enough to make the overhead of requests negligible."""

_LOOK_BACK_TIMES = 8
_LOOK_BACK_OFFSETS_MAX = 50_000
"""The steps back in the search for the last owner's batch, in offsets: the factor by which they grow, and the largest
step.
"""

_RECENT_RECORDS = 500


async def end_offset(link: KafkaLink, topic: str, partition: int, *, timeout_ms: int) -> int:
    """Return the offset after the last record that all in-sync replicas have. Raises LogUnavailable."""
    return await retry(lambda: _offset(link, topic, partition, _LATEST), timeout_ms=timeout_ms)


async def begin_offset(link: KafkaLink, topic: str, partition: int, *, timeout_ms: int) -> int:
    """Return the offset at which the partition begins: 0 unless its beginning was deleted. Raises LogUnavailable."""
    return await retry(lambda: _offset(link, topic, partition, _EARLIEST), timeout_ms=timeout_ms)


async def begin_offsets(
    link: KafkaLink, topic: str, partitions: Sequence[int], *, timeout_ms: int
) -> Mapping[int, int]:
    """Return the offsets at which the partitions begin, asked in one request for each broker. Raises LogUnavailable.

    `link` follows the topic. Partitions without a result are requested again; results that have arrived are kept.
    """
    begins: dict[int, int] = {}

    async def attempt() -> None:
        missing = [each for each in partitions if each not in begins]
        async for found in _all_offsets(link, topic, missing, _EARLIEST, timeout_ms=link.timeouts.fetch_timeout_ms):
            begins.update(found)
        missing = [each for each in missing if each not in begins]
        if missing:
            # A request for one partition raises the error that the others only skipped, such as a missing permission.
            begins[missing[0]] = await _offset(link, topic, missing[0], _EARLIEST)
            raise TryAgain(f"partition {missing[0]} of {topic} is missing from the answers")

    await retry(attempt, timeout_ms=timeout_ms)
    return begins


async def end_offsets(link: KafkaLink, topic: str, partitions: Sequence[int], *, timeout_ms: int) -> Ends:
    """See FollowedLog: one request for each broker, sent once."""
    async for found in _all_offsets(link, topic, partitions, _LATEST, timeout_ms=timeout_ms):
        yield found


async def _all_offsets(
    link: KafkaLink, topic: str, partitions: Sequence[int], timestamp: int, *, timeout_ms: int
) -> Ends:
    by_leader: dict[int, list[int]] = {}
    for partition in partitions:
        leader = link.leader(topic, partition)
        if leader is None:
            link.refresh_soon()
        else:
            by_leader.setdefault(leader, []).append(partition)
    asking = [
        asyncio.create_task(
            _offsets_at(link, leader, list_offsets(topic, led, timestamp), timeout_ms=timeout_ms), name=f"ends-{leader}"
        )
        for leader, led in by_leader.items()
    ]
    try:
        for answered in asyncio.as_completed(asking):
            yield await answered
    finally:
        for each in asking:
            each.cancel()


async def _offsets_at(link: KafkaLink, leader: int, request: Question, *, timeout_ms: int) -> Mapping[int, int]:
    try:
        response = await link.ask(leader, request, lane=_ENDS_LANE, timeout_ms=timeout_ms)
    except (LinkError, LogError):
        return {}
    offsets = {}
    for partition, (error, offset) in listed_offsets(response).items():
        with contextlib.suppress(TryAgain):  # such as a leader that has moved; `settled` refreshes the metadata then
            if link.settled(error, "ListOffsets") is ErrorCode.none:
                offsets[partition] = offset
    return offsets


async def open_for_reading(link: KafkaLink, topic: str, partition: int) -> None:
    """Open the connections to the partition's leader that this module's requests use, for callers that must not wait
    for that later.
    """
    lane = _lane(topic, partition)
    await link.open_lane_of_leader(topic, partition, lane=lane)
    await link.open_lane_of_leader(topic, partition, lane=lane, timeout_ms=link.timeouts.fetch_timeout_ms)


async def read(
    link: KafkaLink, topic: str, partition: int, *, start: int, end: int, timeout_ms: int, marks: Marks | None = None
) -> AsyncIterator[Sequence[StoredRecord]]:
    """Read chunks of the records at offsets from `start` up to `end` (exclusive).

    `marks`: the offset from which owners mark, if known. Raises LogUnavailable if the leader cannot be reached for
    `timeout_ms`, or its log is shorter than `end`; BrokenBatch for an unreadable batch, after everything before it.
    """
    known = marks or Marks()

    def decode(fetched: bytes, position: int) -> Iterator[tuple[list[StoredRecord], int]]:
        return decode_batches(fetched, partition, start=position, end=end, marks=known)

    async for chunk in _read(link, topic, partition, decode, start=start, end=end, timeout_ms=timeout_ms):
        yield chunk


async def read_raw(
    link: KafkaLink, topic: str, partition: int, *, start: int, end: int, timeout_ms: int, marks: Marks
) -> AsyncIterator[Sequence[RawRecord]]:
    """Read chunks like `read`, of records byte by byte. Raises the same errors."""

    def decode(fetched: bytes, position: int) -> Iterator[tuple[list[RawRecord], int]]:
        return decode_raw(fetched, partition, start=position, end=end, marks=marks)

    async for chunk in _read(link, topic, partition, decode, start=start, end=end, timeout_ms=timeout_ms):
        yield chunk


async def _read(
    link: KafkaLink, topic: str, partition: int, decode: _Decode[R], *, start: int, end: int, timeout_ms: int
) -> AsyncIterator[Sequence[R]]:
    position = start
    while position < end:
        fetched = await retry(
            lambda position=position: _fetch(link, topic, partition, position, end),  # type: ignore[misc]
            timeout_ms=timeout_ms,
        )
        if fetched.error is ErrorCode.offset_out_of_range:
            position = await _position_in_range(link, topic, partition, position, timeout_ms)
            continue
        if not fetched.batches:
            return
        before, chunk = position, list[R]()
        held_since_s = time.perf_counter()
        broken: BrokenBatch | None = None
        try:
            for records, after in decode(fetched.batches, before):
                position = after
                chunk += records
                if len(chunk) >= CHUNK_RECORDS_MAX:
                    yield chunk
                    chunk = []
                if time.perf_counter() - held_since_s >= _DECODED_WITHIN_S:
                    # Decoding never awaits, so an owner that follows partitions could not respond to clients in the
                    # meantime.
                    await asyncio.sleep(0)
                    held_since_s = time.perf_counter()
        except BrokenBatch as error:
            broken = error
        if chunk:
            yield chunk
        if broken is not None:
            raise broken
        if position == before:
            raise LogUnavailable(
                f"no complete batch was returned for offset {position} of partition {partition} of {topic}"
            )


async def newest_stamp(
    link: KafkaLink, topic: str, partition: int, *, home: str | None, timeout_ms: int, end: int | None = None
) -> Stamp | None:
    """Return the stamp of the last owner's batch before `end` (default: of the partition), past foreign ones, or None.

    `home`: the cluster that owners have noted; None: any.
    """
    stop = await end_offset(link, topic, partition, timeout_ms=timeout_ms) if end is None else end
    newest, first, width = LastOwnerSearch(asks_native=home is not None), 0, 1
    while stop > first and not newest.found:
        begin = max(first, stop - width)
        batches, first = await _writers(link, topic, partition, start=begin, end=stop, home=home, timeout_ms=timeout_ms)
        newest.look_back(batches)
        stop, width = begin, min(width * _LOOK_BACK_TIMES, _LOOK_BACK_OFFSETS_MAX)
    return newest.stamp


async def _writers(
    link: KafkaLink, topic: str, partition: int, *, start: int, end: int, home: str | None, timeout_ms: int
) -> tuple[list[Written], int]:
    """Return the writers of the batches between two offsets, and the first offset if it is after `start`."""
    batches: list[Written] = []
    position, first = start, 0
    while position < end:
        fetched = await retry(
            lambda position=position: _fetch(link, topic, partition, position, end),  # type: ignore[misc]
            timeout_ms=timeout_ms,
        )
        if fetched.error is ErrorCode.offset_out_of_range:
            position = first = await _position_in_range(link, topic, partition, position, timeout_ms)
            continue
        before = position
        for written, position in writers_of(fetched.batches, end=end, home=home):  # noqa: B007 -- the last one's is used
            if written is not None:
                batches.append(written)
        if position == before:
            break  # compaction has removed the rest
        await asyncio.sleep(0)
    return batches, first


async def sample_batches(link: KafkaLink, topic: str, partition: int, *, timeout_ms: int) -> AsyncIterator[bytes]:
    """Yield batches as they are stored: the newest one, some before it, and the oldest. Empty partitions yield none."""
    end = await end_offset(link, topic, partition, timeout_ms=timeout_ms)
    start = await begin_offset(link, topic, partition, timeout_ms=timeout_ms)
    if start >= end:
        return
    for position in sorted({end - 1, max(start, end - _RECENT_RECORDS), start}, reverse=True):
        fetched = await retry(
            lambda position=position: _fetch(link, topic, partition, position, end),  # type: ignore[misc]
            timeout_ms=timeout_ms,
        )
        yield fetched.batches


async def _position_in_range(link: KafkaLink, topic: str, partition: int, position: int, timeout_ms: int) -> int:
    """Return the position to continue from after OFFSET_OUT_OF_RANGE: the log start offset, if it has moved past."""
    earliest = await begin_offset(link, topic, partition, timeout_ms=timeout_ms)
    if earliest <= position:
        raise LogUnavailable(f"partition {partition} of {topic} ends before offset {position}")
    return earliest


async def _offset(link: KafkaLink, topic: str, partition: int, timestamp: int) -> int:
    request = list_offsets(topic, [partition], timestamp)
    response = await link.ask_leader(topic, partition, request, lane=_lane(topic, partition))
    answered = listed_offsets(response)
    if partition not in answered:
        raise OddAnswer(f"ListOffsets of partition {partition} of {topic}: the answer lacks it")
    code, offset = answered[partition]
    if (error := link.settled(code, "ListOffsets")) is not ErrorCode.none:
        raise refusal_error(f"the offsets of partition {partition} of {topic}", error, "DESCRIBE", topic, who=link.who)
    return offset


async def _fetch(link: KafkaLink, topic: str, partition: int, position: int, end: int) -> Fetched:
    # If compaction removed the offset, the broker waits for wait_ms, looks again and returns an empty response;
    # otherwise it responds immediately.
    request = fetch(topic, partition, position, bytes_max=FETCH_BYTES, wait_ms=_LOOK_AGAIN_AFTER_MS)
    response = await link.ask_leader(
        topic, partition, request, lane=_lane(topic, partition), timeout_ms=link.timeouts.fetch_timeout_ms
    )
    fetched = _checked(link, response)
    if fetched.error not in {ErrorCode.none, ErrorCode.offset_out_of_range}:
        raise refusal_error(f"reading partition {partition} of {topic}", fetched.error, "READ", topic, who=link.who)
    if not fetched.batches and fetched.high_watermark < end and fetched.error is ErrorCode.none:
        # A new leader learns the high watermark shortly after its election; or records were lost.
        raise TryAgain(f"partition {partition} of {topic} ends at {fetched.high_watermark}, before {end}")
    return fetched


def _checked(link: KafkaLink, response: Any) -> Fetched:  # noqa: ANN401 -- FetchResponse, in a version
    found = fetched_partition(response)
    if found is None:
        raise TryAgain("Fetch: throttled by a quota")
    link.settled(response.error_code, "Fetch")
    link.settled(found.error, "Fetch")
    return found


def _lane(topic: str, partition: int) -> PartitionLane:
    return PartitionLane("read", topic, partition)
