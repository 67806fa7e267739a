"""The limits of one request, by API: bytes, and entries in all its arrays together, with a reason for each.

The bounds are well above the requests of any tool, and low enough that the work for one request is limited: bytes limit
memory, entries limit time. A request beyond them closes its connection; the log line names the API, the size and the
bound.

Sizes are Kafka's limit for one entry (topic names have at most 249 characters, ids about 100 in practice) times the
number of entries; where a request carries a client's own bytes (metadata, assignments), they follow from the storage
limits.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

_KIB: Final = 1_024
_MIB: Final = 1_024 * _KIB

ANSWER_BYTES_MAX: Final = 100_000_000
"""The largest response: librdkafka reads no more (its default of receive.message.max.bytes)."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one request, and their reason."""

    bytes_max: int
    entries_max: int
    reason: str


_NO_LISTS = "names one thing"
_BOUNDS: Final[Mapping[int, Bound]] = {
    0: Bound(bytes_max=16 * _MIB, entries_max=20_000, reason="Produce: 16 times a producer's default max.request.size"),
    1: Bound(bytes_max=8 * _MIB, entries_max=100_000, reason="Fetch: one consumer of 100,000 partitions"),
    2: Bound(bytes_max=8 * _MIB, entries_max=100_000, reason="ListOffsets: the lag of 100,000 partitions"),
    3: Bound(bytes_max=16 * _MIB, entries_max=50_000, reason="Metadata: 50,000 topics by name"),
    8: Bound(bytes_max=32 * _MIB, entries_max=50_000, reason="OffsetCommit: 10,000s of partitions, with metadata"),
    9: Bound(
        bytes_max=8 * _MIB, entries_max=100_000, reason="OffsetFetch: all of 20,000 groups, or 10,000s of partitions"
    ),
    10: Bound(bytes_max=8 * _MIB, entries_max=50_000, reason="FindCoordinator: describing all of 20,000 groups"),
    11: Bound(bytes_max=16 * _MIB, entries_max=100, reason="JoinGroup: one protocol for each assignor, large metadata"),
    12: Bound(bytes_max=128 * _KIB, entries_max=10, reason=f"Heartbeat: {_NO_LISTS}"),
    13: Bound(bytes_max=4 * _MIB, entries_max=10_000, reason="LeaveGroup: all members of a group removed at once"),
    14: Bound(bytes_max=64 * _MIB, entries_max=20_000, reason="SyncGroup: an assignment for each of 20,000 members"),
    15: Bound(
        bytes_max=8 * _MIB, entries_max=50_000, reason="DescribeGroups: all groups, AdminClient sends them in one"
    ),
    16: Bound(bytes_max=128 * _KIB, entries_max=100, reason="ListGroups: states and types to filter by"),
    17: Bound(bytes_max=512 * _KIB, entries_max=10, reason="SaslHandshake: as sasl.server.max.receive.size"),
    18: Bound(bytes_max=128 * _KIB, entries_max=10, reason=f"ApiVersions: {_NO_LISTS}"),
    22: Bound(bytes_max=128 * _KIB, entries_max=10, reason=f"InitProducerId: {_NO_LISTS}"),
    24: Bound(bytes_max=8 * _MIB, entries_max=100_000, reason="AddPartitionsToTxn: as OffsetCommit, without metadata"),
    25: Bound(bytes_max=128 * _KIB, entries_max=10, reason=f"AddOffsetsToTxn: {_NO_LISTS}"),
    26: Bound(bytes_max=128 * _KIB, entries_max=10, reason=f"EndTxn: {_NO_LISTS}"),
    28: Bound(bytes_max=32 * _MIB, entries_max=50_000, reason="TxnOffsetCommit: as OffsetCommit"),
    32: Bound(bytes_max=8 * _MIB, entries_max=50_000, reason="DescribeConfigs: the configs of 20,000 groups by name"),
    36: Bound(bytes_max=512 * _KIB, entries_max=10, reason="SaslAuthenticate: as sasl.server.max.receive.size"),
    42: Bound(bytes_max=8 * _MIB, entries_max=50_000, reason="DeleteGroups: all of 20,000 groups"),
    44: Bound(bytes_max=8 * _MIB, entries_max=50_000, reason="IncrementalAlterConfigs: configs of 20,000 groups"),
    47: Bound(bytes_max=8 * _MIB, entries_max=50_000, reason="OffsetDelete: as OffsetCommit"),
    60: Bound(bytes_max=128 * _KIB, entries_max=10, reason=f"DescribeCluster: {_NO_LISTS}"),
    68: Bound(
        bytes_max=8 * _MIB, entries_max=100_000, reason="ConsumerGroupHeartbeat: a consumer of 100,000 partitions"
    ),
}

_OTHERS: Final = Bound(bytes_max=_MIB, entries_max=10_000, reason="what is not offered is never read")


def bound_of(api_key: int) -> Bound:
    """Return the bound of an API that is decoded here."""
    return _BOUNDS.get(api_key, _OTHERS)
