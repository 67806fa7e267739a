"""Finds out if an existing topic is empty, has Muster's records, or another program's.

What belongs here: telling Muster's records from others, and the refusal of a topic that has only others. It is checked
before anything is written, claimed or created, so that a mistyped `--log` leaves another team's topic, and the cluster
around it, as they were.

How it works: a few records of each partition are read, its newest and its oldest. One of Muster's is enough: strangers
may append to an event topic, and are skipped there. Every owner has marked its records by a header whose name begins
with `muster`; what was written before there were headers is known by its key, whose form never changes. Strangers may
have written before the first owner, and a lot since. So where a log of this name was opened before, as the topic for
the probe of the fences tells, owners are looked for in all of it.

What is not ideal: a topic that is empty for the moment seems to belong to nobody. A reader goes by whether an owner has
ever opened it (log.py), an owner by its settings (client/settings.py).
"""

from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto

from muster.events.log.base import LogMismatch
from muster.events.log.kafka.client.link import KafkaLink
from muster.events.log.kafka.decoding import records_of
from muster.events.log.kafka.marks import KEY_PREFIXES
from muster.events.log.kafka.reader import newest_stamp, sample_batches

_HEADER_PREFIX = "muster"


class Contents(Enum):
    """The kind of records in a topic, as far as they were read."""

    NOTHING = auto()
    OURS = auto()
    SOMEBODY_ELSES = auto()


async def contents_of(link: KafkaLink, topic: str, partitions: int, *, timeout_ms: int) -> Contents:
    """Find out whose records the topic has. Nothing is written; `link` follows the topic. Raises LogUnavailable."""
    found = Contents.NOTHING
    for partition in range(partitions):
        async for fetched in sample_batches(link, topic, partition, timeout_ms=timeout_ms):
            for is_ours in _whose(fetched):
                if is_ours:
                    return Contents.OURS
                found = Contents.SOMEBODY_ELSES
    return found


async def refuse_somebody_elses(
    link: KafkaLink, topic: str, partitions: int, *, was_opened: Callable[[], Awaitable[bool]], timeout_ms: int
) -> Contents:
    """Return the topic's contents. `was_opened`: whether a log of this name was opened before.

    Raises LogMismatch when they are somebody else's, and LogUnavailable.
    """
    contents = await contents_of(link, topic, partitions, timeout_ms=timeout_ms)
    if contents is Contents.SOMEBODY_ELSES:
        if await was_opened():
            for partition in range(partitions):
                if await newest_stamp(link, topic, partition, home=None, timeout_ms=timeout_ms) is not None:
                    return Contents.OURS
        raise LogMismatch(
            f"topic {topic} is somebody else's and not an event log: none of its newest and oldest records was written"
            " by Muster. It was left as it is; give --log another name (muster serve makes what does not exist yet)"
        )
    return contents


def _whose(fetched: bytes) -> Iterator[bool]:
    """Yield for each record of the whole batches whether an owner wrote it."""
    for record in records_of(fetched):
        yield record is not None and (_is_marked(record.headers) or (record.key or b"").startswith(KEY_PREFIXES))


def _is_marked(headers: list[tuple[str, bytes | None]]) -> bool:
    return any(name.startswith(_HEADER_PREFIX) for name, _ in headers)
