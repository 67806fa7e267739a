"""The names that an event log uses in its cluster: topics, transactional ids of its owners, and their group.

The sidecar needs them too, to keep clients away from them.

    TOPIC                        the events
    TOPIC_offsets                committed offsets, of a standalone coordinator
    TOPIC_fencing_probe          the scratch topic on which each opening verifies that deposed writers are refused, and
                                 where owners leave signs of life
    muster-TOPIC-PARTITION       the transactional id of the partition's owner
    muster-TOPIC-owners          the consumer group through which several processes share the partitions
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

OFFSETS_SUFFIX: Final = "_offsets"
PROBE_SUFFIX: Final = "_fencing_probe"


def topics_of(event_topic: str) -> tuple[str, str, str]:
    """Return all topics of the log."""
    return event_topic, event_topic + OFFSETS_SUFFIX, event_topic + PROBE_SUFFIX


def owner_id(topic: str, partition: int) -> str:
    """Return the transactional id under which the owner of this partition claims it."""
    return f"muster-{topic}-{partition}"


def ownership_group(topic: str) -> str:
    """Return the consumer group of the topic's owners."""
    return f"muster-{topic}-owners"


def owner_id_prefix(topic: str) -> str:
    """Return the prefix of all transactional ids of the topic's log, as for ACLs."""
    return f"muster-{topic.removesuffix(PROBE_SUFFIX).removesuffix(OFFSETS_SUFFIX)}"


def owner_ids_of(topics: Iterable[str]) -> Callable[[bytes], bool]:
    """Return a predicate for transactional ids of owners of any partition of these topics."""
    names = "|".join(map(re.escape, topics))
    pattern = re.compile(rf"muster-(?:{names})-(?:0|[1-9][0-9]*)".encode())
    return lambda encoded: bool(names) and pattern.fullmatch(encoded) is not None


def warning_of_new_topic(topic: str) -> str:
    """Return the warning that the topic of a log that existed before had to be recreated."""
    return (
        f"topic {topic} did not exist, although a log of this name was opened before ({topic}{PROBE_SUFFIX}"
        " exists): it was recreated, without the earlier history. If it was not deleted on purpose, stop all processes"
        " that use it and restore it"
    )
