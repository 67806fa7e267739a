"""Records of one group, in order, folded into rows of the table `rebalances`. Pure: no Spark, no files.

The rows are the rebalances of the incidents that `muster replay why` tells; `story` is the very rebalance that `why
--format jsonl` has. A group's records come in one run, ordered by offset; what concerns its whole
partition (who coordinated it, since when) comes beside them, since every group of the partition needs it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from typing import Any

import msgspec

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.items import History, PassedOver, Prelude, Read, Told, with_gaps
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.telling import incidents
from muster.replay.logs.sources import read_record
from muster.replay.rebalances.rebalance import HappeningKind, Rebalance
from muster.replay.rebalances.wording import headline

Row = dict[str, Any]


def partition_reads(records: Iterable[StoredRecord]) -> list[Read]:
    """Select the records that concern the whole partition."""
    reads = (read_record(record) for record in records)
    return [read for found in reads if found is not None for group_id, read in [found] if group_id is None]


def fold(
    records: Iterable[tuple[GroupId, StoredRecord]], by_partition: Mapping[int, Sequence[Read]], log: str
) -> Iterator[Row]:
    """The rows of each group; `records` has each group's in one run, ordered by offset."""
    for group_id, of_group in groupby(records, key=lambda pair: pair[0]):
        found = (read_record(record) for _, record in of_group)
        own = [item[1] for item in found if item is not None and not isinstance(item[1], PassedOver)]
        if own:
            shared = by_partition.get(own[0].position.partition, ())
            history = History(group_id=group_id, log=log, items=tuple(with_gaps(_interleave(own, shared))))
            for incident in incidents(history):
                yield from (row(rebalance, incident) for rebalance in incident.rebalances)


def _interleave(own: Sequence[Told], shared: Sequence[Read]) -> Iterator[Told]:
    """Order records as in the partition, with only the prelude before the group's first record."""
    prelude = Prelude()
    first = own[0].position.offset
    for read in shared:
        if read.position.offset < first:
            prelude.note(read)
    yield from prelude.reads
    later = (read for read in shared if read.position.offset >= first and not isinstance(read, PassedOver))
    yield from merge(own, later, key=lambda read: read.position.offset)


def row(rebalance: Rebalance, incident: Incident) -> Row:
    """Make one row of `rebalances`, with the columns of `build.SCHEMA`."""
    actor = rebalance.trigger.who[0] if rebalance.trigger.who else None
    movement = rebalance.movement
    return {
        "group_id": rebalance.group_id,
        "incarnation": rebalance.incarnation,
        "first_seq": rebalance.first_seq,
        "last_seq": rebalance.last_seq,
        "from_generation": rebalance.from_generation,
        "to_generation": rebalance.to_generation,
        "outcome": rebalance.outcome.value,
        "cause": rebalance.trigger.cause.value,
        "member_id": actor.member_id if actor else None,
        "group_instance_id": actor.group_instance_id if actor else None,
        "client_id": actor.client_id if actor else None,
        "client_host": actor.client_host if actor else None,
        "client_reason": rebalance.trigger.client_reason,
        "folded": [occurrence.cause.value for occurrence in rebalance.folded],
        "started_at": rebalance.started_at,
        "ended_at": rebalance.ended_at,
        "duration_ms": rebalance.duration_ms,
        "members_before": len(rebalance.members_before),
        "members_after": len(rebalance.members_after),
        "partitions_moved": movement.moved if movement else None,
        "partitions_stayed": movement.stayed if movement else None,
        "avoided": sum(each.times for each in rebalance.avoided if each.kind is not HappeningKind.PLANNED),
        "headline": headline(rebalance),
        "incident": incident.id,
        "incident_kind": incident.kind,
        "incident_headline": incident.headline,
        "story": msgspec.json.encode(rebalance).decode(),
    }
