"""Where an event topic comes from: its cluster and the format level of who wrote last, noted in the topic itself.

What belongs here: the note, and whom it turns away. A topic that was mirrored to another cluster has the same name and
the same events there, but nobody there fences its writers against those of the first one, and its epochs mean nothing:
an owner of it would make a second truth. And an owner of an older version must not depose one of a newer version, only
to find out that it cannot read what that one wrote. Both are to be known before anything is claimed or written, and
before all of the log is read; so each batch says it, in a header of its last record, where copies of the topic have it
too. What strangers appended behind it is passed over.

What is not ideal: a topic that was written before there was a note says nothing and is taken as ours.
"""

import msgspec

from events.log.base import LogMismatch
from events.log.kafka_link import KafkaLink
from events.log.kafka_reader import newest_stamp
from events.records import FORMAT_LEVEL, LogTooNew


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """`cluster_id`: as Kafka has it; empty when the brokers tell none."""

    cluster_id: str
    format_level: int

    def encode(self) -> bytes:
        """`LEVEL CLUSTER`, in ASCII letters."""
        return f"{self.format_level} {self.cluster_id}".encode()


def origin_of(cluster_id: str | None) -> Origin:
    """What we write on that cluster."""
    return Origin(cluster_id=cluster_id or "", format_level=FORMAT_LEVEL)


def decode_origin(noted: bytes) -> Origin | None:
    """None for what we have not written."""
    level, space, cluster_id = noted.decode(errors="replace").partition(" ")
    if not space or not (level.isascii() and level.isdecimal()):
        return None
    return Origin(cluster_id=cluster_id, format_level=int(level))


def is_elsewhere(noted: bytes, cluster_id: str | None) -> bool:
    """Whether what notes this was written on another cluster than that, as far as both are known."""
    origin = decode_origin(noted)
    return bool(origin and origin.cluster_id and cluster_id and origin.cluster_id != cluster_id)


async def check_origin(link: KafkaLink, topic: str, partitions: int, ours: Origin, *, limit_ms: int) -> None:
    """Nothing is written. Raises LogMismatch, LogTooNew and LogUnavailable; `link` follows the topic."""
    for partition in range(partitions):
        newest = await newest_stamp(link, topic, partition, limit_ms=limit_ms)
        noted = None if newest is None else decode_origin(newest.origin)
        if noted is not None:
            refuse_another(ours, noted, topic=topic)


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
