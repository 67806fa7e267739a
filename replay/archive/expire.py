"""Expires days: permanently removes their segments, and records that in the manifests."""

from pathlib import Path
from typing import Final

import msgspec

from muster.events.log.base import LogMismatch
from muster.replay.archive.commits import Change, writing
from muster.replay.archive.files import DISK, Disk
from muster.replay.archive.manifest import ExpiredRecords
from muster.replay.archive.segment import day_number, day_text
from muster.replay.text.times import DAY_MS

DAY_FORM: Final = "a day, such as 2026-11-21 (UTC)"


class GaveUp(msgspec.Struct, frozen=True, kw_only=True):
    """The segments, records and bytes that were removed."""

    segments: int
    records: int
    bytes: int


def expire(root: Path, before: str, *, disk: Disk = DISK, now_ms: int | None = None) -> GaveUp:
    """Remove the days before the given one. Raises LogMismatch if it is not a past day, and the errors of `compact`."""
    try:
        number = day_number(before)
    except ValueError as error:
        raise LogMismatch(f"{before!r} is not {DAY_FORM}") from error
    with writing(root, disk=disk, now_ms=now_ms) as writer:
        today = writer.now_ms // DAY_MS
        if number > today:
            raise LogMismatch(f"{before} has not come yet: today is {day_text(today)} (UTC)")
        state, expired = writer.state, []
        gone = [segment for segment in state.segments.values() if segment.day < day_text(number)]
        for partition in sorted({segment.partition for segment in gone}):
            own = [segment for segment in gone if segment.partition == partition]
            earlier = state.expired.get(partition)
            records = sum(segment.records for segment in own) + (0 if earlier is None else earlier.records)
            end = max(segment.end for segment in own)
            expired.append(ExpiredRecords(partition=partition, end=end, records=records, before=day_text(number)))
        if expired:
            writer.commit(Change(action="expire", expired=expired))
            writer.remove_given_up()
        return GaveUp(
            segments=len(gone), records=sum(each.records for each in gone), bytes=sum(each.bytes for each in gone)
        )
