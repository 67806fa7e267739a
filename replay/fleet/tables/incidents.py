"""An incident -> a row of `incidents`. Pure."""

from muster.replay.fleet.tables.values import Row, day_of, micros, micros_of, name_of
from muster.replay.incidents.incident import Incident
from muster.replay.text.times import wall_ms_of


def incident_row(told: Incident, log_partition: int) -> Row:
    """The row of an incident. What it is told by, sentence for sentence, `muster replay why` has."""
    cost = told.cost
    started_ms = wall_ms_of(told.started_at)
    return (
        told.group_id,
        told.id,
        log_partition,
        day_of(started_ms),
        micros(started_ms),
        micros_of(told.ended_at),
        told.kind,
        told.grade.value,
        told.headline,
        told.parent,
        [name_of(each) for each in told.culprits],
        [each.client_id for each in told.culprits],
        [each.client_host for each in told.culprits],
        len(told.rebalances),
        cost.rebalancing_ms,
        cost.partition_ms,
        cost.silent_partition_ms,
        cost.empty_partition_ms,
        cost.known_partition_ms,
        cost.partitions_moved,
        cost.partitions_moved_back,
        cost.restarts_absorbed,
        list(told.notes),
    )
