"""Refusing to start when one of two topics was lost: the event topic, or the offsets topic.

What belongs here: finding that out from the other topic before anything is written. Otherwise offsets without groups
would be taken for those of deleted groups, and removed; and without offsets every consumer would begin where
`auto.offset.reset` says.

An owner claims a partition of the event topic first, then that of the offsets topic, each with a record that stays, and
creates groups only after both. So, whatever strangers have written:

    the events' partition has none      the offsets' has none, too
    the events' partition has groups    the offsets' has one
"""

from muster.coordinator.offsets.base import OffsetStore
from muster.events.log.base import EventLog, LogMismatch


async def refuse_if_event_topic_deleted(events: EventLog, store: OffsetStore, partition: int) -> bool:
    """Check the event topic before the partition is claimed. Raises LogMismatch and LogUnavailable.

    Returns whether the offsets topic has a record of an owner, so that it was not deleted.
    """
    offsets = store.own_log
    # In this order: another process that is the first to claim both may do so meanwhile.
    if offsets is None or not await offsets.has_owners_record(partition):
        return False
    if not await events.has_owners_record(partition):
        raise LogMismatch(
            f"partition {partition} of topic {events.location} has no record of Muster's, and that of"
            f" {offsets.location} has: the topic of the events was deleted, or made anew, and the offsets"
            " that were committed are still there."
            f" Restore {events.location}, or start with another --log, without these offsets"
        )
    return True


async def refuse_if_offsets_topic_deleted(events: EventLog, store: OffsetStore, partition: int) -> None:
    """Check the offsets topic of a partition with groups before it is claimed. Raises LogMismatch, LogUnavailable."""
    offsets = store.own_log
    if offsets is not None and not await offsets.has_owners_record(partition):
        raise LogMismatch(
            f"partition {partition} of topic {events.location} has groups, and that of {offsets.location} no record of"
            " Muster's: the topic of their committed offsets was deleted, or made anew, or is not there as the log"
            " was a sidecar's."
            f" Restore {offsets.location}, or start with another --log, without offsets"
        )
