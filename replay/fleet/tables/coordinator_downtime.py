"""A time without a coordinator -> a row of `coordinator_downtime`. Pure."""

from muster.events.ids import GroupId
from muster.replay.fleet.tables.values import Row, day_of, micros
from muster.replay.incidents.episode.coordinator_absences import Away


def downtime_row(group_id: GroupId, away: Away, log_partition: int) -> Row:
    """The row of a time in which the group was not served."""
    return (
        group_id,
        log_partition,
        day_of(away.until_ms),
        micros(away.since_ms),
        away.last_known.value,
        micros(away.until_ms),
        away.longest_ms,
        away.shortest_ms,
        away.paused,
        away.owner_before,
        away.owner,
        len(away.members),
    )
