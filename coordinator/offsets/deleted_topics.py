"""Refuses to start if one of two topics was lost: the event topic, or the offsets topic.

Detects that from the other topic before anything is written. Otherwise offsets without groups would be taken for those
of deleted groups and removed; and without offsets every consumer would start according to `auto.offset.reset`.

An owner claims a partition of the event topic first, then that of the offsets topic, each with a record that is never
compacted away, and creates groups only after both. So, regardless of foreign records:

    the events' partition has none      the offsets' has none either
    the events' partition has groups    the offsets' has one
"""

from muster.coordinator.offsets.base import OffsetStore
from muster.events.log.base import EventLog, LogMismatch, LogWriter


def refuse_if_event_topic_deleted(
    events: EventLog, store: OffsetStore, writer: LogWriter, *, offsets_were_owned: bool | None
) -> None:
    """Check the event topic when a partition is claimed, before anything is written. Raises LogMismatch.

    `offsets_were_owned`: looked up before the claim, because another process may be the first to claim both in the
    meantime.
    """
    offsets = store.own_log
    if offsets is not None and offsets_were_owned and not writer.was_owned:
        raise LogMismatch(
            f"partition {writer.partition} of topic {events.location} has no record of Muster, but that of "
            f"{offsets.location} has: the event topic was deleted or recreated, and the committed offsets are still "
            f"there. Restore {events.location}, or start with another --log, without these offsets"
        )


async def refuse_if_offsets_topic_deleted(events: EventLog, store: OffsetStore, partition: int) -> None:
    """Check the offsets topic of a partition with groups before it is claimed. Raises LogMismatch, LogUnavailable."""
    offsets = store.own_log
    if offsets is not None and not await offsets.has_owners_record(partition):
        raise LogMismatch(
            f"partition {partition} of topic {events.location} has groups, but that of {offsets.location} has no "
            "record of Muster: the topic of their committed offsets was deleted or recreated, or is missing "
            f"because the log was a sidecar's. Restore {offsets.location}, or start with another --log, without "
            "offsets"
        )
