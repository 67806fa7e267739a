"""A record that cannot be read -> a row of `quarantine`. Pure."""

from muster.events.ids import GroupId
from muster.replay.fleet.tables.values import Row, micros
from muster.replay.history.items import Broken


def quarantine_row(topic: str, broken: Broken, group_id: GroupId | None) -> Row:
    """The row of a record. `group_id`: None of one that concerns its whole partition."""
    at = broken.position
    return (topic, at.partition, at.offset, micros(at.timestamp_ms), group_id, broken.kind.value, broken.reason)
