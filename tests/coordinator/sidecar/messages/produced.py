"""Produce requests as bytes, in every version and every form that a broker reads, including overlong varints.

kio writes only one form, and none before v3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

FLEXIBLE_FROM, TRANSACTIONAL_FROM, IDS_FROM = 9, 3, 13


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic of a request: the records of its partitions, from 0 on, and unknown tagged fields."""

    name: str
    topic_id: UUID | None
    records: Sequence[bytes | None]
    tags: Sequence[bytes] = ()
    partition_tags: Sequence[bytes] = ()


def varint(value: int, padding: int = 0) -> bytes:
    """A varint with this many bytes more than it needs."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def produced(
    version: int,
    topics: Sequence[Topic],
    *,
    acks: int = -1,
    client_id: str | None = "shop",
    transactional_id: str | None = None,
    header_tags: Sequence[bytes] = (),
    padding: int = 0,
) -> bytes:
    """A complete request without its length, with correlation id 7; `padding` makes its varints longer."""
    writer = _Writer(version, padding)
    frame = bytes(2) + version.to_bytes(2, "big") + (7).to_bytes(4, "big")
    frame += _legacy(None if client_id is None else client_id.encode(), 2)
    frame += writer.tags(header_tags)
    if version >= TRANSACTIONAL_FROM:
        frame += writer.text(None if transactional_id is None else transactional_id.encode())
    frame += acks.to_bytes(2, "big", signed=True) + (3_000).to_bytes(4, "big")
    return frame + writer.count(len(topics)) + b"".join(map(writer.topic, topics)) + writer.tags(())


class _Writer:
    """Writes fields in one version's form."""

    def __init__(self, version: int, padding: int) -> None:
        self.flexible = version >= FLEXIBLE_FROM
        self.has_ids = version >= IDS_FROM
        self.padding = padding

    def topic(self, topic: Topic) -> bytes:
        if self.has_ids:
            key = bytes(16) if topic.topic_id is None else topic.topic_id.bytes
        else:
            key = self.text(topic.name.encode())
        partitions = [
            number.to_bytes(4, "big") + self.records(records) + self.tags(topic.partition_tags)
            for number, records in enumerate(topic.records)
        ]
        return key + self.count(len(partitions)) + b"".join(partitions) + self.tags(topic.tags)

    def count(self, size: int) -> bytes:
        return self.varint(size + 1) if self.flexible else size.to_bytes(4, "big")

    def text(self, content: bytes | None) -> bytes:
        return self.compact(content) if self.flexible else _legacy(content, 2)

    def records(self, content: bytes | None) -> bytes:
        return self.compact(content) if self.flexible else _legacy(content, 4)

    def compact(self, content: bytes | None) -> bytes:
        return self.varint(0) if content is None else self.varint(len(content) + 1) + content

    def tags(self, contents: Sequence[bytes]) -> bytes:
        if not self.flexible:
            return b""
        fields = [self.varint(10 + at) + self.varint(len(each)) + each for at, each in enumerate(contents)]
        return self.varint(len(fields)) + b"".join(fields)

    def varint(self, value: int) -> bytes:
        return varint(value, min(self.padding, 5 - len(varint(value))))


def _legacy(content: bytes | None, size: int) -> bytes:
    if content is None:
        return (-1).to_bytes(size, "big", signed=True)
    return len(content).to_bytes(size, "big") + content
