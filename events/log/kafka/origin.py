"""Where an event topic comes from: its cluster, the format level of who wrote last, and how many partitions it had.

What belongs here: the note, and whom it turns away. A topic that was mirrored to another cluster has the same name and
the same events there, but nobody there fences its writers against those of the first one, and its epochs mean nothing:
an owner of it would make a second truth. And an owner of an older version must not depose one of a newer version, only
to find out that it cannot read what that one wrote. And a topic that was given partitions keeps most of its groups
where nobody looks for them. All of it is to be known before anything is claimed or written, and before all of the log
is read; so it stands in headers, where copies of the topic have it too: the number in each batch's last record, the
rest in the mark of each record (marks.py). What strangers appended behind is passed over, and so is what a mirror
brought in from elsewhere.

What is not ideal: a topic that was written before there was a note says nothing and is taken as ours.
"""

import msgspec

from muster.events.log.base import LogMismatch
from muster.events.log.kafka.client.link import KafkaLink
from muster.events.log.kafka.marks import Origin, decode_origin
from muster.events.log.kafka.reader import newest_stamp
from muster.events.records import LogTooNew


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic's last owners noted. `origin`: on this cluster, if any were there, else elsewhere.

    `partitions`: how many the topic had. None: not noted.
    """

    origin: Origin | None
    partitions: int | None


async def check_origin(link: KafkaLink, topic: str, partitions: int, ours: Origin, *, limit_ms: int) -> None:
    """Nothing is written. Raises LogMismatch, LogTooNew and LogUnavailable; `link` follows the topic."""
    notes = await notes_of(link, topic, partitions, ours.cluster_id, limit_ms=limit_ms)
    if notes.origin is not None:
        refuse_another(ours, notes.origin, topic=topic)
    if notes.partitions not in {None, partitions}:
        raise LogMismatch(
            f"topic {topic} has {partitions} partitions, and its events were written when it had {notes.partitions}: a"
            " group's partition follows from their number, so it is never changed. Restore the topic with"
            f" {notes.partitions} partitions, or start with another --log"
        )


async def notes_of(link: KafkaLink, topic: str, partitions: int, cluster_id: str | None, *, limit_ms: int) -> Notes:
    """What is noted in the topic; of several format levels the highest. Raises LogUnavailable."""
    here: Origin | None = None
    elsewhere: Origin | None = None
    noted: int | None = None
    for partition in range(partitions):
        newest = await newest_stamp(link, topic, partition, home=cluster_id, limit_ms=limit_ms)
        found = None if newest is None else decode_origin(newest.origin)
        if newest is not None and found is not None:
            here = found if here is None or found.format_level > here.format_level else here
            noted = noted or newest.partitions
        elif here is None and elsewhere is None:
            anybody = await newest_stamp(link, topic, partition, home=None, limit_ms=limit_ms)
            elsewhere = None if anybody is None else decode_origin(anybody.origin)
    return Notes(origin=here or elsewhere, partitions=noted)


def refuse_another(ours: Origin, noted: Origin, *, topic: str) -> None:
    """Raises LogMismatch and LogTooNew."""
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
