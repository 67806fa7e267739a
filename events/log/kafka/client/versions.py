"""The requests and versions that a broker must have for an event log.

Defines them in a table, with the error message for a broker that lacks one. Pure. Without this check, requests to an
old broker would fail again and again with no clear reason.
"""

from collections.abc import Mapping, Sequence

from muster.events.kafka.exchange import SupportedApi
from muster.events.kafka.metadata import METADATA
from muster.events.kafka.requests import (
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
)
from muster.events.log.base import LogMismatch

READING: Sequence[SupportedApi] = (FETCH, LIST_OFFSETS, METADATA)
WRITING: Sequence[SupportedApi] = (
    *READING,
    PRODUCE,
    FIND_COORDINATOR,
    CREATE_TOPICS,
    INIT_PRODUCER_ID,
    DESCRIBE_CONFIGS,
)

_METADATA_OF_NEWER_BROKERS = 10
"""The version of Metadata since Kafka 2.8, whose brokers all create topics."""


def check_versions(broker: str, offered: Mapping[int, tuple[int, int]], needed: Sequence[SupportedApi]) -> None:
    """Check the offered versions. Raises LogMismatch, which names the API and the versions.

    `broker`: its id and address, for the message; `offered`: first and last version by API key.
    """
    for each in needed:
        first, last = offered.get(each.key, (0, -1))
        if last < 0 and each is CREATE_TOPICS and offered[METADATA.key][1] >= _METADATA_OF_NEWER_BROKERS:
            raise LogMismatch(
                f"{broker} stores no topics: it does not offer {each.name}. It may be a standalone Muster; name"
                " brokers of a Kafka cluster, or another --log"
            )
        if last < min(each.versions):
            has = f"offers {each.name} up to v{last}" if last >= 0 else f"does not offer {each.name}"
            raise LogMismatch(
                f"{broker} is too old to keep an event log: it {has}, and v{min(each.versions)} is needed; use a newer"
                " version of Kafka, or another --log"
            )
        if first > max(each.versions):
            raise LogMismatch(
                f"{broker} is too new for this version of Muster: it offers {each.name} from v{first} on, and"
                f" v{max(each.versions)} is the newest that this version knows; use a newer Muster, or another --log"
            )
