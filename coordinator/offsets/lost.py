"""One of two topics is gone: that of the events, or that of the offsets beside it.

What belongs here: telling so from what is left, before anything goes on from half of it. Offsets whose groups are not
in the log are taken for those of deleted groups, and removed; groups whose offsets are gone would let every consumer
begin where `auto.offset.reset` says.

An owner claims a partition of the events first, then that of the offsets, each with a record that stays; and no group
is there before both. So neither can be without an owner's record beside the other, whatever strangers have written:

    the events' partition has none      the offsets' has none, too
    the events' partition has groups    the offsets' has one
"""

from muster.coordinator.offsets.base import OffsetStore
from muster.events.log.base import EventLog, LogMismatch


async def refuse_lost_events(events: EventLog, store: OffsetStore, partition: int) -> None:
    """To be called before the partition is claimed: nothing is written. Raises LogMismatch and LogUnavailable."""
    offsets = store.own_log
    # In this order: another process that is the first to claim both may do so meanwhile.
    if (
        offsets is not None
        and await offsets.has_owners_record(partition)
        and not await events.has_owners_record(partition)
    ):
        raise LogMismatch(
            f"partition {partition} of topic {events.location} has no record of Muster's, and that of"
            f" {offsets.location} has: the topic of the events was deleted, or made anew, and the offsets"
            " that were committed are still there."
            f" Restore {events.location}, or start with another --log, without these offsets"
        )


async def refuse_lost_offsets(events: EventLog, store: OffsetStore, partition: int) -> None:
    """To be called where groups are, before their offsets are claimed. Raises LogMismatch and LogUnavailable."""
    offsets = store.own_log
    if offsets is not None and not await offsets.has_owners_record(partition):
        raise LogMismatch(
            f"partition {partition} of topic {events.location} has groups, and that of {offsets.location} no record of"
            " Muster's: the topic of their committed offsets was deleted, or made anew, or is not there as the log"
            " was a sidecar's."
            f" Restore {offsets.location}, or start with another --log, without offsets"
        )
