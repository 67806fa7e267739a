"""Checks an existing topic before anything is claimed or written: whose records it has, and the origin of its events.

Distinguishes Muster's records from others, and refuses a topic that has only other records, so that a mistyped `--log`
does not touch another team's topic and cluster. It also reads the origin (the cluster, the format level of its last
writer, its number of partitions), and refuses a different one.

How it works: a few records of each partition are read, the newest and the oldest. One of Muster's is enough: foreign
records may be appended to an event topic, and are skipped there. Every owner has marked its records by a header whose
name begins with `muster`; records from before there were headers are recognized by their key, whose form never changes.
There may be foreign records before the first owner's record, and many after the last. So if a log of this name was
opened before, which the fencing probe's topic shows, the whole topic is searched for owners.

A topic that was mirrored to another cluster has the same name and events there, but its writers are not fenced against
those of the first one, and its epochs mean nothing: an owner of it would create a second source of truth. An owner of
an older version must not depose one of a newer version, only to find that it cannot read that one's records. And in a
topic to which partitions were added, most groups would be looked up in the wrong ones. So the origin is in headers,
which copies of the topic also have: the number of partitions in each batch's last record, the rest in the mark of each
record (marks.py). Foreign records after it are skipped, including those of mirrors.

The drawback: a topic that is currently empty seems to belong to no one. A reader checks whether an owner has ever
opened it (opening.py), an owner checks its settings (client/settings.py). A topic that was written before versions
noted origins is assumed to be ours.
"""

from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto

import msgspec

from muster.events.log.base import LogMismatch
from muster.events.log.kafka.client.link import KafkaLink
from muster.events.log.kafka.decoding import records_of
from muster.events.log.kafka.marks import KEY_PREFIXES, Origin, decode_origin
from muster.events.log.kafka.reader import newest_stamp, sample_batches
from muster.events.records import FORMAT_LEVEL_WRITTEN_MIN, LogTooNew

_HEADER_PREFIX = "muster"


class Contents(Enum):
    """The kind of records in a topic, as far as they were read."""

    NOTHING = auto()
    OURS = auto()
    FOREIGN = auto()


async def contents_of(link: KafkaLink, topic: str, partitions: int, *, timeout_ms: int) -> Contents:
    """Find out whose records the topic has, without writing; `link` follows the topic. Raises LogUnavailable."""
    found = Contents.NOTHING
    for partition in range(partitions):
        async for fetched in sample_batches(link, topic, partition, timeout_ms=timeout_ms):
            for is_ours in _whose(fetched):
                if is_ours:
                    return Contents.OURS
                found = Contents.FOREIGN
    return found


async def refuse_foreign(
    link: KafkaLink, topic: str, partitions: int, *, was_opened: Callable[[], Awaitable[bool]], timeout_ms: int
) -> Contents:
    """Return the topic's contents. `was_opened`: whether a log of this name was opened before.

    Raises LogMismatch if they are not Muster's, and LogUnavailable.
    """
    contents = await contents_of(link, topic, partitions, timeout_ms=timeout_ms)
    if contents is Contents.FOREIGN:
        if await was_opened():
            for partition in range(partitions):
                if await newest_stamp(link, topic, partition, home=None, timeout_ms=timeout_ms) is not None:
                    return Contents.OURS
        raise LogMismatch(
            f"topic {topic} is a foreign topic, not an event log: Muster wrote none of its newest"
            " and oldest records. It was left as it is; give --log another name (muster serve creates what does not"
            " exist yet)"
        )
    return contents


def _whose(fetched: bytes) -> Iterator[bool]:
    """Yield for each record of the whole batches whether an owner wrote it."""
    for record in records_of(fetched):
        yield record is not None and (_is_marked(record.headers) or (record.key or b"").startswith(KEY_PREFIXES))


def _is_marked(headers: list[tuple[str, bytes | None]]) -> bool:
    return any(name.startswith(_HEADER_PREFIX) for name, _ in headers)


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of a topic's last owners. `origin`: of owners on this cluster, if there were any, else elsewhere.

    `partitions`: how many the topic had. None: not noted.
    """

    origin: Origin | None
    partitions: int | None

    @property
    def format_level(self) -> int:
        """The format level that the next owner writes."""
        return max(FORMAT_LEVEL_WRITTEN_MIN, self.origin.format_level if self.origin else 0)


async def check_origin(link: KafkaLink, topic: str, partitions: int, ours: Origin, *, timeout_ms: int) -> Notes:
    """Check the topic's origin, without writing; `link` follows it. `ours` has the highest level that we know.

    Returns the notes. Raises LogMismatch, LogTooNew, LogUnavailable.
    """
    notes = await notes_of(link, topic, partitions, ours.cluster_id, timeout_ms=timeout_ms)
    if notes.origin is not None:
        refuse_another(ours, notes.origin, topic=topic)
    if notes.partitions not in {None, partitions}:
        raise LogMismatch(
            f"topic {topic} has {partitions} partitions, and its events were written when it had {notes.partitions}: a"
            " group's partition depends on this number, so it must never change. Restore the topic with"
            f" {notes.partitions} partitions, or start with another --log"
        )
    return notes


async def notes_of(link: KafkaLink, topic: str, partitions: int, cluster_id: str | None, *, timeout_ms: int) -> Notes:
    """Read the notes of the topic; of several format levels the highest. Raises LogUnavailable."""
    here: Origin | None = None
    elsewhere: Origin | None = None
    noted: int | None = None
    for partition in range(partitions):
        newest = await newest_stamp(link, topic, partition, home=cluster_id, timeout_ms=timeout_ms)
        found = None if newest is None else decode_origin(newest.origin)
        if newest is not None and found is not None:
            here = found if here is None or found.format_level > here.format_level else here
            noted = noted or newest.partitions
        elif here is None and elsewhere is None:
            anybody = await newest_stamp(link, topic, partition, home=None, timeout_ms=timeout_ms)
            elsewhere = None if anybody is None else decode_origin(anybody.origin)
    return Notes(origin=here or elsewhere, partitions=noted)


def refuse_another(ours: Origin, noted: Origin, *, topic: str) -> None:
    """Compare the origins. Raises LogMismatch and LogTooNew."""
    if noted.format_level > ours.format_level:
        raise LogTooNew(
            f"topic {topic} has format level {noted.format_level}, this version of Muster knows {ours.format_level}; "
            "use a newer Muster"
        )
    if ours.cluster_id and noted.cluster_id and noted.cluster_id != ours.cluster_id:
        raise LogMismatch(
            f"topic {topic} was written on cluster {noted.cluster_id}, and this is cluster {ours.cluster_id}: a copy"
            " of it can be read (muster replay), but not written here; start with another topic"
        )
