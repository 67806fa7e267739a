"""Sends the last batches of many writers again, one request per broker, to prove that no writer was deposed.

A batch that a writer has appended gets the same response as the first time, from the partition leader's memory of the
producer's last five; once a newer epoch has appended, it is refused. Meanwhile the writer may append: a repeated batch
that arrives after more than five newer ones is out of order, which proves nothing. One attempt is made; a caller that
needs certainty appends.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from muster.events.kafka.errors import LinkError, TryAgain
from muster.events.kafka.requests import produce, produced
from muster.events.log.base import Deposed, LogError, LogWriter, Repeated, Repeats
from muster.events.log.kafka.client.link import KafkaLink
from muster.events.log.kafka.producer import ALL_IN_SYNC, KafkaWriter

_LANE: Final = "repeats"


async def repeat(link: KafkaLink, topic: str, writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:
    """See EventLog. A large batch is not kept, and cannot be sent again."""
    by_leader: dict[int, list[KafkaWriter]] = {}
    unknown: dict[int, Repeated] = {}
    for writer in writers:
        leader = link.leader(topic, writer.partition)
        if isinstance(writer, KafkaWriter) and writer.last_batch is not None and leader is not None:
            by_leader.setdefault(leader, []).append(writer)
        else:
            unknown[writer.partition] = False
    if unknown:
        yield unknown
    asking = [asyncio.create_task(_ask(link, topic, *each, timeout_ms=timeout_ms)) for each in by_leader.items()]
    try:
        for answered in asyncio.as_completed(asking):
            yield await answered
    finally:
        for each in asking:
            each.cancel()


async def _ask(
    link: KafkaLink, topic: str, leader: int, writers: Sequence[KafkaWriter], *, timeout_ms: int
) -> Mapping[int, Repeated]:
    batches = [(writer.partition, writer.last_batch) for writer in writers]
    request = produce(topic, batches, acks=ALL_IN_SYNC, timeout_ms=timeout_ms)
    try:
        response = await link.ask(leader, request, lane=_LANE, timeout_ms=timeout_ms)
    except (LinkError, LogError):  # an append will show what is wrong
        return dict.fromkeys((writer.partition for writer in writers), False)
    answered = produced(response)
    return {writer.partition: _outcome(link, writer, answered[writer.partition][0]) for writer in writers}


def _outcome(link: KafkaLink, writer: KafkaWriter, code: ErrorCode) -> Repeated:
    try:
        error = link.settled(code, "Produce")
    except TryAgain:
        return False
    if error in {ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced}:
        return Deposed(writer.partition, writer.epoch)
    return error in {ErrorCode.none, ErrorCode.duplicate_sequence_number}
