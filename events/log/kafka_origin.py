"""Where an event topic comes from: its cluster and the format level of who wrote last, noted in the topic itself.

What belongs here: the note, and whom it turns away. A topic that was mirrored to another cluster has the same name and
the same events there, but nobody there fences its writers against those of the first one, and its epochs mean nothing:
an owner of it would make a second truth. And an owner of an older version must not depose one of a newer version, only
to find out that it cannot read what that one wrote. Both are to be known before anything is claimed or written, and
before all of the log is read; so each batch says it, in a header of its last record, where copies of the topic have it
too. What strangers appended behind it is passed over.

What is not ideal: a topic that was written before there was a note says nothing and is taken as ours.
"""

from events.log.base import LogMismatch
from events.log.kafka_link import KafkaLink
from events.log.kafka_marks import Origin, decode_origin
from events.log.kafka_reader import newest_stamp
from events.records import LogTooNew


async def check_origin(link: KafkaLink, topic: str, partitions: int, ours: Origin, *, limit_ms: int) -> None:
    """Nothing is written. Raises LogMismatch, LogTooNew and LogUnavailable; `link` follows the topic."""
    found = await origin_found(link, topic, partitions, ours.cluster_id, limit_ms=limit_ms)
    if found is not None:
        refuse_another(ours, found, topic=topic)


async def origin_found(
    link: KafkaLink, topic: str, partitions: int, cluster_id: str | None, *, limit_ms: int
) -> Origin | None:
    """Where the topic's newest records were written: on that cluster, if any were, else elsewhere; None: not noted.

    Of several format levels the highest. Raises LogUnavailable.
    """
    elsewhere: Origin | None = None
    here: Origin | None = None
    for partition in range(partitions):
        newest = await newest_stamp(link, topic, partition, home=cluster_id, limit_ms=limit_ms)
        found = None if newest is None else decode_origin(newest.origin)
        if found is not None:
            here = found if here is None or found.format_level > here.format_level else here
        elif here is None and elsewhere is None:
            anybody = await newest_stamp(link, topic, partition, home=None, limit_ms=limit_ms)
            elsewhere = None if anybody is None else decode_origin(anybody.origin)
    return here or elsewhere


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
