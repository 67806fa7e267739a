"""Declared topics, from `--topic`.

A declared topic exists in Metadata, but holds no data: fetches from it always return nothing. Its topic id is derived
from its name, so that it is the same after every restart and on every machine.
"""

from collections.abc import Callable, Mapping, Sequence
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

_TOPIC_IDS = uuid5(NAMESPACE_URL, "muster:declared-topics")
_NAME_LENGTH_MAX = 249  # Kafka's own limit, from the length of file names
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_PARTITIONS_MAX = 100_000


class BadTopic(ValueError):
    """An invalid declaration of a topic; the text says why."""


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A declared topic; its partitions are 0 to `partitions` - 1."""

    name: str
    topic_id: UUID
    partitions: int


def declare_topic(text: str) -> Topic:
    """Parse `orders:12` as a topic of 12 partitions, `orders` as one with a single partition. Raises BadTopic."""
    name, colon, count = text.strip().partition(":")
    if not is_topic_name(name):
        raise BadTopic(f"{name!r} is no topic name: 1 to {_NAME_LENGTH_MAX} of a-z, A-Z, 0-9, '.', '_' and '-'")
    if not colon:
        return Topic(name=name, topic_id=topic_id(name), partitions=1)
    if not (count.isascii() and count.isdecimal() and 1 <= int(count) <= _PARTITIONS_MAX):
        raise BadTopic(f"{text!r} should be NAME:PARTITIONS with 1 to {_PARTITIONS_MAX} partitions")
    return Topic(name=name, topic_id=topic_id(name), partitions=int(count))


def is_topic_name(name: str) -> bool:
    """Return whether Kafka allows this topic name."""
    return 0 < len(name) <= _NAME_LENGTH_MAX and name not in {".", ".."} and _NAME_CHARACTERS.issuperset(name)


def topic_id(name: str) -> UUID:
    """Return the id of a declared topic, which is always the same for one name."""
    return uuid5(_TOPIC_IDS, name)


class DeclaredPartitions:
    """The partition counts of declared topics, which are always known."""

    def __init__(self, topics: Callable[[], Mapping[str, Topic]]) -> None:
        self._topics = topics

    def want(self, topics: Sequence[str]) -> None:
        """Do nothing: all counts are known anyway."""

    def of(self, topic: str) -> int | None:
        """Return the partition count of the topic; None if it is not declared."""
        declared = self._topics().get(topic)
        return None if declared is None else declared.partitions
