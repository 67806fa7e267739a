"""The origin of an event topic: its cluster, the format level of its last writer, its number of partitions.

What belongs here: reading the origin, and refusing another one. A topic that was mirrored to another cluster has the
same name and events there, but its writers are not fenced against those of the first one, and its epochs mean nothing:
an owner of it would make a second truth. And an owner of an older version must not depose one of a newer version, only
to find out that it cannot read that one's records. And in a topic that was given partitions, most groups would be
searched in the wrong ones. All of it has to be known before anything is claimed or written, and before the whole log is
read; so it stands in headers, which copies of the topic have too: the number of partitions in each batch's last record,
the rest in the mark of each record (marks.py). Records of strangers behind it are passed over, those of mirrors too.

What is not ideal: a topic that was written before origins were noted is taken as ours.
"""

import msgspec

from muster.events.log.base import LogMismatch
from muster.events.log.kafka.client.link import KafkaLink
from muster.events.log.kafka.marks import Origin, decode_origin
from muster.events.log.kafka.reader import newest_stamp
from muster.events.records import FORMAT_LEVEL_WRITTEN_MIN, LogTooNew


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of a topic's last owners. `origin`: of owners on this cluster, if there were any, else elsewhere.

    `partitions`: how many the topic had. None: not noted.
    """

    origin: Origin | None
    partitions: int | None

    @property
    def format_level(self) -> int:
        """The level at which the log is gone on with."""
        return max(FORMAT_LEVEL_WRITTEN_MIN, self.origin.format_level if self.origin else 0)


async def check_origin(link: KafkaLink, topic: str, partitions: int, ours: Origin, *, timeout_ms: int) -> Notes:
    """Check the topic's origin, without writing; `link` follows it. `ours`: with the highest level that we know.

    Returns what is noted. Raises LogMismatch, LogTooNew, LogUnavailable.
    """
    notes = await notes_of(link, topic, partitions, ours.cluster_id, timeout_ms=timeout_ms)
    if notes.origin is not None:
        refuse_another(ours, notes.origin, topic=topic)
    if notes.partitions not in {None, partitions}:
        raise LogMismatch(
            f"topic {topic} has {partitions} partitions, and its events were written when it had {notes.partitions}: a"
            " group's partition follows from their number, so it is never changed. Restore the topic with"
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
            f"topic {topic} was written on cluster {noted.cluster_id}, and this is cluster {ours.cluster_id}: a copy of"
            " it can be read (muster replay), but not be gone on with here; start with another topic"
        )
