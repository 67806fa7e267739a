"""The requests and versions that a broker must have for an event log.

What belongs here: the table, and the one line about a broker that does not fit it. Pure; it knows no connection.
Without it an old broker would show as a request that fails again and again, without a reason.
"""

from collections.abc import Mapping, Sequence

import msgspec

from muster.events.log.base import LogMismatch


class Needed(msgspec.Struct, frozen=True):
    """A request that is needed in any of the versions from `first` to `last`."""

    api: str
    api_key: int
    first: int
    last: int


READING: Sequence[Needed] = (
    Needed("Fetch", 1, 7, 11),  # an error of the whole answer since v7
    Needed("ListOffsets", 2, 1, 3),  # one offset for a timestamp since v1
    Needed("Metadata", 3, 4, 10),  # never makes a topic since v4, tells its id since v10
)
WRITING: Sequence[Needed] = (
    *READING,
    Needed("Produce", 0, 3, 7),  # batches with a producer's epoch since v3
    Needed("FindCoordinator", 10, 1, 1),  # of a transactional.id since v1
    Needed("CreateTopics", 19, 1, 3),  # says why not since v1
    Needed("InitProducerId", 22, 0, 0),
    Needed("DescribeConfigs", 32, 0, 2),
)


_METADATA, _CREATE_TOPICS = 3, 19
_METADATA_OF_NEWER_BROKERS = 10
"""The version of Metadata since Kafka 2.8, whose brokers all make topics."""


def check_versions(broker: str, offered: Mapping[int, tuple[int, int]], needed: Sequence[Needed]) -> None:
    """Raises LogMismatch, which names the API and the versions.

    `broker`: its id and address, for people; `offered`: first and last version by API key.
    """
    for each in needed:
        first, last = offered.get(each.api_key, (0, -1))
        if last < 0 and each.api_key == _CREATE_TOPICS and offered[_METADATA][1] >= _METADATA_OF_NEWER_BROKERS:
            raise LogMismatch(
                f"{broker} keeps no topics: it does not offer {each.api}. It may be a Muster that stands alone; name"
                " brokers of a Kafka cluster, or another --log"
            )
        if last < each.first:
            has = f"offers {each.api} up to v{last}" if last >= 0 else f"does not offer {each.api}"
            raise LogMismatch(
                f"{broker} is too old to keep an event log: it {has}, and v{each.first} is needed; use a newer"
                " version of Kafka, or another --log"
            )
        if first > each.last:
            raise LogMismatch(
                f"{broker} is too new for this version of Muster: it offers {each.api} from v{first} on, and"
                f" v{each.last} is the last one that is known here; use a newer Muster, or another --log"
            )
