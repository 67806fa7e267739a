"""The names that an event log takes in its cluster: topics, and the transactional ids of its owners.

What belongs here: how the names are made, for those who use them and for those who keep others from them. No requests.

    TOPIC                        the events
    TOPIC_offsets                what a coordinator without a cluster keeps of commits
    TOPIC_fencing_probe          where each opening proves that deposed writers are refused
    muster-TOPIC-PARTITION       the transactional id of the partition's owner
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

OFFSETS_SUFFIX: Final = "_offsets"
PROBE_SUFFIX: Final = "_fencing_probe"


def topics_of(event_topic: str) -> tuple[str, str, str]:
    """All topics of the log."""
    return event_topic, event_topic + OFFSETS_SUFFIX, event_topic + PROBE_SUFFIX


def owner_id(topic: str, partition: int) -> str:
    """The transactional id under which the owner of this partition claims it."""
    return f"muster-{topic}-{partition}"


def owner_id_prefix(topic: str) -> str:
    """What all transactional ids of the log have in common to which the topic belongs, as ACLs are given."""
    return f"muster-{topic.removesuffix(PROBE_SUFFIX).removesuffix(OFFSETS_SUFFIX)}"


def owner_ids_of(topics: Iterable[str]) -> Callable[[bytes], bool]:
    """Whether something is the transactional id of an owner, of whatever partition of these topics."""
    names = "|".join(map(re.escape, topics))
    pattern = re.compile(rf"muster-(?:{names})-(?:0|[1-9][0-9]*)".encode())
    return lambda encoded: bool(names) and pattern.fullmatch(encoded) is not None
